"""The core: copies of which not all must complete, and stages whose failure their workflow survives."""

import pytest
from core_bench import Bench, asked
from hypothesis import given
from hypothesis import strategies as st

from common.events import Completed, Due, Evacuated, Failed, Outcome


def race(join, copies=3, **stage):
    """Copies a[0], a[1] ... and a stage that shows what came of them."""
    each = {"prompt": "p", "retries": 0, "for_each": list(range(copies)), "join": join}
    after = {"needs": ["a"], "prompt": "{{ a.status }} {{ a.output }}"}
    return Bench({"stages": {"a": each | stage, "after": after}})


def statuses(bench, *keys):
    return [bench.workflow.nodes[key].status for key in keys]


COPIES = ("a", "a[0]", "a[1]", "a[2]")


# -- the first that completes


def test_the_first_copy_to_complete_gives_the_output_and_the_others_are_dropped():
    bench = race("first_success")
    bench.submit()
    losers = [bench.of("a[0]").request, bench.of("a[2]").request]
    step = bench.complete("a[1]", "won")
    assert step.drops == losers
    assert statuses(bench, *COPIES) == ["completed", "cancelled", "completed", "cancelled"]
    assert bench.workflow.nodes["a[0]"].phase == "cancelled"
    assert bench.calls()["after"] == "completed won"
    assert bench.told == ["stage_started a", "stage_completed a", "stage_started after"]


def test_what_comes_of_a_loser_later_is_ignored():
    bench = race("first_success")
    bench.submit()
    loser = bench.of("a[0]")
    bench.complete("a[1]", "won")
    late = [Completed(loser.request, "a[0]", Outcome("late")), Failed(loser.request, "a[0]", "late", True), Due("a[2]")]
    step = bench.post(*late)
    assert (step.nodes, step.pushes, step.delays, step.drops) == ({}, [], [], [])


def test_of_two_that_complete_in_one_step_the_first_wins():
    bench = race("first_success")
    bench.submit()
    step = bench.post(bench.completed("a[2]", "two"), bench.completed("a[0]", "zero"))
    assert [asked(push) for push in step.pushes] == ["completed two"]


def test_a_copy_that_fails_leaves_the_others_running():
    bench = race("first_success")
    bench.submit()
    request = bench.of("a[0]").request
    step = bench.fail("a[0]", "broken", retryable=False)
    assert (step.drops, step.events) == ([request], [])
    assert bench.queued == ["a[1]", "a[2]"]
    assert (bench.workflow.nodes["a[0]"].phase, bench.workflow.nodes["a[0]"].error) == ("failed", "broken")
    bench.complete("a[2]", "last")
    assert bench.calls()["after"] == "completed last"


def test_when_all_copies_have_failed_so_has_the_workflow_with_the_last_error():
    bench = race("first_success")
    bench.submit()
    for index in (1, 0, 2):
        bench.fail(f"a[{index}]", f"error {index}", retryable=False)
    assert bench.error == ("a[2]", "error 2")
    assert bench.told == ["stage_started a", "failed"]


def test_the_delays_of_losers_end():
    inner = "{x: {prompt: p, retries: 1}, y: {prompt: q}}"
    bench = Bench(f"stages: {{a: {{for_each: [1, 2], join: first_success, stages: {inner}}}}}")
    bench.submit()
    bench.complete("a[0].y")
    bench.fail("a[1].x")
    assert list(bench.delays) == ["a[1].x"]
    delayed = bench.workflow.nodes["a[1].x"].request
    step = bench.complete("a[0].x")
    assert step.recalls == ["a[1].x"]
    assert delayed in step.drops
    assert bench.status == "completed"


def test_a_loser_that_was_to_be_routed_anew_in_the_same_step_is_not():
    bench = race("first_success")
    bench.submit()
    moved = bench.of("a[0]")
    step = bench.post(Evacuated(moved.request, "a[0]"), bench.completed("a[1]", "won"))
    assert [push.node for push in step.pushes] == ["after"]
    assert moved.request in step.drops


# -- a quorum


@given(st.permutations(range(4)))
def test_a_quorum_gives_the_outputs_in_the_order_of_the_copies(order):
    bench = race({"quorum": 2}, copies=4)
    bench.submit()
    for index in order[:2]:
        bench.complete(f"a[{index}]", index)
    assert bench.calls()["after"] == f"completed {sorted(order[:2])}"
    assert bench.queued == ["after"]


