"""The core: a workflow is given another deadline, and the requests that it has under way the keys that follow."""

import pytest
from core_bench import START, TWO, Bench, instance

from common.events import CancelAsked, Due, Evacuated
from common.policy.registry import POLICIES, policy

THREE = """
inputs: {text: {type: any}}
stages:
  a: {for_each: [1, 2], prompt: "{{ inputs.text }} {{ item }}"}
  t: {tool: t, args: {x: 1}}
  b: {needs: [a, t], prompt: "{{ a.output }}"}
"""
MIND = ("qlm", "llf", "llf-workflow", "hexgen", "hexgen-no-wb", "flow")


def three(rules, slo_s: float = 60) -> Bench:
    bench = Bench(THREE, {"text": "word " * 300}, rules=rules, slo_s=slo_s, packed=True)
    bench.submit()
    return bench


@pytest.mark.parametrize("name", MIND)
@pytest.mark.parametrize("slo_s", [0.5, 20.0, 3000.0])
def test_the_keys_are_those_of_a_workflow_that_had_this_deadline_from_the_beginning(name, slo_s):
    bench, other = three(policy(name)), three(policy(name), slo_s)
    bench.now += 10_000
    step = bench.amend(slo_s)
    assert {one.request for one in step.rescores} == set(bench.queue) == set(other.queue)
    for one in step.rescores:
        push = other.queue[one.request]
        assert one.offset_ms == pytest.approx(push.offset_ms, abs=2)
        assert one.budget_ms == pytest.approx(push.budget_ms, abs=2)
        assert (one.deadline_at, one.slo_ms) == (push.deadline_at, push.slo_ms)


@pytest.mark.parametrize("name", sorted(set(POLICIES) - set(MIND)))
def test_where_no_key_follows_from_a_deadline_all_keep_theirs(name):
    bench = three(policy(name))
    step = bench.amend(5)
    assert step.rescores == []
    assert step.head == bench.workflow.head
    assert bench.workflow.head.slo.deadline_at == START + 5000


def test_what_was_hopeless_is_last_no_more():
    bench = three(policy("vllm", {"hopeless_last": 1}), slo_s=0.1)
    assert min(push.offset_ms for push in bench.queue.values()) > 1e8
    step = bench.amend(600)
    assert [one.offset_ms for one in step.rescores] == [0, 0, 0]


def test_the_same_deadline_changes_no_key():
    bench = three(policy("flow"))
    bench.now += 30_000
    before = {push.request: push.offset_ms for push in bench.queue.values()}
    assert {one.request: one.offset_ms for one in bench.amend(60).rescores} == pytest.approx(before, abs=2)


def test_the_user_is_told_and_the_end_goes_by_the_new_deadline():
    bench = three(policy("flow"), slo_s=5)
    bench.now += 10_000
    bench.amend(20)
    assert bench.events[-1] == ("amended", {"deadline_at": START + 20_000})
    bench.run()
    assert (bench.result["slo_s"], bench.result["elapsed_s"], bench.result["slo_met"]) == (20.0, 10.0, True)


def test_what_becomes_ready_later_or_in_the_same_step_has_its_key_from_the_new_deadline():
    bench, other = three(policy("flow")), three(policy("flow"), 20)
    for one in (bench, other):
        one.complete("a[0]", "x")
        one.complete("t", "x")
    amended = bench.post(bench.amendment(20), bench.completed("a[1]", "x"))
    other.complete("a[1]", "x")
    assert amended.rescores == []  # what has ended by then needs none
    assert [(push.node, push.offset_ms, push.slo_ms) for push in amended.pushes] == [
        ("b", other.of("b").offset_ms, 20_000)
    ]


def test_what_is_delayed_or_waits_for_an_instance_is_rescored_in_its_record():
    """In the line it would come back under the key that is recorded."""
    bench = Bench("stages: {a: {prompt: p}, b: {prompt: p}, c: {prompt: p}, d: {prompt: p, model: none}}",
                  rules=policy("flow"))  # fmt: skip
    bench.submit()
    bench.fail("a")
    bench.register()
    bench.evacuate("b")
    requests = [push.request for push in bench.pushes]
    assert (sorted(bench.delays), len(requests)) == (["a", "b", "d"], 3)
    step = bench.amend(20)
    assert [one.request for one in step.rescores] == requests
    assert {one.slo_ms for one in step.rescores} == {20_000}


def test_what_is_routed_anew_in_the_same_step_is_both():
    bench = three(policy("flow"))
    request = bench.of("t").request
    step = bench.post(Evacuated(request, "t"), bench.amendment(20))
    assert [push.node for push in step.pushes] == ["t"]
    assert request in {one.request for one in step.rescores}


def test_a_workflow_that_waits_for_an_instance_gives_up_at_the_new_deadline():
    bench = Bench("stages: {a: {prompt: p}}", instances=(), slo_s=2)
    bench.submit()
    bench.amend(3.5)
    delays = [bench.wait().delays for _ in range(3)]
    assert delays == [[("a", 1000)], [("a", 1000)], [("a", 500)]]
    bench.wait()
    assert bench.now == START + 3500
    assert bench.status == "failed"
    bench = Bench("stages: {a: {prompt: p}}", instances=(), slo_s=60)
    bench.submit()
    bench.amend(0.5)
    bench.wait()
    assert bench.error[1].endswith("and the deadline has passed")


def test_of_several_the_last_one_counts_and_each_is_told():
    bench = three(policy("flow"))
    step = bench.post(bench.amendment(20), bench.amendment(5), bench.amendment(30))
    assert bench.workflow.head.slo.deadline_at == START + 30_000
    assert {one.slo_ms for one in step.rescores} == {30_000}
    assert len(step.rescores) == 3
    assert bench.told[-3:] == ["amended"] * 3


@pytest.mark.parametrize("first", [True, False])
def test_beside_the_end_nothing_is_rescored(first):
    bench = three(policy("flow"))
    mail = [bench.amendment(20), CancelAsked("enough")]
    step = bench.post(*(mail if first else mail[::-1]))
    assert (step.status, step.rescores) == ("cancelled", [])
    assert step.result["slo_s"] == (20 if first else 60)
    assert ("amended" in bench.told) == first


def test_a_request_that_is_bound_is_rescored_by_its_cost_there():
    fast, slow = instance("fast"), instance("slow", "a6000")
    keys = {}
    for there in (fast, slow):
        bench = Bench("stages: {a: {prompt: p}}", instances=(there,), rules=policy("hexgen"))
        bench.submit()
        bench.register(fast, slow)
        (one,) = bench.amend(20).rescores
        keys[there.id] = one.offset_ms
    assert keys["slow"] < keys["fast"]  # it must start earlier


def test_without_any_instance_the_stage_tells_what_to_expect():
    bench = three(policy("flow"))
    bench.register()
    assert len(bench.amend(20).rescores) == 3
    bench.register(*TWO)
    bench.post(Due("a[0]"))  # which is queued: nothing
    assert bench.run().status == "completed"
