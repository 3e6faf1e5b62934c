"""What every policy must do, and the rules of each against their definitions."""

import math
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.enginerecords import NONE
from common.errors import InvalidDocument
from common.policy.budget import budget_s
from common.policy.candidate import Candidate, candidate
from common.policy.cost import exec_s
from common.policy.dispatch import choose
from common.policy.fairness import TOKENS_PER_S, behind_s, price
from common.policy.registry import POLICIES, names, policy, score_ratio, takes, used
from common.policy.rules import FCFS, ROUND_ROBIN, Rules
from common.policy.urgency import Facts, offset_s
from common.profiles import A100, A6000, L40S

EARLY = [name for name in names() if not POLICIES[name].late]
seconds = st.floats(0.0, 1e4)
turns = st.integers(0, 10_000)
chances = st.floats(0.0, 1.0)
dice = st.tuples(*[st.floats(0.0, 1.0, exclude_max=True)] * 2)


@dataclass
class Call:
    """A request to be dispatched."""

    prompt_tokens: int = 1000
    expected_tokens: float = 100.0
    weight: float = 1.0


calls = st.builds(Call, st.integers(1, 20_000), st.floats(1.0, 2000.0))


@st.composite
def clusters(draw):
    """Instances with backlogs that repeat, so that ties happen."""
    few = st.one_of(st.sampled_from([0.0, 1.0, 2.5]), seconds)
    found = []
    for profile in draw(st.lists(st.sampled_from([A100, A6000, L40S]), min_size=1, max_size=8)):
        one = candidate(profile)
        one.backlog_s, one.running, one.queued = draw(few), draw(st.integers(0, 9)), draw(st.integers(0, 9))
        one.queued_tokens = 100.0 * one.queued
        found.append(one)
    return found


def chosen(rules: Rules, call: Call, cluster: list[Candidate], turn: int = 0, dice: tuple[float, float] = (0.2, 0.7)):
    return choose(rules, call, cluster, range(len(cluster)), len(cluster), turn, dice)


def costs(call: Call, cluster: list[Candidate]) -> list[float]:
    return [exec_s(one, call.prompt_tokens, call.expected_tokens) for one in cluster]


# -- every policy


@pytest.mark.parametrize("name", EARLY)
@given(cluster=clusters(), call=calls, turn=turns, dice=dice)
def test_a_policy_that_binds_early_chooses_one_of_those_that_can_serve(name, cluster, call, turn, dice):
    eligible = list(range(0, len(cluster), 2))
    assert choose(POLICIES[name], call, cluster, eligible, len(eligible), turn, dice) in eligible


@pytest.mark.parametrize("name", EARLY)
@given(cluster=clusters(), call=calls, turn=turns, dice=dice)
def test_a_decision_is_made_of_its_numbers_alone(name, cluster, call, turn, dice):
    once = [chosen(POLICIES[name], call, cluster, turn, dice) for _ in range(2)]
    assert once[0] == once[1]


@pytest.mark.parametrize("name", names())
@given(
    left=st.floats(-1e4, 1e4), budget=st.floats(-1e4, 1e4), exec_time=seconds, path=st.floats(0.1, 1e4), wait=seconds
)
def test_every_key_is_a_number(name, left, budget, exec_time, path, wait):
    facts = Facts(100.0, left, 60.0, budget, exec_time, path, wait, 5.0, 3.0)
    assert math.isfinite(offset_s(POLICIES[name], facts))
    assert math.isfinite(offset_s(POLICIES[name]._replace(fairness=2.0, hopeless_last=True), facts))


@pytest.mark.parametrize("name", names())
@given(first=st.floats(-1e3, 1e3), later=st.floats(0.0, 1e4))
def test_who_came_first_goes_first_among_equals(name, first, later):
    """Two requests of equal workflows that are equally far, and as late when they become ready."""

    def key(at: float) -> float:
        facts = Facts(at, 10.0, 60.0, 5.0, 2.0, 8.0, 0.0, at * TOKENS_PER_S, 0.0)
        return at + offset_s(POLICIES[name], facts)

    assert key(first) <= key(first + later)


# -- the rules


