"""The core on random workflows and random histories: what must hold of all of them (`Bench` checks every step)."""

import json
import random
from copy import deepcopy
from zlib import crc32

from core_bench import TWO, Bench, asked, definition
from core_definitions import documents
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from common.events import AmendAsked, CancelAsked, Completed, Due, Evacuated, Event, Failed, Lost
from common.model import Push
from common.states import ENDED
from coordinator import core
from coordinator.language.definition import needed
from coordinator.places import find, segments

PATIENCE = 300
"""Random actions before the rest is answered in order."""

AT_DEADLINE = ["continue", "cancel"]

anything = settings(suppress_health_check=[HealthCheck.too_slow], max_examples=100)
seeds = st.integers(0, 1 << 32)


def answer(push: Push) -> str:
    """Follows from what was asked, wherever and whenever it is answered."""
    return f"{push.node}:{crc32(json.dumps(asked(push)).encode())}"


class History:
    """A random history of one workflow. `gentle`: nothing happens that may fail it."""

    def __init__(self, bench: Bench, seed: int, *, gentle: bool) -> None:
        self.bench = bench
        self.rng = random.Random(seed)
        self.gentle = gentle
        slo = bench.workflow.head.slo
        self.slo_s = (slo.deadline_at - slo.arrival_at) / 1000
        self.past: list[Event] = []
        self.steps: list[core.Step] = []
        self.evacuated = 0
        self.failed = 0

    def run(self) -> "History":
        self.steps.append(self.bench.submit())
        for _ in range(PATIENCE):
            if self.bench.status != "running":
                return self
            self.cluster_changes()
            happened = self.events()
            self.past += happened
            self.steps.append(self.bench.post(*happened, *self.repeated()))
        self.bench.register(*TWO)
        self.bench.offer({"t"})
        self.bench.run(answer)
        return self

    def cluster_changes(self) -> None:
        if self.rng.random() < 0.1 and not self.gentle:
            self.bench.register(*self.rng.sample(TWO, self.rng.randint(0, 2)))
        elif self.rng.random() < 0.3:
            self.bench.register(*TWO)
        if self.rng.random() < 0.1 and not self.gentle:
            self.bench.offer(*self.rng.choice([[], [{"t"}], [{"t"}, {"t", "u"}], [{"t"}, {"u"}]]))

    def events(self) -> list[Event]:
        bench, rng = self.bench, self.rng
        if rng.random() < 0.01 and not self.gentle:
            return [CancelAsked("no")]
        if rng.random() < 0.05:
            return [bench.amendment(self.slo_s * rng.choice([0.9, 1, 10]))]
        if bench.delays and (not bench.queue or rng.random() < 0.3):
            bench.now = max(bench.now, min(bench.delays.values()))
            return [Due(node) for node, due_at in bench.delays.items() if due_at <= bench.now]
        pushes = rng.sample(list(bench.queue.values()), min(len(bench.queue), rng.randint(1, 3)))
        return [self.event(push) for push in pushes]

    def event(self, push: Push) -> Event:
        chance = self.rng.random()
        if chance < 0.8:
            return self.bench.completed(push.node, answer(push))
        if chance < 0.9:
            self.evacuated += 1
            return Evacuated(push.request, push.node)
        if self.gentle and self.bench.workflow.nodes[push.node].attempt >= self.retries(push):
            return self.bench.completed(push.node, answer(push))
        if chance < 0.99 or self.gentle:
            self.failed += 1
            return Failed(push.request, push.node, "e", True)
        return self.rng.choice([Lost(push.request, push.node, 3), Failed(push.request, push.node, "e", False)])

    def retries(self, push: Push) -> int:
        path = push.stage.partition("/")[2]
        return self.bench.workflow.definition.stages[path].retries

    def repeated(self) -> list[Event]:
        """Messages once more, of requests that nobody waits for any longer."""
        answered = {event.request for event in self.past if isinstance(event, Completed)}
        others = Due | CancelAsked | AmendAsked
        stale = [event for event in self.past if not isinstance(event, others) and event.request in answered]
        return stale if self.rng.random() < 0.5 else []


@anything
@given(
    documents() | documents(joins=True), st.booleans(), seeds, st.sampled_from([60, 600]), st.sampled_from(AT_DEADLINE)
)
def test_every_history_ends_once_and_leaves_nothing(document, flag, seed, slo_s, on_deadline):
    bench = Bench(document, {"flag": flag}, slo_s=slo_s, on_deadline=on_deadline)
    History(bench, seed, gentle=False).run()
    assert bench.status in ("completed", "failed", "cancelled")
    nodes = bench.workflow.nodes
    requests = {node.request for node in nodes.values() if node.request}
    assert len(requests) == sum(1 for node in nodes.values() if node.request)
    if bench.status == "completed":
        assert all(node.status in ENDED for node in nodes.values())
        assert {push.request for push in bench.pushes} == requests


