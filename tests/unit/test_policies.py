"""Who gets a request, and in which order a queue is served: against the definitions of the rules."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.errors import InvalidDocument
from common.policy.dispatch import RoundRobin, Score
from common.policy.registry import names, policy
from common.policy.urgency import Fcfs, LatestStart

seconds = st.floats(0.0, 1e4)
turns = st.integers(0, 10_000)
chances = st.floats(0.0, 1.0)


@st.composite
def clusters(draw):
    """Execution time and backlog per instance; values repeat, so that ties happen."""
    count = draw(st.integers(1, 8))
    few = st.one_of(st.sampled_from([0.0, 1.0, 2.5]), seconds)
    return tuple(draw(st.lists(few, min_size=count, max_size=count)) for _ in range(2))


@given(clusters(), turns)
def test_alpha_1_looks_at_the_execution_time_alone(cluster, turn):
    costs, backlog = cluster
    assert costs[Score(alpha=1.0).choose(costs, backlog, turn)] == min(costs)


@given(clusters(), turns)
def test_alpha_0_looks_at_the_queue_alone(cluster, turn):
    costs, backlog = cluster
    chosen = Score(alpha=0.0).choose(costs, backlog, turn)
    assert 1 / (backlog[chosen] + 1) == max(1 / (other + 1) for other in backlog)


@given(clusters(), turns, chances)
def test_the_score_is_never_beaten(cluster, turn, alpha):
    costs, backlog = cluster
    scores = [(1 - alpha) * 100 / (q + 1) - alpha * t for t, q in zip(costs, backlog, strict=True)]
    assert scores[Score(alpha).choose(costs, backlog, turn)] == max(scores)


@given(st.integers(1, 8), turns, chances)
def test_ties_rotate(count, turn, alpha):
    rule = Score(alpha)
    chosen = [rule.choose([2.0] * count, [3.0] * count, turn + step) for step in range(count)]
    assert chosen == [(turn + step) % count for step in range(count)]


def test_ties_rotate_among_the_best_only():
    chosen = {Score(0.0).choose([1.0] * 4, [5.0, 1.0, 5.0, 1.0], turn) for turn in range(4)}
    assert chosen == {1, 3}


@given(st.integers(1, 8), turns)
def test_round_robin_takes_each_in_turn(count, turn):
    chosen = [RoundRobin().choose([1.0] * count, [0.0] * count, turn + step) for step in range(2 * count)]
    assert chosen[:count] == chosen[count:]
    assert sorted(chosen[:count]) == list(range(count))


def test_the_score_by_hand():
    # alpha 0.5, beta 100, floor 1: 50 / 10 - 5 = 0 and 50 / 5 - 11 = -1; with 0.4: 60 / 10 - 4 = 2, 60 / 5 - 8.8 = 3.2
    costs, backlog = [10.0, 22.0], [9.0, 4.0]
    assert Score(0.5).choose(costs, backlog, 0) == 0
    assert Score(0.4).choose(costs, backlog, 0) == 1


@given(st.lists(st.tuples(*[st.integers(-1000, 1000)] * 3), min_size=2, max_size=10), st.integers(0, 10_000))
def test_the_latest_start_first_is_the_most_urgent_first_at_every_later_time(requests, later):
    """Whole seconds, so that equal is equal."""
    now = max(enqueued_at for enqueued_at, _, _ in requests) + later

    def urgency(request):
        enqueued_at, budget, cost = request
        return cost - (budget - (now - enqueued_at))

    def key(request):
        enqueued_at, budget, cost = request
        return enqueued_at + LatestStart().offset_s(budget, cost)

    assert sorted(requests, key=lambda request: -urgency(request)) == sorted(requests, key=key)


@given(seconds, seconds)
def test_first_come_first_served_looks_at_nothing_else(budget, cost):
    assert Fcfs().offset_s(budget, cost) == 0


def test_policies_by_name():
    assert names() == sorted(names())
    assert {"hexgen", "vllm"} <= set(names())
    assert all(policy(name).name == name for name in names())
    assert policy("hexgen", 0.3).dispatch == Score(0.3)
    assert (policy("vllm").dispatch, policy("vllm").order) == (RoundRobin(), Fcfs())


@pytest.mark.parametrize(
    ("name", "alpha", "field"), [("best", 0.5, "policy"), ("hexgen", 1.1, "alpha"), ("hexgen", math.nan, "alpha")]
)
def test_a_wrong_policy_is_refused_with_the_field(name, alpha, field):
    with pytest.raises(InvalidDocument) as refused:
        policy(name, alpha)
    assert refused.value.field == field
