"""In which order requests are served: `offset_s`, the second of the two decisions a policy makes. No queue, no clock.

A request's key is a time; smaller ones run first. Here it is given relative to now, since the queue's clock adds the
time. Plain functions over numbers: the simulator compiles them.
"""

from typing import NamedTuple

from common.model import Grounds, Slo
from common.policy.fairness import TOKENS_PER_S
from common.policy.rules import FCFS, GROUPS, LAXITY, PATH, SERVED, URGENCY, WORKFLOW_FCFS, Rules

HOPELESS_S = 1e6
"""By so much a workflow that cannot meet its deadline goes back, where that is asked for."""


class Facts(NamedTuple):
    """What is known of a request when it becomes ready, in s.

    now: since any fixed moment; left_s: what remains of its workflow's SLO, negative when late; slo_s: the whole;
    budget_s: its share of what remains; exec_s: its time on the instance whose queue it joins (in the line: the mean);
    path_s: expected critical path of its workflow, from it on; wait_s: expected wait in that queue; served: its
    tenant's virtual counter, in tokens; behind_s: the time of the whole cluster that its tenant has had more than
    another.
    """

    now: float
    left_s: float
    slo_s: float
    budget_s: float
    exec_s: float
    path_s: float
    wait_s: float = 0.0
    served: float = 0.0
    behind_s: float = 0.0


def minds_deadlines(rules: Rules) -> bool:
    """Whether a request's key depends on when its workflow should be done."""
    return rules.hopeless_last or rules.fairness > 0.0 or rules.order in (URGENCY, LAXITY, GROUPS, PATH)


def facts(grounds: Grounds, slo: Slo) -> Facts:
    """What is known of a request whose workflow has this SLO."""
    left_s = (slo.deadline_at - grounds.at) / 1000
    return Facts(
        now=grounds.at / 1000,
        left_s=left_s,
        slo_s=(slo.deadline_at - slo.arrival_at) / 1000,
        budget_s=grounds.share * left_s,
        exec_s=grounds.exec_s,
        path_s=grounds.path_s,
        wait_s=grounds.wait_s,
        served=grounds.served,
        behind_s=grounds.behind_s,
    )


def offset_s(rules: Rules, facts: Facts) -> float:
    """A request's key, less the present time."""
    offset = _offset_s(rules, facts)
    if rules.fairness > 0.0:
        offset += rules.fairness * min(facts.behind_s, facts.slo_s)
    if rules.hopeless_last and facts.left_s < facts.path_s:
        offset += HOPELESS_S
    return offset


def _offset_s(rules: Rules, facts: Facts) -> float:
    offset = 0.0
    if rules.order == FCFS:
        offset = 0.0
    elif rules.order == WORKFLOW_FCFS:
        offset = facts.left_s - facts.slo_s
    elif rules.order == URGENCY:
        # Urgency U = t_exec - (budget - waited) grows at the same pace for all that wait (arXiv 2505.05286), so its
        # order is that of the latest start, enqueued + budget - t_exec, which is computed once.
        offset = facts.budget_s - facts.exec_s
    elif rules.order == LAXITY:
        offset = facts.left_s - facts.path_s
    elif rules.order == GROUPS:
        # QLM: groups of one SLO in order of arrival; what would miss its deadline there goes by the deadline.
        offset = facts.left_s if facts.wait_s + facts.path_s > facts.left_s else facts.slo_s
    elif rules.order == SERVED:
        # VTC: the tenant that was served least. A counter is no time: take off the one that will be added.
        offset = facts.served / TOKENS_PER_S - facts.now
    elif rules.order == PATH:
        offset = facts.left_s - rules.weights.path * facts.path_s
    return offset
