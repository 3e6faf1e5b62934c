"""The core: attempts that fail and are made again, failures that end a workflow, and bounds."""

import pytest
from core_bench import Bench

from common.events import Failed
from coordinator import core
from coordinator.core import Step, broken
from coordinator.state import Workflow

ONE = "stages: {a: {prompt: p, retries: 3}}"


def test_retries_come_after_growing_delays_and_keep_their_request():
    bench = Bench("stages: {a: {prompt: p, retries: 10}}")
    bench.submit()
    request = bench.of("a").request
    delays = []
    for _ in range(10):
        delays += bench.fail("a").delays
        assert bench.queue == {}
        bench.wait()
        assert bench.of("a").request == request
    whole = (500, 1000, 2000, 4000, 8000, 16000, 30000, 30000, 30000, 30000)
    assert all(0.75 * ms <= delay <= 1.25 * ms for (_, delay), ms in zip(delays, whole, strict=True))
    assert len({delay for _, delay in delays[-4:]}) == 4


def test_what_failed_together_is_not_tried_again_together():
    bench = Bench("stages: {a: {for_each: range(200) | list, prompt: p, retries: 1}}")
    bench.submit()
    failed = [Failed(push.request, push.node, "no room", True) for push in bench.queue.values()]
    delays = [delay for _, delay in bench.post(*failed).delays]
    assert 375 <= min(delays) < 400
    assert 600 < max(delays) <= 625
    assert abs(sum(delays) / len(delays) - 500) < 25


def test_the_last_failure_ends_the_workflow_and_says_how_many_attempts_there_were():
    bench = Bench(ONE)
    bench.submit()
    for _ in range(3):
        bench.fail("a")
        bench.wait()
    step = bench.fail("a", "out of memory")
    assert bench.error == ("a", "out of memory (attempt 4 of 4)")
    assert bench.result["status"] == "failed"
    assert bench.result["slo_met"] is False
    assert step.drops == [bench.pushes[0].request]


def test_the_state_says_what_became_of_a_failed_request():
    bench = Bench(ONE)
    bench.submit()
    bench.fail("a", "no", retryable=False)
    node = bench.workflow.nodes["a"]
    assert (node.status, node.phase, node.error) == ("failed", "failed", "no")


def test_a_success_after_a_failure_counts():
    bench = Bench(ONE)
    bench.submit()
    bench.fail("a")
    bench.wait()
    bench.complete("a", "at last")
    assert bench.output == {"a": "at last"}


def test_what_must_fail_again_is_not_tried_again():
    bench = Bench(ONE)
    bench.submit()
    bench.fail("a", "no table x", retryable=False)
    assert bench.error == ("a", "no table x")
    assert bench.told == ["stage_started a", "failed"]


def test_without_retries_the_first_failure_is_the_last():
    bench = Bench("stages: {a: {prompt: p, retries: 0}}")
    bench.submit()
    bench.fail("a", "gone")
    assert bench.error == ("a", "gone (attempt 1 of 1)")


def test_every_round_has_its_own_attempts():
    bench = Bench("stages: {a: {repeat: {while: true, max: 2}, prompt: p, retries: 1}}")
    bench.submit()
    for round in (0, 1):
        bench.fail(f"a@{round}")
        bench.wait()
        bench.complete(f"a@{round}", round)
    assert bench.output == {"a": 1}


def test_one_copy_that_fails_for_good_drops_all_that_is_live():
    bench = Bench("stages: {a: {for_each: [1, 2, 3], prompt: p, retries: 1}, b: {prompt: p}, c: {prompt: p}}")
    bench.submit()
    bench.complete("c")
    bench.fail("a[0]")
    live = [push.request for push in bench.pushes if push.node != "c"]
    step = bench.fail("a[1]", retryable=False)
    assert bench.error[0] == "a[1]"
    assert sorted(step.drops) == sorted(live)


def test_a_request_lost_too_often_fails_its_workflow():
    bench = Bench(ONE)
    bench.submit()
    bench.lose("a", 3)
    assert bench.error == ("a", "its worker or engine was lost 3 times; see the dead letters")


BAD = "a.output.missing.key"
BAD_TEXT = "{{ a.output.missing.key }}"