def test_a_quorum_bears_as_many_failures_as_leave_enough_copies():
    bench = race({"quorum": 2}, copies=4)
    bench.submit()
    bench.fail("a[0]", "e0", retryable=False)
    bench.complete("a[1]", "x")
    bench.fail("a[2]", "e2", retryable=False)
    assert bench.status == "running"
    bench.fail("a[3]", "e3", retryable=False)
    assert bench.error == ("a[3]", "e3")


@pytest.mark.parametrize("join", ["first_success", {"quorum": 3}])
def test_too_few_elements_fail_the_stage(join):
    document = {"for_each": "inputs.few", "prompt": "p", "join": join}
    bench = Bench({"stages": {"a": document}}, {"few": []})
    bench.submit()
    wanted = 1 if join == "first_success" else 3
    assert bench.error == ("a", f"join wants {wanted} copies to complete, and for_each has 0 elements")


def test_a_quorum_of_all_is_like_all():
    bench = race({"quorum": 3}).run(lambda push: push.node)
    assert bench.calls()["after"] == 'completed ["a[0]", "a[1]", "a[2]"]'


# -- copies that are more than a request

GROUPS = """
stages:
  a:
    for_each: [1, 2, 3]
    join: first_success
    stages:
      x: {for_each: [1, 2], prompt: x}
      y: {needs: [x], repeat: {while: output == "again", max: 3}, prompt: y, retries: 0}
  after: {needs: [a], prompt: "{{ a.output.y }}"}
"""


def test_all_that_runs_in_a_losing_copy_is_dropped():
    bench = Bench(GROUPS)
    bench.submit()
    for node in ("a[0].x[0]", "a[0].x[1]", "a[1].x[0]"):
        bench.complete(node)
    bench.complete("a[0].y@0", "again")
    losers = [bench.of(node).request for node in ("a[1].x[1]", "a[2].x[0]", "a[2].x[1]")]
    step = bench.complete("a[0].y@1", "done")
    assert step.drops == losers
    assert bench.queued == ["after"]
    assert bench.calls()["after"] == "done"
    assert statuses(bench, "a[1]", "a[1].x", "a[1].x[0]", "a[1].x[1]") == [
        "cancelled", "cancelled", "completed", "cancelled",
    ]  # fmt: skip


def test_a_failure_inside_a_copy_fails_that_copy_alone_and_drops_the_rest_of_it():
    bench = Bench(GROUPS)
    bench.submit()
    rest = bench.of("a[1].x[1]").request
    failing = bench.of("a[1].x[0]").request
    step = bench.fail("a[1].x[0]", "broken", retryable=False)
    assert step.drops == [failing, rest]
    assert statuses(bench, "a", "a[1]", "a[1].x", "a[1].x[0]", "a[1].x[1]") == [
        "running", "failed", "failed", "failed", "cancelled",
    ]  # fmt: skip
    bench.run(lambda push: push.node)
    assert bench.output == {"after": "after"}
    assert bench.calls()["after"] == "a[0].y@0"


def test_copies_that_end_without_a_request_win_at_once():
    document = "stages: {a: {for_each: [1, 2], join: first_success, stages: {x: {when: false, prompt: p}}}}"
    bench = Bench(document)
    bench.submit()
    assert bench.output == {"a": {"x": None}}
    assert statuses(bench, "a[0]", "a[1]") == ["completed", "cancelled"]


def test_a_template_that_fails_in_one_copy_fails_that_copy():
    document = "stages: {a: {for_each: inputs.all, join: first_success, prompt: '{{ item.text }}'}}"
    bench = Bench(document, {"all": [{}, {"text": "b"}, {}]})
    assert len(bench.submit().pushes) == 1
    assert bench.run().output == {"a": "b"}


def test_a_copy_that_fails_takes_back_what_the_same_step_would_have_started_in_it():
    inner = "{x: {prompt: p}, nobody: {prompt: q, model: none}, bad: {prompt: '{{ item.text }}'}}"
    document = f"stages: {{a: {{for_each: inputs.all, join: first_success, stages: {inner}}}}}"
    bench = Bench(document, {"all": [{}, {"text": "b"}]})
    step = bench.submit()
    assert [push.node for push in step.pushes] == ["a[1].x", "a[1].bad"]
    assert [node for node, _ in step.delays] == ["a[1].nobody"]


def test_a_condition_that_fails_in_one_copy_starts_nothing_else_in_it():
    inner = "{x: {when: item.go, prompt: p}, y: {prompt: q}}"
    bench = Bench(
        f"stages: {{a: {{for_each: inputs.all, join: first_success, stages: {inner}}}}}", {"all": [{}, {"go": True}]}
    )
    assert [push.node for push in bench.submit().pushes] == ["a[1].x", "a[1].y"]


# -- optional stages


