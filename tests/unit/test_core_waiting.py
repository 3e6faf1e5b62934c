"""The core: requests that must wait for an instance or move to another, cancellation, messages that come too late."""

from dataclasses import replace

import pytest
from core_bench import START, TWO, Bench, instance

from common.events import CancelAsked, Completed, Due, Evacuated, Failed, Lost, Outcome, Submitted
from coordinator import core

ONE = "stages: {a: {prompt: p}}"
NOBODY = "no ready instance serves any model"


def test_without_an_instance_the_request_waits_and_the_user_is_told_once():
    bench = Bench(ONE, instances=())
    assert bench.submit().delays == [("a", 1000)]
    for _ in range(3):
        assert bench.wait().delays == [("a", 1000)]
    assert bench.told == ["stage_started a", "waiting a"]
    assert bench.events[1][1]["reason"] == NOBODY


def test_when_one_comes_it_goes_on():
    bench = Bench(ONE, instances=())
    bench.submit()
    bench.register(instance("late"))
    bench.wait()
    assert bench.of("a").instance == "late"
    bench.complete("a", "x")
    assert bench.output == {"a": "x"}


def test_at_the_deadline_waiting_has_an_end():
    bench = Bench(ONE, instances=(), slo_s=2.3)
    bench.submit()
    bench.wait()
    assert bench.wait().delays == [("a", 300)]
    bench.wait()
    assert bench.now == START + 2300
    assert bench.error == ("a", f"{NOBODY}, and the deadline has passed")


def test_a_late_workflow_waits_out_an_instance_that_is_started_again():
    bench = Bench(ONE, slo_s=5, patience_ms=2500, packed=True)
    bench.submit()
    bench.now += 10_000
    bench.register()
    assert bench.evacuate("a").delays == [("a", 1000)]
    assert bench.wait().delays == [("a", 1000)]
    bench.register(*TWO)
    bench.wait()
    assert bench.queued == ["a"]
    bench.register()
    bench.evacuate("a")  # the patience begins anew
    assert [bench.wait().delays for _ in range(2)] == [[("a", 1000)], [("a", 500)]]
    bench.wait()
    assert bench.error == ("a", f"{NOBODY}, and the deadline has passed")


def test_the_user_is_told_again_when_it_waits_a_second_time():
    bench = Bench(ONE)
    bench.submit()
    bench.register()
    bench.evacuate("a")
    bench.register(*TWO)
    bench.wait()
    bench.register()
    bench.evacuate("a")
    assert bench.told == ["stage_started a", "waiting a", "waiting a"]


def test_waiting_after_a_failed_attempt_is_told():
    bench = Bench(ONE)
    bench.submit()
    bench.fail("a")
    bench.register()
    bench.wait()
    bench.wait()
    assert bench.told == ["stage_started a", "waiting a"]
    assert bench.workflow.nodes["a"].attempt == 1


def test_an_instance_that_drains_counts_as_none():
    bench = Bench(ONE, instances=(instance("one", status="draining"), instance("two", status="lost")))
    bench.submit()
    assert bench.queued == []


@pytest.mark.parametrize(
    ("stage", "missing"),
    [
        ({"model": "big"}, "model big"),
        ({"requires": ["gpu", "eu"]}, "any model with labels eu, gpu"),
        ({"json_schema": {"type": "object"}}, "any model and JSON-schema output"),
    ],
)
def test_it_says_what_nobody_serves(stage, missing):
    bench = Bench({"stages": {"a": {"prompt": "p", **stage}}}, instances=(instance("plain", features=frozenset()),))
    bench.submit()
    assert bench.events[-1] == ("waiting", {"stage": "a", "reason": f"no ready instance serves {missing}"})


def test_a_prompt_that_fits_nowhere_fails_at_once():
    bench = Bench("stages: {a: {prompt: '{{ inputs.text }}'}}", {"text": "x" * 400_000})
    bench.submit()
    assert bench.error == ("a", "the prompt has about 100000 tokens; no instance takes more than 32767")


