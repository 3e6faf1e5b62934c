"""What a request carries: its cost where it goes, its budget, its place in the queue, its call."""

from dataclasses import replace

import pytest
from core_bench import START, TWO, Bench, instance

from common.policy.cost import exec_s
from common.policy.registry import policy
from common.prefix import chain
from coordinator.shares import Shares

FLOW = {
    "stages": {
        "a": {"prompt": "{{ inputs.text }}", "expect": {"output_tokens": 100}},
        "b": {"needs": ["a"], "prompt": "{{ inputs.text }}", "expect": {"output_tokens": 300}},
        "c": {"needs": ["b"], "tool": "t", "expect": {"seconds": 2}},
    }
}
TEXT = "x" * 4000


def mean_s(output_tokens, prompt_tokens=1000):
    return sum(exec_s(one.profile, prompt_tokens, output_tokens) for one in TWO) / len(TWO)


def template_s(output_tokens):
    """Of a stage that has not started: its prompt is expected to be as long as the bare template."""
    return mean_s(output_tokens, len("{{ inputs.text }}") / 4)


def test_budget_offset_and_load_by_their_formulas():
    bench = Bench(FLOW, {"text": TEXT}, slo_s=100)
    bench.submit()
    push = bench.of("a")
    profile = next(one.profile for one in TWO if one.id == push.instance)
    cost = exec_s(profile, 1000, 100)
    budget = 100 * mean_s(100) / (mean_s(100) + template_s(300) + 2)
    assert push.prompt_tokens == 1000
    assert push.load_ms == round(1000 * cost)
    assert push.budget_ms == pytest.approx(1000 * budget, abs=1)
    assert push.offset_ms == pytest.approx(1000 * (budget - cost), abs=1)
    assert push.deadline_at == START + 100_000


def test_the_budget_is_worked_out_anew_from_the_slo_that_is_left():
    bench = Bench(FLOW, {"text": TEXT}, slo_s=100)
    bench.submit()
    bench.now += 60_000
    bench.complete("a", "x")
    assert bench.of("b").budget_ms == pytest.approx(40_000 * mean_s(300) / (mean_s(300) + 2), abs=1)


def test_the_last_request_has_all_that_is_left():
    bench = Bench(FLOW, {"text": TEXT}, slo_s=100)
    bench.submit()
    bench.complete("a", "x")
    bench.now += 90_000
    bench.complete("b", "x")
    push = bench.of("c")
    assert (push.instance, push.budget_ms, push.load_ms, push.offset_ms) == ("tools", 10_000, 2000, 8000)


def test_a_late_workflow_has_a_negative_budget():
    bench = Bench(FLOW, {"text": TEXT}, slo_s=10)
    bench.submit()
    bench.complete("a", "x")
    bench.now += 40_000
    bench.complete("b", "x")
    assert bench.of("c").budget_ms == -30_000


def test_first_come_first_served_has_no_offset_but_a_budget():
    bench = Bench(FLOW, {"text": TEXT}, rules=policy("vllm"), slo_s=100)
    bench.submit()
    assert bench.of("a").offset_ms == 0
    assert bench.of("a").budget_ms > 0


def test_on_a_slower_instance_the_same_request_must_start_earlier():
    offsets = []
    for one in TWO:
        bench = Bench(FLOW, {"text": TEXT}, instances=(one,))
        bench.submit()
        offsets.append(bench.of("a").offset_ms - bench.of("a").budget_ms)
    costs = [exec_s(one.profile, 1000, 100) for one in TWO]
    assert offsets == [pytest.approx(-1000 * cost, abs=1) for cost in costs]


def test_copies_that_are_ready_together_are_spread():
    twins = (instance("one"), instance("two"))
    bench = Bench({"stages": {"a": {"for_each": "range(10) | list", "prompt": "p"}}}, instances=twins)
    bench.submit()
    assert sorted(push.instance for push in bench.pushes) == ["one"] * 5 + ["two"] * 5


def test_a_request_goes_only_where_model_labels_features_and_room_are():
    small = replace(TWO[0].profile, context_tokens=500)
    right = instance("right", "a6000", models=("big",), labels=frozenset({"eu"}))
    others = (
        instance("model"),
        instance("label", models=("big",)),
        instance("feature", models=("big",), labels=frozenset({"eu"}), features=frozenset()),
        instance("room", models=("big",), labels=frozenset({"eu"}), profile=small),
    )
    stage = {"prompt": TEXT, "model": "big", "requires": ["eu"], "json_schema": {"type": "object"}}
    bench = Bench({"stages": {"a": {"for_each": [1, 2, 3], **stage}}}, instances=(*others, right))
    bench.submit()
    assert {push.instance for push in bench.pushes} == {"right"}