def test_an_optional_stage_that_fails_is_told_and_its_workflow_goes_on():
    after = "{needs: [a], prompt: '{{ a.status }} {{ a.output }}'}"
    bench = Bench(f"stages: {{a: {{prompt: p, optional: true, retries: 0}}, after: {after}}}")
    bench.submit()
    request = bench.of("a").request
    step = bench.fail("a", "broken")
    assert step.drops == [request]
    assert step.events[0] == ("stage_completed", {"stage": "a", "status": "failed", "error": "broken (attempt 1 of 1)"})
    assert bench.calls()["after"] == "failed null"
    assert bench.run().status == "completed"


def test_an_optional_stage_is_tried_again_like_any_other():
    bench = Bench("stages: {a: {prompt: p, optional: true, retries: 1}}")
    bench.submit()
    bench.fail("a")
    assert bench.status == "running"
    bench.wait()
    bench.fail("a")
    assert bench.output == {"a": None}


def test_a_poison_request_of_an_optional_stage_fails_it_alone():
    bench = Bench("stages: {a: {prompt: p, optional: true}, b: {prompt: q}}")
    bench.submit()
    bench.lose("a", 3)
    assert bench.run().output == {"a": None, "b": "q"}


def test_a_failure_inside_an_optional_group_drops_the_whole_group():
    document = """
stages:
  g: {optional: true, stages: {x: {prompt: x}, y: {for_each: [1, 2], prompt: y}, z: {needs: [x], prompt: z}}}
  h: {needs: [g], prompt: "{{ g.status }}"}
"""
    bench = Bench(document)
    bench.submit()
    live = [push.request for push in bench.pushes]
    step = bench.fail("g.y[1]", "broken", retryable=False)
    assert sorted(step.drops) == live
    assert statuses(bench, "g", "g.x", "g.y", "g.y[0]", "g.y[1]") == [
        "failed", "cancelled", "failed", "cancelled", "failed",
    ]  # fmt: skip
    assert bench.queued == ["h"]
    assert bench.calls()["h"] == "failed"


def test_the_innermost_that_can_bear_a_failure_does():
    document = """
stages:
  g: {optional: true, stages: {x: {optional: true, prompt: x, retries: 0}, y: {needs: [x], prompt: "{{ x.status }}"}}}
"""
    bench = Bench(document)
    bench.submit()
    bench.fail("g.x")
    assert bench.queued == ["g.y"]
    assert bench.run().output == {"g": {"y": "failed"}}


def test_an_optional_join_that_has_too_few_left_fails_alone():
    bench = race({"quorum": 2}, optional=True)
    bench.submit()
    bench.fail("a[0]", "e0", retryable=False)
    dropped = bench.of("a[2]").request
    step = bench.fail("a[1]", "e1", retryable=False)
    assert dropped in step.drops
    assert bench.calls()["after"] == "failed null"


def test_an_optional_stage_in_a_round_does_not_end_the_rounds():
    document = """
stages:
  g:
    repeat: {while: "x.status == 'failed'", max: 3}
    stages: {x: {optional: true, prompt: x, retries: 0}}
"""
    bench = Bench(document)
    bench.submit()
    bench.fail("g@0.x")
    assert bench.queued == ["g@1.x"]
    bench.complete("g@1.x", "at last")
    assert bench.output == {"g": {"x": "at last"}}


@pytest.mark.parametrize("stage", [{"when": "1 / 0"}, {"for_each": "1 / 0"}, {"prompt": "{{ inputs.x.y }}"}])
def test_a_template_of_an_optional_stage_that_fails_lets_the_next_start_in_the_same_step(stage):
    stages = {"a": {"prompt": "p", "optional": True, **stage}, "b": {"needs": ["a"], "prompt": "{{ a.status }}"}}
    bench = Bench({"stages": stages}, {"x": 1})
    assert [asked(push) for push in bench.submit().pushes] == ["failed"]


def test_an_optional_stage_that_nobody_can_serve_fails_at_the_deadline_and_the_rest_goes_on():
    document = "stages: {a: {prompt: p, model: none, optional: true}, b: {needs: [a], prompt: '{{ a.status }}'}}"
    bench = Bench(document, slo_s=3)
    bench.run()
    assert bench.output == {"b": "failed"}


def test_a_bound_of_the_workflow_ends_it_even_in_an_optional_stage(monkeypatch):
    monkeypatch.setattr("coordinator.core.MAX_REQUESTS", 2)
    bench = Bench("stages: {a: {optional: true, for_each: [1, 2, 3], prompt: p}}")
    bench.submit()
    assert bench.error[1] == "the workflow has more than 2 requests"