def test_a_long_prompt_goes_where_it_fits():
    roomy = replace(TWO[1].profile, context_tokens=200_000, kv_tokens=200_000)
    wide = instance("wide", profile=roomy)
    bench = Bench("stages: {a: {prompt: '{{ inputs.text }}'}}", {"text": "x" * 400_000}, instances=(*TWO, wide))
    bench.submit()
    assert bench.of("a").instance == "wide"


def sized(name, context_tokens, **changes):
    return instance(name, profile=replace(TWO[0].profile, context_tokens=context_tokens), **changes)


def test_a_prompt_too_long_for_its_engine_goes_to_one_with_more_room():
    """The estimate was too low; the engine counts. No attempt is lost by it."""
    bench = Bench(ONE, instances=(sized("small", 1_000), sized("middle", 2_000), sized("large", 4_000)), packed=True)
    bench.submit()
    request = bench.of("a").request
    bench.fail("a", "the prompt has 2500 tokens; this engine takes 999 at most", retryable=False, tokens=2_500)
    assert bench.of("a").instance == "large"
    assert (bench.of("a").request, bench.of("a").prompt_tokens) == (request, 2_500)
    assert bench.workflow.nodes["a"].attempt == 0
    bench.complete("a")
    assert bench.status == "completed"


def test_a_prompt_counted_as_too_long_for_all_fails():
    bench = Bench(ONE, instances=(sized("small", 1_000), sized("large", 4_000)))
    bench.submit()
    bench.fail("a", "too long", retryable=False, tokens=5_000)
    assert bench.error == ("a", "the prompt has 5000 tokens; no instance takes more than 3999")


def test_a_prompt_refused_where_it_should_fit_fails():
    """The same count again: this engine has less room than it told."""
    bench = Bench(ONE, instances=(sized("only", 4_000),))
    bench.submit()
    bench.fail("a", "too long", retryable=False, tokens=3_000)
    bench.fail("a", "too long", retryable=False, tokens=3_000)
    assert bench.error == ("a", "too long")


@pytest.mark.parametrize("length", [4_000, 40_000])
def test_a_long_prompt_waits_for_an_instance_that_is_away(length):
    bench = Bench(
        "stages: {a: {prompt: '{{ inputs.text }}'}}",
        {"text": "x" * length},
        instances=(sized("small", 500), sized("large", 200_000, status="lost")),
    )
    bench.submit()
    if bench.queued:  # the estimate leaves a doubt, the engine none
        bench.fail("a", "too long", retryable=False, tokens=1_000)
    assert bench.queued == []
    assert bench.events[-1][0] == "waiting"
    assert "no ready instance takes more than 499" in bench.events[-1][1]["reason"]
    bench.register(sized("small", 500), sized("large", 200_000))
    bench.wait()
    assert bench.of("a").instance == "large"


def test_an_evacuated_request_is_routed_anew_under_its_id():
    bench = Bench(ONE)
    bench.submit()
    first = bench.of("a")
    other = [one for one in TWO if one.id != first.instance]
    bench.register(*other)
    (second,) = bench.evacuate("a").pushes
    assert (second.request, second.instance) == (first.request, other[0].id)
    assert bench.workflow.nodes["a"].attempt == 0
    assert bench.told == ["stage_started a"]


def test_an_evacuated_request_waits_when_there_is_nobody_else():
    bench = Bench(ONE)
    bench.submit()
    request = bench.of("a").request
    bench.register()
    assert bench.evacuate("a").delays == [("a", 1000)]
    bench.register(instance("new"))
    bench.wait()
    assert bench.of("a").request == request


def test_a_cancelled_workflow_drops_what_is_queued_delayed_and_waiting():
    bench = Bench("stages: {a: {prompt: p}, b: {prompt: p}, c: {prompt: p, model: none}}")
    bench.submit()
    bench.fail("b")
    requests = [push.request for push in bench.pushes]
    step = bench.cancel("changed my mind")
    assert sorted(step.drops) == requests
    assert (bench.status, bench.result["error"]) == ("cancelled", "changed my mind")
    assert bench.told[-1] == "cancelled"


