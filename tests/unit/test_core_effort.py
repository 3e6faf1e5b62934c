"""The core: what takes much effort is done in several steps, none of them long, and it comes to the same."""

import pytest
from core_bench import Bench
from core_definitions import documents
from hypothesis import given, settings
from hypothesis import strategies as st

from common.events import Due
from coordinator import core
from coordinator.language.effort import EFFORT

COSTLY = "range(200) | list | sort | reverse | list | sum < 0"
"""Some effort, and false."""


@pytest.fixture
def steps(monkeypatch):
    """What each step took; each may take little."""
    monkeypatch.setattr(core, "STEP_EFFORT", 5_000)
    taken = []
    scope = core.Scope

    class Watched(scope):
        def __init__(self, *given):
            super().__init__(*given)
            taken.append(self)

    monkeypatch.setattr(core, "Scope", Watched)
    return lambda: [one.spent for one in taken]


def costly(stages=1, **keys):
    return {f"s{at}": {"tool": "t", "when": COSTLY, **keys} for at in range(stages)}


def check(steps, least):
    spent = steps()
    assert len(spent) >= least
    assert max(spent) < 5_000 + 1_700, "the last rendering of a step may go beyond by what it takes itself"


def test_branches_that_do_not_hold(steps):
    bench = Bench({"stages": {"g": {"for_each": "range(20) | list", "stages": costly(5)}}})
    bench.run()
    assert bench.output == {"g": [{f"s{at}": None for at in range(5)}] * 20}
    check(steps, 10)


def test_branches_outside_of_all_groups(steps):
    bench = Bench({"stages": costly(60)})
    step = bench.submit()
    (parked,) = step.delays
    assert bench.workflow.nodes[parked[0]].status == "pending"
    assert bench.run().output == {f"s{at}": None for at in range(60)}
    check(steps, 4)


def test_prompts(steps):
    bench = Bench({"stages": {"a": {"for_each": "range(60) | list", "prompt": f"{{{{ {COSTLY} }}}}"}}})
    bench.submit()
    assert 0 < len(bench.queued) < 60
    assert len(bench.run().output["a"]) == 60
    check(steps, 4)


def test_conditions_of_many_rounds_that_end_at_once(steps):
    stage = {"for_each": "range(60) | list", "tool": "t", "repeat": {"while": COSTLY, "max": 2}}
    bench = Bench({"stages": {"a": stage}})
    bench.submit()
    bench.post(*(bench.completed(node, "x") for node in bench.queued))
    assert bench.status == "running"
    assert {node.phase for key, node in bench.workflow.nodes.items() if "@" in key} == {"completed"}
    while bench.status == "running":
        bench.post(*map(Due, sorted(bench.delays)))
    assert bench.output == {"a": ["x"] * 60}
    check(steps, 4)


def test_what_is_put_off_ends_with_what_it_is_in(steps):
    inner = {"first": {"tool": "t"}, **costly(40, needs=["first"])}
    group = {"for_each": "[1, 2]", "join": "first_success", "stages": inner}
    bench = Bench({"stages": {"g": group}})
    bench.submit()
    bench.complete("g[0].first")
    (parked,) = bench.delays
    bench.complete("g[1].first")
    while bench.status == "running":
        bench.post(Due(next(reversed(bench.delays))))  # of the copy that was later: the other one is not looked at
    assert bench.workflow.nodes[parked].status == "cancelled"
    assert bench.workflow.nodes["g[0]"].status == "cancelled"


@pytest.mark.parametrize("end", ["cancel", "fail"])
def test_what_is_put_off_ends_with_its_workflow(steps, end):
    stage = {"for_each": "range(60) | list", "tool": "t", "repeat": {"while": COSTLY, "max": 2}}
    inner = {"needs": ["c"], "stages": costly(60)}
    bench = Bench({"stages": {"a": stage, "z": {"tool": "t"}, "c": {"tool": "t"}, "g": inner}})
    bench.submit()
    bench.complete("c")
    bench.post(*(bench.completed(node, "x") for node in bench.queued if node != "z"))
    assert {key[0] for key in bench.delays} == {"a", "g"}
    if end == "cancel":
        bench.cancel()
    else:
        bench.fail("z", retryable=False)
    assert bench.status == f"{end}led".replace("faill", "fail")


def test_a_rendering_that_fails_counts_too(steps):
    endless = "{% for a in range(1000) %}{% for b in range(1000) %}{{ a }}{% endfor %}{% endfor %}"
    bench = Bench({"stages": {name: {"prompt": endless, "optional": True} for name in "abc"}})
    bench.run()
    assert bench.output == {"a": None, "b": None, "c": None}
    assert [spent > EFFORT for spent in steps()] == [True] * 3


@settings(max_examples=60, deadline=None)
@given(documents(), st.booleans())
def test_in_small_steps_it_comes_to_the_same(document, flag):
    before = core.STEP_EFFORT
    whole = Bench(dict(document), {"flag": flag}).run()
    try:
        core.STEP_EFFORT = 1
        parts = Bench(dict(document), {"flag": flag}, packed=True).run()
    finally:
        core.STEP_EFFORT = before
    assert (parts.status, parts.result.get("output")) == (whole.status, whole.result.get("output"))


@settings(max_examples=60, deadline=None)
@given(documents(joins=True), st.booleans())
def test_in_small_steps_all_ends_also_where_not_all_must_complete(document, flag):
    before = core.STEP_EFFORT
    try:
        core.STEP_EFFORT = 1
        Bench(dict(document), {"flag": flag}, packed=True).run()
    finally:
        core.STEP_EFFORT = before