@pytest.mark.parametrize(
    ("stage", "place"),
    [
        ({"prompt": BAD_TEXT}, "prompt"),
        ({"messages": [{"role": "user", "content": BAD_TEXT}]}, "messages.0.content"),
        ({"prompt": "p", "when": BAD}, "when"),
        ({"prompt": "p", "for_each": BAD}, "for_each"),
        ({"prompt": "p", "for_each": "a.output"}, "for_each"),
        ({"tool": "t", "args": {"x": BAD_TEXT}}, "args.x"),
        ({"prompt": "p", "repeat": {"while": BAD, "max": 2}}, "repeat.while"),
        ({"stages": {"c": {"prompt": "p"}}, "output": BAD}, "output"),
    ],
)
def test_a_template_that_fails_fails_its_stage_and_says_where(stage, place):
    document = {"stages": {"a": {"prompt": "p"}, "b": {"needs": ["a"], **stage}, "d": {"needs": ["b"], "prompt": "p"}}}
    bench = Bench(document).run(lambda push: "text")
    where, why = bench.error
    assert where.partition("@")[0] == "b"
    assert why.startswith(f"stages.b.{place}: ")


def test_an_output_that_fails_fails_the_workflow():
    bench = Bench("{stages: {a: {prompt: p}}, output: a.output.missing}").run(lambda push: {})
    where, why = bench.error
    assert where == "output"
    assert why.startswith("output: there is no key 'missing'")


def test_one_failure_is_enough_when_several_stages_start_together():
    bench = Bench("stages: {a: {when: 1 / 0, prompt: p}, b: {prompt: p}, c: {when: 1 / 0, prompt: p}}")
    bench.submit()
    assert bench.error[0] == "a"
    assert bench.told == ["failed"]


def test_a_template_that_fails_takes_back_what_the_same_step_would_have_pushed():
    bench = Bench("stages: {a: {prompt: p}, b: {prompt: '{{ inputs.x.y }}'}}", {"x": 1})
    step = bench.submit()
    assert bench.error[0] == "b"
    assert step.pushes == []


def test_a_workflow_has_only_so_many_requests(monkeypatch):
    monkeypatch.setattr(core, "MAX_REQUESTS", 5)
    bench = Bench("stages: {a: {repeat: {while: true, max: 9}, prompt: p}}").run()
    assert bench.error == ("a@5", "the workflow has more than 5 requests")
    assert len(bench.pushes) == 5


def test_another_attempt_is_no_further_request(monkeypatch):
    monkeypatch.setattr(core, "MAX_REQUESTS", 2)
    bench = Bench("stages: {a: {for_each: [1, 2], prompt: p}}")
    bench.submit()
    for _ in range(2):
        bench.fail("a[0]")
        bench.wait()
    bench.run()
    assert bench.output == {"a": ["p", "p"]}


@pytest.mark.parametrize("stage", ["{prompt: p}", "{when: false, prompt: p}"])
def test_copies_of_copies_are_bounded_before_they_are_made(monkeypatch, stage):
    monkeypatch.setattr(core, "MAX_NODES", 1000)
    inner = f"{{for_each: range(100) | list, stages: {{c: {stage}}}}}"
    bench = Bench(f"stages: {{a: {{for_each: range(100) | list, stages: {{b: {inner}}}}}}}")
    bench.submit()
    assert bench.error[1] == "the workflow has more than 1000 stages, copies and rounds"
    assert len(bench.workflow.nodes) <= 1000


def test_rounds_of_rounds_are_bounded_too(monkeypatch):
    monkeypatch.setattr(core, "MAX_NODES", 1000)
    inner = "{repeat: {while: true, max: 100}, stages: {c: {when: false, prompt: p}}}"
    bench = Bench(f"stages: {{a: {{repeat: {{while: true, max: 100}}, stages: {{b: {inner}}}}}}}")
    bench.submit()
    assert bench.error[1] == "the workflow has more than 1000 stages, copies and rounds"


def test_a_workflow_that_cannot_be_stepped_ends_with_the_reason_and_drops_what_is_live():
    bench = Bench("stages: {a: {prompt: p}, b: {prompt: p}}")
    bench.submit()
    bench.complete("a")
    known = bench.workflow
    bare = Workflow("w", known.head, core.NO_DEFINITION, 1, known.nodes)
    ended: Step = broken(bare, "definition d is not kept any more", bench.now)
    assert (ended.status, ended.result["error"]) == ("failed", "definition d is not kept any more")
    assert ended.drops == [bench.of("b").request]


def test_failures_of_one_step_end_it_once():
    bench = Bench("stages: {a: {for_each: [1, 2], prompt: p, retries: 0}}")
    bench.submit()
    bench.post(*(Failed(push.request, push.node, "e", True) for push in bench.pushes))
    assert bench.error[0] == "a[0]"


def test_a_failure_takes_back_the_delays_of_the_same_step():
    bench = Bench("stages: {a: {prompt: p}, b: {prompt: p, retries: 0}}")
    bench.submit()
    step = bench.post(*(Failed(push.request, push.node, "e", True) for push in bench.pushes))
    assert bench.error[0] == "b"
    assert step.delays == []
    assert sorted(step.drops) == [push.request for push in bench.pushes]
