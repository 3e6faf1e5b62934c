"""SLO budgets, expected work and execution times: against brute force, published figures and numbers by hand."""

from dataclasses import replace
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common import profiles
from common.engine import EngineModel, Sequence
from common.model import Instance
from common.policy.budget import budget_s, critical_path, further_rounds, summed
from common.policy.cost import exec_s, serves
from common.policy.registry import policy
from common.policy.urgency import Facts, offset_s

seconds = st.floats(0.0, 1e4)
positive = st.floats(1e-3, 1e4)
chances = st.floats(0.0, 1.0)


@given(st.lists(positive, min_size=1, max_size=20), st.floats(-1e4, 1e4))
def test_the_shares_along_a_path_sum_to_what_is_left_of_the_slo(costs, slo):
    shares = [budget_s(slo, cost, summed(costs)) for cost in costs]
    assert sum(shares) == pytest.approx(slo, abs=1e-6)


@given(st.lists(positive, min_size=1, max_size=20), positive)
def test_who_uses_up_every_budget_ends_at_the_deadline(costs, slo):
    left = slo
    for position, cost in enumerate(costs):
        left -= budget_s(left, cost, summed(costs[position:]))
    assert left == pytest.approx(0.0, abs=1e-6 * slo)


@given(positive, positive, positive)
def test_who_is_late_has_a_negative_budget_and_is_more_urgent_the_later_he_is(late, cost, rest):
    soon, later = budget_s(-late, cost, cost + rest), budget_s(-2 * late, cost, cost + rest)
    assert later < soon < 0
    keys = [offset_s(policy("hexgen"), Facts(0.0, -late, 1.0, budget, cost, cost)) for budget in (later, soon)]
    assert keys[0] < keys[1]


def test_a_budget_is_never_more_than_all_that_is_left():
    assert budget_s(10.0, 5.0, 2.0) == 10.0
    assert budget_s(10.0, 5.0, 0.0) == 10.0


@given(st.lists(chances, max_size=20))
def test_further_rounds_are_the_sum_of_the_chances_to_get_to_each(goes_on):
    further = further_rounds(goes_on)
    assert len(further) == len(goes_on)
    for done in range(len(goes_on)):
        reached = [prod(goes_on[done : last + 1]) for last in range(done, len(goes_on))]
        assert further[done] == pytest.approx(sum(reached), abs=1e-9)


def test_further_rounds_at_the_edges():
    assert further_rounds([]) == []
    assert further_rounds([1.0, 1.0, 1.0, 0.0]) == [3, 2, 1, 0]
    assert further_rounds([0.0, 1.0]) == [0, 1]


def longest(costs, needs, last):
    """The longest path that ends with this stage, by trying all."""
    return costs[last] + max((longest(costs, needs, before) for before in needs[last]), default=0.0)


@st.composite
def graphs(draw):
    costs = draw(st.lists(seconds, max_size=7))
    needs = [sorted(draw(st.sets(st.integers(0, i - 1), max_size=3))) if i else [] for i in range(len(costs))]
    return costs, needs


@given(graphs())
def test_critical_path(graph):
    costs, needs = graph
    assert critical_path(costs, needs) == max((longest(costs, needs, i) for i in range(len(costs))), default=0.0)


@given(graphs())
def test_the_critical_path_is_at_most_the_sum_and_at_least_the_longest_stage(graph):
    costs, needs = graph
    assert max(costs, default=0.0) <= critical_path(costs, needs) <= summed(costs) + 1e-6


@pytest.mark.parametrize(
    ("kind", "step_s", "prefill_s"), [("a100", 0.035, 3.8), ("a6000", 0.058, 10.4), ("l40s", 0.0545, 7.7)]
)
def test_the_published_figures_of_a_70b_model(kind, step_s, prefill_s):
    profile = profiles.named(kind)
    one_step = exec_s(profile, 500, 1) - exec_s(profile, 500, 0)
    assert one_step == pytest.approx(step_s, rel=0.02)
    assert exec_s(profile, 11_700, 0) == pytest.approx(prefill_s, rel=0.02)


def test_cost_by_hand():
    # A100: 1000 / 3400 * (1 + 1000 / 106000) + 100 * (0.005 + 0.030 + 1 / 3400 + 0.226e-6 * (1000 + 50))
    assert exec_s(profiles.A100, 1000, 100) == pytest.approx(0.29689 + 3.5 + 0.02941 + 0.02373, abs=1e-4)


@pytest.mark.parametrize("kind", ["a100", "a6000", "l40s"])
@pytest.mark.parametrize(("prompt", "output", "within"), [(300, 700, 0.01), (4000, 300, 0.06), (11_700, 20, 0.16)])
def test_the_cost_is_about_what_the_engine_model_takes_alone(kind, prompt, output, within):
    """The formula leaves out what each chunk of a prefill costs beside its tokens: long prompts come out short."""
    engine, elapsed = EngineModel(profiles.named(kind)), 0.0
    engine.add(Sequence("r", prompt, output))
    done = []
    while not done:
        took, done = engine.step()
        elapsed += took
    cost = exec_s(profiles.named(kind), prompt, output)
    assert (1 - within) * elapsed < cost < 1.01 * elapsed


def test_who_serves_what():
    one = Instance("i", 1, profiles.A100, ("m", "alias"), frozenset({"eu"}), frozenset({"json_schema"}))
    nothing = frozenset()
    assert serves(one, None, nothing, nothing)
    assert serves(one, "alias", frozenset({"eu"}), frozenset({"json_schema"}))
    assert not serves(one, "other", nothing, nothing)
    assert not serves(one, "m", frozenset({"eu", "us"}), nothing)
    assert not serves(one, "m", nothing, frozenset({"vision"}))


@pytest.mark.parametrize(("context", "kv", "most"), [(1000, 5000, 999), (5000, 1000, 999)])
def test_the_longest_prompt_leaves_room_for_one_token(context, kv, most):
    one = Instance("i", 1, replace(profiles.A100, context_tokens=context, kv_tokens=kv), ("m",))
    assert one.profile.longest_prompt == most