@settings(anything, max_examples=50)
@given(documents(joins=True), st.booleans(), seeds)
def test_as_many_copies_complete_as_their_join_wants(document, flag, seed):
    bench = Bench(document, {"flag": flag}, slo_s=600)
    History(bench, seed, gentle=False).run()
    nodes = bench.workflow.nodes
    for key, node in nodes.items():
        spec = find(bench.workflow.definition, key).spec
        if spec.for_each is None or segments(key)[-1] != (spec.name, None, None):
            continue
        copies = [nodes[f"{key}[{index}]"].status for index in range(1000) if f"{key}[{index}]" in nodes]
        completed, wanted = copies.count("completed"), needed(spec.join, len(copies))
        assert completed == wanted if node.status == "completed" else completed < max(wanted, 1)


@anything
@given(documents(), st.booleans(), seeds)
def test_order_retries_moves_and_repeated_messages_do_not_change_the_result(document, flag, seed):
    plain = Bench(document, {"flag": flag}, slo_s=600).run(answer)
    wild = Bench(plain.workflow.definition, {"flag": flag}, slo_s=600)
    history = History(wild, seed, gentle=True).run()
    assert wild.output == plain.output
    assert wild.calls() == plain.calls()
    assert len(plain.pushes) == len(plain.calls())
    assert len(wild.pushes) == len(plain.pushes) + history.evacuated + history.failed


@settings(anything, max_examples=50)
@given(
    documents() | documents(joins=True) | documents(joins=True, hints=True), st.booleans(), seeds,
    st.sampled_from([20, 600]),
)  # fmt: skip
def test_what_is_kept_as_bytes_goes_on_the_same(document, flag, seed, slo_s):
    compiled = definition(document)
    kept, again, packed = (
        History(Bench(compiled, {"flag": flag}, slo_s=slo_s, packed=packed), seed, gentle=False).run()
        for packed in (False, False, True)
    )
    assert kept.steps == again.steps
    assert effects(kept) == effects(packed)


def effects(history: History) -> list[tuple[object, ...]]:
    """All of the steps but the state, whose caches may differ."""
    names = [name for name in core.Step.__slots__ if name != "workflow"]
    return [tuple(getattr(step, name) for name in names) for step in history.steps]


# -- optional stages that are dropped


def dropped(bench: Bench) -> list[str]:
    return [data["stage"] for _, data in bench.events if data.get("error") == core.DROPPED]


def started(bench: Bench) -> list[str]:
    return [data["stage"] for kind, data in bench.events if kind == "stage_started"]


@settings(anything, max_examples=25)
@given(documents(joins=True, hints=True), st.booleans(), seeds)
def test_with_time_enough_nothing_is_dropped(document, flag, seed):
    bench = Bench(document, {"flag": flag}, slo_s=1e6)
    History(bench, seed, gentle=False).run()
    assert dropped(bench) == []


@settings(anything, max_examples=25)
@given(documents(joins=True, hints=True), st.booleans(), seeds, st.integers(1, 60))
def test_what_is_dropped_was_optional_and_nothing_of_it_has_started(document, flag, seed, slo_s):
    bench = Bench(document, {"flag": flag}, slo_s=slo_s)
    History(bench, seed, gentle=False).run()
    for key in dropped(bench):
        assert find(bench.workflow.definition, key).spec.optional
        assert bench.workflow.nodes[key].status == "skipped"
        assert not [other for other in bench.workflow.nodes if other.startswith((f"{key}.", f"{key}[", f"{key}@"))]
        assert key not in started(bench)


@settings(anything, max_examples=50)
@given(documents(joins=True, hints=True), st.booleans(), st.integers(1, 60))
def test_what_is_dropped_leaves_what_a_when_that_does_not_hold_would(document, flag, slo_s):
    pressed = Bench(document, {"flag": flag}, slo_s=slo_s).run(answer)
    paths = {find(pressed.workflow.definition, key).spec.path for key in dropped(pressed)}
    assume(paths.isdisjoint(find(pressed.workflow.definition, key).spec.path for key in started(pressed)))
    plain = Bench(without(document, paths), {"flag": flag}, slo_s=1e6).run(answer)
    assert (pressed.told, pressed.calls(), pressed.status) == (plain.told, plain.calls(), plain.status)
    assert pressed.result.get("output") == plain.result.get("output")


def without(document: dict, paths: set[str]) -> dict:
    """The same with these stages never taken."""
    changed = deepcopy(document)
    for path in paths:
        stage: dict = changed
        for name in path.split("."):
            stage = stage["stages"][name]
        stage["when"] = "false"
    return changed
