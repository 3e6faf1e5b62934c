"""What a workflow that has completed leaves for replays: its calls, and which waited for which. Pure."""

from collections.abc import Iterable

from common.recorded import Recorded, RecordedCall
from coordinator.language.definition import GroupBody, LlmBody, StageSpec
from coordinator.places import Place, group_of, place, scope_of
from coordinator.state import PENDING, Workflow

MOST_CALLS = 512
MOST_NEEDS = 8192
"""A workflow with more is not recorded: the window is bounded in bytes too."""
Ends = tuple[int, ...]
"""Positions of the calls that something waits for."""


def recorded(workflow: Workflow, ended_at: int, policy: str, values: dict[str, float]) -> Recorded | None:
    """The record of a workflow that has completed, or None: it has no calls or too many, or an engine told no tokens.

    ended_at in ms of Redis time.
    """
    if not 0 < len(workflow.outputs) <= MOST_CALLS:
        return None
    walk = _Walk(workflow)
    walk.group(None, ())
    calls, slo, head = walk.calls, workflow.head.slo, workflow.head
    if walk.untold or sum(len(call.needs) for call in calls) > MOST_NEEDS:
        return None
    times = (slo.arrival_at, slo.deadline_at, ended_at)
    return Recorded(head.name, head.tenant, *times, policy, values, tuple(calls))


class _Walk:
    """Goes through the stages in an order in which they may run; each step gives what the next one waits for."""

    def __init__(self, workflow: Workflow) -> None:
        self._definition = workflow.definition
        self._nodes, self._outputs = workflow.nodes, workflow.outputs
        self.calls: list[RecordedCall] = []
        self.untold = False

    def group(self, parent: Place | None, before: Ends) -> Ends:
        ends: dict[str, Ends] = {}
        waited_for: set[str] = set()
        stages = group_of(self._definition, parent).stages
        for spec in stages:
            start = _union(ends[name] for name in spec.needs) if spec.needs else before
            ends[spec.name] = self._stage(parent, spec, start)
            waited_for.update(spec.needs)
        return _union(ends[spec.name] for spec in stages if spec.name not in waited_for)

    def _stage(self, parent: Place | None, spec: StageSpec, before: Ends) -> Ends:
        key = scope_of(parent) + spec.name
        if self._nodes.get(key, PENDING).status in ("pending", "skipped"):  # who waits for it waits for what it needs
            return before
        if spec.for_each is None:
            return self._copy(place(parent, spec), before)
        joined, index = [], 0
        while node := self._nodes.get(f"{key}[{index}]"):
            ends = self._copy(place(parent, spec, index), before)
            if node.status == "completed":  # nobody waits for the calls of the others
                joined.append(ends)
            index += 1
        return _union(joined) if joined else before

    def _copy(self, first: Place, before: Ends) -> Ends:
        rounds = 1 if first.round is None else self._nodes.get(first.copy_key, PENDING).round + 1
        for number in range(rounds):
            at = place(first.parent, first.spec, first.index, number)
            before = self.group(at, before) if isinstance(at.spec.body, GroupBody) else self._leaf(at, before)
        return before

    def _leaf(self, at: Place, before: Ends) -> Ends:
        outcome = self._outputs.get(at.key)
        if outcome is None:
            return before
        usage = outcome.usage
        if isinstance(at.spec.body, LlmBody) and not (usage.prompt_tokens and usage.output_tokens):
            self.untold = True
        times = (outcome.queued_ms / 1000, outcome.run_ms / 1000)
        tokens = (usage.prompt_tokens, usage.output_tokens, usage.cached_tokens)
        self.calls.append(RecordedCall(at.spec.path, *tokens, before, *times))
        return (len(self.calls) - 1,)


def _union(several: Iterable[Ends]) -> Ends:
    return tuple(sorted({at for ends in several for at in ends}))
