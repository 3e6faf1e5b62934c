"""The keys of requests that were queued before their workflow was given another deadline. Pure; renders nothing."""

from collections.abc import Mapping

from common.model import Queued, Rescore
from common.policy.cost import exec_s
from common.policy.urgency import minds_deadlines, offset_s
from common.states import ENDED
from coordinator.cluster import Cluster, needed_features
from coordinator.language.definition import LlmBody
from coordinator.places import Place, find
from coordinator.remaining import Remaining
from coordinator.routing import Slack, key_facts
from coordinator.state import Workflow


def rescores(workflow: Workflow, queued: Mapping[str, Queued], cluster: Cluster) -> list[Rescore]:
    """Those they would have, had the workflow had its deadline from the beginning; none where keys follow from no
    deadline.

    queued: what is recorded of its requests. Of those that run, too: they may come back to wait under the key recorded.
    """
    if not (queued and minds_deadlines(cluster.policy)):
        return []
    remaining = Remaining(workflow.definition, workflow.nodes, cluster)
    work_s, deadline_at = remaining.workflow_s(), workflow.head.slo.deadline_at
    found = []
    for key, node in workflow.nodes.items():
        known = queued.get(node.request)
        if known is not None and node.phase not in ENDED:
            slack = Slack((deadline_at - known.enqueued_at) / 1000, work_s, remaining.after_s)
            found.append(_rescore(workflow, find(workflow.definition, key), node.request, known, cluster, slack))
    return found


def _rescore(workflow: Workflow, at: Place, request: str, queued: Queued, cluster: Cluster, slack: Slack) -> Rescore:
    """slack: as of when the request was queued."""
    facts = key_facts(workflow, at, cluster, slack, *_costs_s(workflow.definition.name, at, queued, cluster))
    slo, offset_ms = workflow.head.slo, round(1000 * offset_s(cluster.policy, facts))
    return Rescore(request, offset_ms, round(1000 * facts.budget_s), slo.deadline_at, slo.deadline_at - slo.arrival_at)


def _costs_s(name: str, at: Place, queued: Queued, cluster: Cluster) -> tuple[float, float]:
    """Expected seconds of the request where it is, and in the mean; both the mean while it is nowhere."""
    body, stage_s = at.spec.body, cluster.stage_s(name, at.spec)
    if not isinstance(body, LlmBody):
        return stage_s, stage_s
    costs = {
        instance.id: exec_s(instance.profile, queued.prompt_tokens, queued.expected_tokens)
        for instance in cluster.serving(body.model, body.requires, needed_features(body))
        if queued.prompt_tokens <= instance.profile.longest_prompt
    }
    mean_s = sum(costs.values()) / len(costs) if costs else stage_s
    return costs.get(queued.instance, mean_s), mean_s
