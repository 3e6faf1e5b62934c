"""How much work a workflow still has before it: expected seconds, loops and branches at their learned means."""

from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Literal, TypeVar

from common.model import Node
from common.policy.budget import critical_path, further_rounds, summed
from common.states import ENDED
from coordinator.cluster import Cluster
from coordinator.language.definition import Definition, GroupBody, StageSpec
from coordinator.places import Place, group_of, live_copies, place, scope_of
from coordinator.state import PENDING

COPIES_LOOKED_AT = 16
T = TypeVar("T")
Measure = Literal["all", "known", "best"]
"""What counts. all: everything, guesses too. known: not what is only guessed, nor optional stages that have not
started; best: the same, with each request on the instance that is the fastest for it, instead of the mean.
"""


class Remaining:
    """Adds up expected work. A parallel group of copies counts once, as the longest member that must complete."""

    def __init__(self, definition: Definition, nodes: Mapping[str, Node], cluster: Cluster) -> None:
        self._definition = definition
        self._nodes = nodes
        self._expected = Expected(definition.name, cluster, cluster.policy.budgets_along_path)
        self._cluster = cluster

    def workflow_s(self) -> float:
        """Expected seconds of all that has not ended, summed or along the critical path as the policy says."""
        return self._scope_s(None, self._definition.root)

    def after_s(self, at: Place) -> float:
        """Expected seconds from the end of a running leaf to that of the workflow, along the critical path always."""
        return self._after_s(at, Expected(self._definition.name, self._cluster, along_path=True))

    def through_s(self, at: Place) -> float:
        """Expected seconds from now to the end of the workflow by way of a stage, which starts now.

        What is only guessed counts nothing, nor do optional stages after it.
        """
        expected = Expected(self._definition.name, self._cluster, along_path=True, measure="known")
        return expected.round_s(at.spec) + self._after_s(at, expected)

    def _after_s(self, at: Place, expected: "Expected") -> float:
        total = 0.0
        here: Place | None = at
        while here is not None:
            total += expected.further_s(here.spec, here.round)
            total += expected.tail_s(group_of(self._definition, here.parent), here.spec)
            here = here.parent
        return total

    def _scope_s(self, parent: Place | None, group: GroupBody) -> float:
        return self._expected.combined_s(group, [self._stage_s(parent, spec) for spec in group.stages])

    def _stage_s(self, parent: Place | None, spec: StageSpec) -> float:
        node = self._nodes.get(scope_of(parent) + spec.name, PENDING)
        if node.status in ENDED:
            return 0.0
        if node.status == "pending":
            return self._expected.stage_s(spec)
        if spec.for_each is None:
            return self._copy_s(place(parent, spec))
        if not isinstance(spec.body, GroupBody) and spec.repeat is None:
            return self._expected.round_s(spec)
        copies = islice(live_copies(self._nodes, scope_of(parent) + spec.name), COPIES_LOOKED_AT)
        costs = sorted(self._copy_s(place(parent, spec, index)) for index in copies)
        return costs[min(node.left, len(costs)) - 1] if costs else 0.0

    def _copy_s(self, first: Place) -> float:
        """Of a copy that runs: its round, and the rounds expected after it."""
        spec, body = first.spec, first.spec.body
        round = None if spec.repeat is None else self._nodes.get(first.copy_key, PENDING).round
        at = first if round is None else place(first.parent, spec, first.index, round)
        now = self._scope_s(at, body) if isinstance(body, GroupBody) else self._expected.round_s(spec)
        return now + self._expected.further_s(spec, round)


def best_s(definition: Definition, cluster: Cluster) -> float:
    """Expected seconds of a whole workflow, along its critical path, that has the cluster to itself.

    What is only guessed counts nothing, nor does what is optional.
    """
    expected = Expected(definition.name, cluster, along_path=True, measure="best")
    return expected.combined_s(definition.root, [expected.stage_s(spec) for spec in definition.root.stages])


class Expected:
    """What is expected of stages as their definition has them; the cluster keeps what was worked out.

    along_path: the stages of a group count along its critical path, else they are summed.
    """

    def __init__(self, workflow: str, cluster: Cluster, along_path: bool, measure: Measure = "all") -> None:
        self._workflow = workflow
        self._cluster = cluster
        self._along_path = along_path
        self._measure = measure

    def combined_s(self, group: GroupBody, costs: Sequence[float]) -> float:
        """Of a group whose stages take so long each."""
        if not self._along_path:
            return summed(costs)
        position = {spec.name: i for i, spec in enumerate(group.stages)}
        return critical_path(costs, [[position[name] for name in spec.needs] for spec in group.stages])

    def stage_s(self, spec: StageSpec) -> float:
        """Of a stage that has not started."""
        if spec.optional and self._measure != "all":
            return 0.0
        return self._kept("stage", spec, self._stage_s)

    def round_s(self, spec: StageSpec) -> float:
        """Of one round of one copy."""
        if not isinstance(spec.body, GroupBody):
            if self._measure == "all":
                return self._cluster.stage_s(self._workflow, spec)
            return self._cluster.known_s(self._workflow, spec, best=self._measure == "best")
        return self.combined_s(spec.body, [self.stage_s(inner) for inner in spec.body.stages])

    def further_s(self, spec: StageSpec, round: int | None) -> float:
        """Of the rounds that follow this one."""
        if round is None or spec.repeat is None:
            return 0.0
        return self._kept("further", spec, self._further)[round] * self.round_s(spec)

    def tail_s(self, group: GroupBody, spec: StageSpec) -> float:
        """Of the longest path through what waits for a stage in its group; none of that starts while it runs."""
        return self._kept("tail", spec, lambda _: self._tail_s(group, spec))

    def _stage_s(self, spec: StageSpec) -> float:
        cost = self.round_s(spec)
        if spec.repeat is not None:
            cost += self.further_s(spec, 0)
        if spec.when is not None:
            cost *= self._cluster.estimates.branch(self._workflow, spec)
        return cost

    def _further(self, spec: StageSpec) -> list[float]:
        return further_rounds(self._cluster.estimates.goes_on(self._workflow, spec))

    def _tail_s(self, group: GroupBody, spec: StageSpec) -> float:
        later = [other for other in group.stages if spec.name in other.needs]
        return max((self.stage_s(other) + self.tail_s(group, other) for other in later), default=0.0)

    def _kept(self, what: str, spec: StageSpec, work_out: Callable[[StageSpec], T]) -> T:
        key = (what, self._along_path, self._measure, spec)
        if key not in self._cluster.expected:
            self._cluster.expected[key] = work_out(spec)
        return self._cluster.expected[key]  # type: ignore[no-any-return]
