"""The keys of requests that were queued before their workflow was given another deadline. Pure; renders nothing."""

from collections.abc import Mapping

from common.model import Grounds, Rescore, Slo
from common.policy.rules import Rules
from common.policy.urgency import facts, minds_deadlines, offset_s
from common.states import ENDED
from coordinator.state import Workflow


def rescores(workflow: Workflow, grounds: Mapping[str, Grounds], rules: Rules) -> list[Rescore]:
    """Those they would have, had the workflow had its deadline from the beginning; none where keys follow from no
    deadline.

    grounds: of its requests, by id. Of those that run, too: they may come back to wait under the key recorded.
    """
    if not minds_deadlines(rules):
        return []
    under_way = [node.request for node in workflow.nodes.values() if node.phase not in ENDED]
    slo = workflow.head.slo
    return [_rescore(request, grounds[request], slo, rules) for request in under_way if request in grounds]


def _rescore(request: str, grounds: Grounds, slo: Slo, rules: Rules) -> Rescore:
    known = facts(grounds, slo)
    offset_ms, budget_ms = round(1000 * offset_s(rules, known)), round(1000 * known.budget_s)
    return Rescore(request, offset_ms, budget_ms, slo.deadline_at, slo.deadline_at - slo.arrival_at)
