"""The core: a workflow is given another deadline, and the requests that it has under way the keys that follow."""

import pytest
from core_bench import START, Bench, instance
from hypothesis import given, settings
from hypothesis import strategies as st

from common.events import CancelAsked, Evacuated, Submitted
from common.policy.registry import POLICIES, policy
from coordinator.shares import Shares

THREE = """
inputs: {text: {type: any}}
stages:
  a: {for_each: [1, 2], prompt: "{{ inputs.text }} {{ item }}"}
  t: {tool: t, args: {x: 1}}
  b: {needs: [a, t], prompt: "{{ a.output }}"}
"""
MIND = ("qlm", "llf", "llf-workflow", "hexgen", "hexgen-no-wb", "flow")


seconds = st.floats(0.5, 3000)
waits = st.tuples(*[st.integers(0, 900_000)] * 2)
tokens = st.tuples(*[st.integers(0, 100_000_000)] * 2)
OF_ANY = {"fairness": st.just(0.5), "hopeless_last": st.just(1)}


def three(rules, slo_s: float = 60, submitted: bool = True) -> Bench:
    bench = Bench(THREE, {"text": "word " * 300}, rules=rules, slo_s=slo_s, packed=True)
    if submitted:
        bench.submit()
    return bench


def loaded(bench: Bench, waits: tuple[int, int], had: tuple[int, int]) -> None:
    """So much waits at its instances, and so much its tenant and another have had."""
    bench.cluster.backlog_ms = dict(zip(("fast", "slow"), waits, strict=True))
    bench.cluster.shares = Shares(dict(zip(("t", "other"), had, strict=True)), ("t", "other"))


@pytest.mark.parametrize("name", POLICIES)
@settings(max_examples=30)
@given(
    first=seconds, last=seconds, parameters=st.fixed_dictionaries({}, optional=OF_ANY), waits=waits, later=waits,
    had=tokens, later_had=tokens, passed_s=st.integers(0, 600),
)  # fmt: skip
def test_the_keys_are_those_of_a_workflow_that_had_this_deadline_before_anything_was_queued(
    name, first, last, parameters, waits, later, had, later_had, passed_s
):
    early, late = (three(policy(name, parameters), first, submitted=False) for _ in range(2))
    for bench in (early, late):
        loaded(bench, waits, had)
    early.post(Submitted(), early.amendment(last))
    late.submit()
    late.now += 1000 * passed_s
    late.complete("a[1]", "x")  # from which something is learned
    late.register(instance("other", "l40s"))
    loaded(late, later, later_had)
    rescored = {one.request: one for one in late.amend(last).rescores}
    assert len(late.queue) == 2
    for request, push in late.queue.items():
        now, wanted = rescored.get(request, push), early.queue[request]
        assert now.offset_ms == wanted.offset_ms
        if rescored:
            assert (now.budget_ms, now.deadline_at, now.slo_ms) == (
                wanted.budget_ms, wanted.deadline_at, wanted.slo_ms
            )  # fmt: skip


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