@given(clusters(), calls, turns)
def test_alpha_1_looks_at_the_execution_time_alone(cluster, call, turn):
    found = chosen(policy("hexgen", {"alpha": 1.0}), call, cluster, turn)
    assert costs(call, cluster)[found] == min(costs(call, cluster))


@given(clusters(), calls, turns)
def test_alpha_0_looks_at_the_queue_alone(cluster, call, turn):
    found = chosen(policy("hexgen", {"alpha": 0.0}), call, cluster, turn)
    least = min(one.backlog_s for one in cluster)
    assert cluster[found].backlog_s == pytest.approx(least, abs=1e-3)


@given(clusters(), calls, turns, st.floats(0.01, 1.0))
def test_the_paper_s_score_is_never_beaten(cluster, call, turn, alpha):
    rules = policy("hexgen", {"alpha": alpha, "floor_s": 2.0})

    def score(m: int) -> float:
        return (1 - alpha) * 100 / (cluster[m].backlog_s + 2.0) - alpha * costs(call, cluster)[m]

    best = max(map(score, range(len(cluster))))
    assert score(chosen(rules, call, cluster, turn)) == pytest.approx(best, abs=1e-9)


@given(st.integers(1, 8), turns, st.sampled_from(EARLY))
def test_ties_rotate(count, turn, name):
    cluster = [candidate(A100) for _ in range(count)]
    found = [chosen(POLICIES[name], Call(), cluster, turn + step) for step in range(count)]
    assert found == [(turn + step) % count for step in range(count)]


@given(clusters(), calls, turns)
def test_least_work_is_the_soonest_end_if_all_ran_one_after_the_other(cluster, call, turn):
    ends = [one.backlog_s + cost for one, cost in zip(cluster, costs(call, cluster), strict=True)]
    assert ends[chosen(POLICIES["low"], call, cluster, turn)] == min(ends)


@given(clusters(), dice)
def test_of_two_instances_the_one_with_fewer_requests_unless_both_are_full(cluster, dice):
    found = chosen(POLICIES["ray"], Call(), cluster, dice=dice)
    if found == NONE:
        assert max(one.running + one.queued for one in cluster) >= 5
    else:
        ongoing = cluster[found].running + cluster[found].queued
        assert ongoing < 5
        assert ongoing <= max(one.running + one.queued for one in cluster)


def test_two_choices_are_two_instances():
    cluster = [candidate(A100) for _ in range(3)]
    cluster[0].running, cluster[1].running, cluster[2].running = 4, 1, 0
    found = {chosen(POLICIES["ray"], Call(), cluster, dice=(a / 3, b / 2)) for a in range(3) for b in range(2)}
    assert found == {1, 2}


def test_the_expected_wait_is_the_queue_s_answers_at_the_batch_s_speed():
    idle, busy = candidate(A100), candidate(A100)
    idle.queued_tokens, busy.queued_tokens = 1000.0, 1000.0
    busy.running = 10
    assert chosen(POLICIES["qlm"], Call(), [idle, busy]) == 1


# -- the orders


@given(st.lists(st.tuples(*[st.integers(-1000, 1000)] * 3), min_size=2, max_size=10), st.integers(0, 10_000))
def test_the_latest_start_first_is_the_most_urgent_first_at_every_later_time(requests, later):
    """Whole seconds, so that equal is equal."""
    now = max(enqueued_at for enqueued_at, _, _ in requests) + later

    def urgency(request):
        enqueued_at, budget, cost = request
        return cost - (budget - (now - enqueued_at))

    def key(request):
        enqueued_at, budget, cost = request
        return enqueued_at + offset_s(POLICIES["hexgen"], Facts(0.0, 0.0, 1.0, budget, cost, 1.0))

    assert sorted(requests, key=lambda request: -urgency(request)) == sorted(requests, key=key)


@given(st.lists(st.floats(0.1, 1e3), min_size=1, max_size=12), st.floats(-1e4, 1e4))
def test_the_shares_of_ready_and_expected_stages_along_a_path_sum_to_what_remains(costs, left):
    total = sum(costs)
    assert sum(budget_s(left, cost, total) for cost in costs) == pytest.approx(left, abs=1e-6)


def test_first_come_first_served_looks_at_nothing_else():
    assert offset_s(Rules(ROUND_ROBIN, FCFS), Facts(9.0, -5.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0)) == 0.0


