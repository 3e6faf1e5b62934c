"""The core: optional stages are dropped when their workflow would be late with them, and only then."""

from core_bench import START, Bench

from common.events import Outcome
from common.model import Usage
from coordinator.core import DROPPED


def tool(seconds, **keys):
    return {"tool": "t", "expect": {"seconds": seconds}, **keys}


ANSWER = {"tool": "t", "expect": {"seconds": 3}, "args": {"text": "{{ extra.status }} {{ extra.output }}"}}


def document(**extra):
    """a, then the extra stage of 10 s, then an answer of 3 s that shows what came of it."""
    return {"stages": {"a": tool(1), "extra": tool(10, needs=["a"], **extra), "end": {**ANSWER, "needs": ["extra"]}}}


def after(seconds, bench):
    """So long after the arrival stage a is done."""
    bench.submit()
    bench.now = START + round(1000 * seconds)
    bench.complete("a")
    return bench


def test_what_would_make_its_workflow_late_is_dropped():
    bench = after(7.001, Bench(document(optional=True), slo_s=20))
    assert bench.told == ["stage_started a", "stage_completed a", "stage_completed extra", "stage_started end"]
    assert bench.events[2][1] == {"stage": "extra", "status": "skipped", "error": DROPPED}
    assert (bench.workflow.nodes["extra"].status, bench.workflow.nodes["extra"].error) == ("skipped", DROPPED)
    assert bench.calls()["end"] == {"text": "skipped null"}
    bench.complete("end", "done")
    assert (bench.output, bench.result["slo_met"]) == ({"end": "done"}, True)


def test_what_can_just_be_done_is_done():
    bench = after(7, Bench(document(optional=True), slo_s=20))
    assert bench.queued == ["extra"]


def test_what_is_not_optional_is_done_however_late():
    assert after(19, Bench(document(), slo_s=20)).queued == ["extra"]


def test_what_does_not_hold_is_skipped_as_ever_and_what_is_dropped_has_held():
    bench = Bench(document(optional=True, when="a.output"), slo_s=20)
    bench.submit()
    bench.now = START + 10_000
    step = bench.complete("a", False)
    assert bench.events[2][1] == {"stage": "extra", "status": "skipped"}
    assert [choice.held for choice in step.choices] == [False]
    bench = Bench(document(optional=True, when="a.output"), slo_s=20)
    bench.submit()
    bench.now = START + 10_000
    step = bench.complete("a", True)
    assert bench.events[2][1]["error"] == DROPPED
    assert [choice.held for choice in step.choices] == [True]


def test_of_two_in_a_row_the_first_does_not_make_room_for_the_second():
    stages = {"a": tool(1), "b": tool(5, needs=["a"], optional=True), "c": tool(5, needs=["b"], optional=True)}
    bench = after(2, Bench({"stages": stages}, slo_s=9))
    assert bench.queued == ["b"]
    bench.now += 3000
    bench.complete("b", "x")
    assert bench.output == {"c": None}
    assert bench.events[-2][1]["error"] == DROPPED


def test_a_longer_branch_beside_it_is_no_reason():
    stages = {"long": tool(100), "short": tool(2, optional=True)}
    bench = Bench({"stages": stages}, slo_s=20)
    bench.submit()
    assert bench.queued == ["long", "short"]


def test_after_the_deadline_nothing_optional_starts():
    stages = {"a": tool(1), "b": {"needs": ["a"], "prompt": "p", "optional": True}}
    assert after(20.001, Bench({"stages": stages}, slo_s=20)).output == {"b": None}


def test_what_has_never_run_is_tried_and_then_judged_by_what_it_took():
    stages = {"a": tool(1), "b": {"needs": ["a"], "prompt": "p", "optional": True}}
    bench = after(19, Bench({"stages": stages}, slo_s=20))
    assert bench.queued == ["b"]
    known = Bench(bench.workflow.definition, slo_s=20)
    seen = Outcome("x", usage=Usage(10, 1000), prompt_chars=40)
    known.estimates.learn("flow", known.workflow.definition.stages["b"], seen)
    assert after(19, known).output == {"b": None}


def test_what_no_instance_can_take_now_is_not_judged():
    stage = {"needs": ["a"], "prompt": "p", "optional": True, "expect": {"output_tokens": 100_000}}
    bench = after(1, Bench({"stages": {"a": tool(1), "b": stage}}, slo_s=20, instances=()))
    assert list(bench.delays) == ["b"]
    bench = after(1, Bench({"stages": {"a": tool(1), "b": stage}}, slo_s=20))
    assert bench.output == {"b": None}


def test_nothing_of_what_is_dropped_is_looked_at():
    stages = {"a": tool(1), "b": tool(10, needs=["a"], optional=True, for_each="1 / 0")}
    bench = after(11, Bench({"stages": stages}, slo_s=20))
    assert bench.events[2][1] == {"stage": "b", "status": "skipped", "error": DROPPED}
    assert bench.output == {"b": None}


def test_a_group_is_dropped_as_a_whole_and_counts_by_its_critical_path():
    inner = {"x": tool(4), "y": tool(4), "z": tool(3, needs=["x", "y"]), "more": tool(50, needs=["z"], optional=True)}
    stages = {"a": tool(1), "g": {"needs": ["a"], "optional": True, "stages": inner}}
    bench = after(13, Bench({"stages": stages}, slo_s=20))
    assert bench.queued == ["g.x", "g.y"]
    bench = after(13.001, Bench({"stages": stages}, slo_s=20))
    assert bench.output == {"g": None}
    assert set(bench.workflow.nodes) == {"a", "g"}


def test_in_each_copy_and_round_it_is_judged_anew():
    inner = {"x": tool(2), "extra": tool(4, needs=["x"], optional=True), "y": tool(1, needs=["extra"])}
    group = {"for_each": "[1, 2]", "stages": inner}
    bench = Bench({"stages": {"g": group}}, slo_s=10)
    bench.submit()
    bench.now = START + 5000
    bench.complete("g[0].x")
    bench.now = START + 5001
    bench.complete("g[1].x")
    assert bench.queued == ["g[0].extra", "g[1].y"]


def test_what_has_started_is_not_dropped_any_more():
    bench = after(7, Bench(document(optional=True), slo_s=20))
    bench.now = START + 30_000
    bench.evacuate("extra")
    bench.fail("extra")
    bench.wait()
    assert bench.queued == ["extra"]