def test_a_cancellation_before_the_start():
    bench = Bench(ONE)
    step = bench.post(CancelAsked("never mind"), Submitted())
    assert (bench.status, step.nodes, step.pushes) == ("cancelled", {}, [])


@pytest.mark.parametrize("first", ["complete", "fail", "cancel"])
def test_what_comes_after_the_end_in_the_same_step_is_ignored(first):
    bench = Bench(ONE)
    bench.submit()
    request = bench.of("a").request
    ways = {
        "complete": bench.completed("a", "x"),
        "fail": Failed(request, "a", "e", False),
        "cancel": CancelAsked("no"),
    }
    bench.post(ways[first], *ways.values(), Lost(request, "a", 3), Evacuated(request, "a"), Due("a"), Submitted())
    assert bench.status == {"complete": "completed", "fail": "failed", "cancel": "cancelled"}[first]
    assert bench.told[-1] == bench.status


TWICE = "stages: {a: {prompt: p}, b: {needs: [a], prompt: p}}"


def test_messages_that_nobody_waits_for_change_nothing():
    bench = Bench(TWICE)
    bench.submit()
    old = bench.of("a").request
    bench.complete("a", "x")
    outcome = Outcome("y")
    for event in (
        Completed(old, "a", outcome),
        Failed(old, "a", "e", False),
        Lost(old, "a", 3),
        Evacuated(old, "a"),
        Completed("other", "b", outcome),
        Failed("other", "b", "e", False),
        Evacuated("other", "b"),
        Due("b"),
        Due("nowhere"),
        Completed("other", "nowhere", outcome),
        Submitted(),
    ):
        step = bench.post(event)
        assert (step.nodes, step.pushes, step.delays, step.events, step.outcomes) == ({}, [], [], [], []), event
    bench.run()
    assert bench.output == {"b": "p"}


def test_a_delayed_request_waits_for_its_time_alone():
    bench = Bench(ONE)
    bench.submit()
    request = bench.of("a").request
    bench.fail("a")
    for event in (Evacuated(request, "a"), Completed(request, "a", Outcome("y")), Failed(request, "a", "e", True)):
        assert bench.post(event).nodes == {}
    bench.wait()
    assert bench.queued == ["a"]


@pytest.mark.parametrize("event", ["evacuated", "due"])
def test_the_same_twice_in_one_step_routes_once(event):
    bench = Bench(ONE)
    bench.submit()
    happened = Evacuated(bench.of("a").request, "a")
    if event == "due":
        bench.fail("a")
        bench.now += 500
        happened = Due("a")
    assert len(bench.post(happened, happened).pushes) == 1


def test_evacuated_and_retried_and_completed_in_one_step():
    bench = Bench("stages: {a: {for_each: [1, 2, 3], prompt: p}}")
    bench.submit()
    bench.fail("a[1]")
    bench.now += 500
    step = bench.post(Evacuated(bench.of("a[0]").request, "a[0]"), Due("a[1]"), bench.completed("a[2]", "x"))
    assert [push.node for push in step.pushes] == ["a[0]", "a[1]"]


@pytest.mark.parametrize(
    "stage", [{"prompt": "{{ inputs.text }}"}, {"tool": "t", "args": {"rows": [{"text": "{{ inputs.text }}"}, 1]}}]
)
def test_more_than_one_step_may_carry_follows_in_the_next_ones(monkeypatch, stage):
    monkeypatch.setattr(core, "STEP_CHARACTERS", 2500)
    bench = Bench({"stages": {"a": {"for_each": "range(8) | list", **stage}}}, {"text": "x" * 1000})
    step = bench.submit()
    assert bench.queued == ["a[0]", "a[1]", "a[2]"]
    assert step.delays == [(f"a[{index}]", 0) for index in range(3, 8)]
    step = bench.post(*map(Due, bench.delays))
    assert [push.node for push in step.pushes] == ["a[3]", "a[4]", "a[5]"]
    assert "waiting" not in "".join(bench.told)
    assert len(bench.run().output["a"]) == 8