def test_the_workflow_that_came_first_goes_first():
    old = Facts(100.0, 20.0, 60.0, 0.0, 0.0, 1.0)
    new = Facts(100.0, 59.0, 60.0, 0.0, 0.0, 1.0)
    assert offset_s(POLICIES["low"], old) < offset_s(POLICIES["low"], new)


def test_a_group_goes_in_order_of_arrival_and_by_its_deadline_once_that_is_at_risk():
    safe = Facts(0.0, 50.0, 60.0, 0.0, 0.0, 10.0, 5.0)
    late = safe._replace(wait_s=45.0)
    assert offset_s(POLICIES["qlm"], safe) == 60.0
    assert offset_s(POLICIES["qlm"], late) == 50.0


def test_the_tenant_that_was_served_least_goes_first():
    little, much = Facts(50.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.0, 2000.0), Facts(50.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.0, 9000.0)
    assert offset_s(POLICIES["vtc"], little) + 7.0 == offset_s(POLICIES["vtc"], much)
    assert price(100, 10, 2.0) == 60.0
    assert behind_s(9000.0, 2000.0, 3500.0) == 2.0
    assert behind_s(1000.0, 2000.0, 3500.0) == 0.0


def test_fairness_moves_a_heavy_tenant_back_by_at_most_an_slo():
    rules = POLICIES["flow"]._replace(fairness=1.0)
    light = Facts(0.0, 50.0, 60.0, 0.0, 0.0, 10.0)
    base = offset_s(rules, light)
    assert offset_s(rules, light._replace(behind_s=7.0)) == base + 7.0
    assert offset_s(rules, light._replace(behind_s=7e9)) == base + 60.0


def test_what_cannot_meet_its_deadline_goes_last_where_that_is_asked_for():
    rules = policy("flow", {"hopeless_last": 1})
    hopeless, fresh = Facts(0.0, 5.0, 60.0, 0.0, 0.0, 10.0), Facts(0.0, 60.0, 60.0, 0.0, 0.0, 10.0)
    assert offset_s(rules, hopeless) > offset_s(rules, fresh)
    assert offset_s(POLICIES["flow"], hopeless) < offset_s(POLICIES["flow"], fresh)


# -- by name


def test_all_systems_of_the_paper_and_their_variants_have_a_name():
    wanted = {
        "vllm",
        "ray",
        "vtc",
        "qlm",
        "llf",
        "llf-workflow",
        "low",
        "hexgen",
        "hexgen-no-wb",
        "hexgen-no-pq",
        "flow",
    }
    assert wanted == set(names())


def test_numbers_of_a_policy_are_changed_by_name():
    assert policy("hexgen", {"alpha": 0.3}).r == score_ratio(0.3) == pytest.approx(100 * 0.7 / 0.3)
    assert policy("flow", {"harm": 3.0, "fairness": 0.5}).weights.harm == 3.0
    assert policy("flow", {"fairness": 0.5}).fairness == 0.5
    assert policy("hexgen", {"r": 7}).r == 7


@pytest.mark.parametrize("name", names())
def test_each_number_that_a_policy_takes_makes_another_policy_of_it(name):
    for field in takes(name):
        assert policy(name, {field: 0.25}) != policy(name), field
    assert set(used(name, dict.fromkeys([*takes("flow"), *takes("hexgen")], 1.0))) == set(takes(name))


@pytest.mark.parametrize(
    ("name", "parameters", "field"),
    [
        ("best", {}, "policy"),
        ("hexgen", {"alpha": 1.1}, "alpha"),
        ("hexgen", {"alpha": math.nan}, "alpha"),
        ("flow", {"harm": -1.0}, "harm"),
        ("flow", {"wait": math.inf}, "wait"),
        ("flow", {"colour": 1.0}, "colour"),
        ("flow", {"alpha": 0.5}, "alpha"),
        ("hexgen", {"wait": 1.4}, "wait"),
        ("hexgen-no-wb", {"r": 1.0}, "r"),
    ],
)
def test_a_wrong_policy_is_refused_with_the_field(name, parameters, field):
    with pytest.raises(InvalidDocument) as refused:
        policy(name, parameters)
    assert refused.value.field == field
