"""How much work a workflow still has before it: expected seconds, loops and branches at their learned means."""

from collections.abc import Iterator, Mapping
from itertools import count, islice

from common.model import Node
from common.policy.budget import critical_path, expected_rounds, summed
from common.states import ENDED
from coordinator.cluster import Cluster
from coordinator.language.definition import Definition, GroupBody, StageSpec
from coordinator.places import Place, place, scope_of
from coordinator.state import PENDING

COPIES_LOOKED_AT = 16


class Remaining:
    """Adds up expected work. A parallel group of copies counts once, as its longest member."""

    def __init__(self, definition: Definition, nodes: Mapping[str, Node], cluster: Cluster) -> None:
        self._definition = definition
        self._nodes = nodes
        self._cluster = cluster
        self._name = definition.name

    def workflow_s(self) -> float:
        """Expected seconds of all that has not ended, summed or along the critical path as the policy says."""
        return self._scope_s(None, self._definition.root)

    def _combine(self, group: GroupBody, costs: list[float]) -> float:
        if not self._cluster.policy.budgets_along_path:
            return summed(costs)
        position = {spec.name: i for i, spec in enumerate(group.stages)}
        return critical_path(costs, [[position[name] for name in spec.needs] for spec in group.stages])

    def _scope_s(self, parent: Place | None, group: GroupBody) -> float:
        return self._combine(group, [self._stage_s(parent, spec) for spec in group.stages])

    def _stage_s(self, parent: Place | None, spec: StageSpec) -> float:
        node = self._nodes.get(scope_of(parent) + spec.name, PENDING)
        if node.status in ENDED:
            return 0.0
        if node.status == "pending":
            return self._expected_s(spec)
        if spec.for_each is None:
            return self._copy_s(place(parent, spec))
        if not isinstance(spec.body, GroupBody) and spec.repeat is None:
            return self._cluster.stage_s(self._name, spec)
        copies = islice(self._live_copies(parent, spec), min(node.left, COPIES_LOOKED_AT))
        return max(map(self._copy_s, copies), default=0.0)

    def _live_copies(self, parent: Place | None, spec: StageSpec) -> Iterator[Place]:
        key = scope_of(parent) + spec.name
        for index in count():
            node = self._nodes.get(f"{key}[{index}]")
            if node is None:
                return
            if node.status not in ENDED:
                yield place(parent, spec, index)

    def _copy_s(self, first: Place) -> float:
        """Of a copy that runs: its round, and the rounds expected after it."""
        node = self._nodes.get(first.copy_key, PENDING)
        spec, body = first.spec, first.spec.body
        at = first if spec.repeat is None else place(first.parent, spec, first.index, node.round)
        now = self._scope_s(at, body) if isinstance(body, GroupBody) else self._cluster.stage_s(self._name, spec)
        if spec.repeat is None:
            return now
        goes_on = self._cluster.estimates.chance("while", self._name, spec)
        return now + expected_rounds(goes_on, spec.repeat.most, node.round + 1) * self._body_s(spec)

    def _expected_s(self, spec: StageSpec) -> float:
        """Of a stage that has not started."""
        known = self._cluster.expected_s
        if spec not in known:
            known[spec] = self._estimated_s(spec)
        return known[spec]

    def _estimated_s(self, spec: StageSpec) -> float:
        estimates = self._cluster.estimates
        cost = self._body_s(spec)
        if spec.repeat is not None:
            cost *= expected_rounds(estimates.chance("while", self._name, spec), spec.repeat.most)
        if spec.when is not None:
            cost *= estimates.chance("when", self._name, spec)
        return cost

    def _body_s(self, spec: StageSpec) -> float:
        """Of one round of one copy that has not started."""
        if not isinstance(spec.body, GroupBody):
            return self._cluster.stage_s(self._name, spec)
        return self._combine(spec.body, [self._expected_s(inner) for inner in spec.body.stages])