def test_the_call_carries_how_to_sample():
    stage = {
        "prompt": "p", "max_tokens": 7, "temperature": 0.5, "top_p": 0.9, "stop": ["END"], "seed": 3, "timeout_s": 12,
        "json_schema": {"type": "object"},
    }  # fmt: skip
    bench = Bench({"stages": {"a": stage}})
    bench.submit()
    push = bench.of("a")
    sampling = push.call.sampling
    assert (sampling.max_tokens, sampling.temperature, sampling.top_p, sampling.seed) == (7, 0.5, 0.9, 3)
    assert (sampling.stop, sampling.json_schema) == (("END",), {"type": "object"})
    assert (push.timeout_s, push.stream, push.stage) == (12, False, "flow/a")


def test_an_empty_prompt_counts_as_one_token():
    bench = Bench({"stages": {"a": {"prompt": ""}}})
    bench.submit()
    assert bench.of("a").prompt_tokens == 1


def test_a_prompt_that_may_be_too_long_goes_to_the_instance_with_most_room():
    bench = Bench(FLOW, {"text": "x" * 4 * 40_000})
    bench.submit()
    assert bench.of("a").prompt_tokens == 32_767


def test_a_request_carries_the_hashes_of_its_prompts_beginning():
    bench = Bench(FLOW, {"text": TEXT}, slo_s=100)
    bench.submit()
    first = bench.of("a").prefix
    bench.complete("a", "x")
    assert bench.of("b").prefix == first == chain(TEXT) != b""
    bench.complete("b", "x")
    assert bench.of("c").prefix == b""


@pytest.mark.parametrize("name", ["flow", "ray"])
def test_a_policy_that_binds_late_sends_to_the_line_at_the_mean_cost(name):
    bench = Bench(FLOW, {"text": TEXT}, slo_s=100)
    bench.cluster.policy = policy(name)
    bench.submit()
    push = bench.of("a")
    assert (push.instance, push.load_ms) == ("line", round(1000 * mean_s(100)))
    path = mean_s(100) + template_s(300) + 2
    assert push.offset_ms == pytest.approx(1000 * (100 - 0.5 * path) if name == "flow" else 0, abs=1)


@pytest.mark.parametrize(("name", "expected"), [("flow", [0, 100, 500]), ("hexgen", [0, 0, 0])])
def test_in_the_line_a_request_tells_the_longest_prompt_of_those_that_would_serve_it_were_it_shorter(name, expected):
    def with_room(name, tokens, **changes):
        return instance(name, profile=replace(TWO[0].profile, context_tokens=tokens), **changes)

    instances = (
        with_room("small", 101), with_room("middle", 501, status="lost"), with_room("large", 9001),
        with_room("another", 901, models=("other",)),
    )  # fmt: skip
    told = []
    for tokens in (100, 500, 1000):
        bench = Bench({"stages": {"a": {"prompt": "x" * 4 * tokens, "model": "m"}}}, instances=instances)
        bench.cluster.policy = policy(name)
        bench.submit()
        told.append(bench.of("a").longer_than)
    assert told == expected


def test_the_tenant_that_has_had_less_goes_first_where_the_policy_says_so():
    bench = Bench(FLOW, {"text": TEXT}, slo_s=100)
    bench.cluster.policy = policy("vtc")
    bench.cluster.shares = Shares({"t": 5000, "other": 3000}, ["t", "other"])
    bench.submit()
    push = bench.of("a")
    assert push.offset_ms == pytest.approx(5000 - START, abs=1)
    assert (push.tenant, push.price) == ("t", 1000 + 2 * 100)
    assert bench.cluster.shares.of("t") == 6200
    bench.complete("a", "x")
    bench.complete("b", "x")
    assert (bench.of("c").tenant, bench.of("c").price) == ("", 0)


def test_fairness_puts_back_what_a_tenant_has_had_more_than_another():
    plain, fair = Bench(FLOW, {"text": TEXT}, slo_s=100), Bench(FLOW, {"text": TEXT}, slo_s=100)
    fair.cluster.policy = policy("hexgen", {"fairness": 0.5})
    fair.cluster.shares = Shares({"t": 5000, "other": 3000}, ["t", "other"])
    for bench in (plain, fair):
        bench.submit()
    rate = sum(one.profile.prefill_tokens_per_s for one in TWO)
    assert fair.of("a").offset_ms - plain.of("a").offset_ms == pytest.approx(1000 * 0.5 * 2000 / rate, abs=1)
