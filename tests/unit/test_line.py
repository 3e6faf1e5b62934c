"""The one line: what its plan must keep whatever comes, and its cost against the formula."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.enginerecords import NONE
from common.policy.candidate import Candidate, candidate
from common.policy.line import AHEAD, cost_s, fits, is_open, lateness, plan, urgency_weight
from common.policy.rules import Weights
from common.profiles import A100, A6000, L40S

USUAL = Weights()


@dataclass
class Call:
    """A call in the line."""

    prompt_tokens: int = 2000
    expected_tokens: float = 100.0
    weight: float = 1.0


calls = st.builds(Call, st.integers(1, 30_000), st.floats(1.0, 1000.0), st.floats(0.125, 8.0))


@st.composite
def clusters(draw):
    found = []
    for profile in draw(st.lists(st.sampled_from([A100, A6000, L40S]), min_size=1, max_size=6)):
        one = candidate(profile)
        one.running = draw(st.integers(0, 64))
        if one.running:
            one.kv_tokens = draw(st.integers(1, one.kv_room))
            one.unprefilled_tokens = draw(st.sampled_from([0, 0, 100, 5000]))
            one.kv_time, one.weight = draw(st.floats(0.0, 1e7)), draw(st.floats(0.1, 100.0))
        found.append(one)
    return found


def planned(line: list[Call], cluster: list[Candidate], cached: list[list[int]] | None = None) -> list[int]:
    targets = [NONE] * len(line)
    known = cached or [[0] * len(cluster) for _ in line]
    plan(line, range(len(line)), len(line), cluster, len(cluster), known, USUAL, targets)
    return targets


@given(st.lists(calls, min_size=1, max_size=AHEAD), clusters())
def test_nothing_starts_where_there_is_no_room(line, cluster):
    before = [(is_open(k), k.kv_tokens, k.running, k.unprefilled_tokens) for k in cluster]
    targets = planned(line, cluster)
    for m, (was_open, kv, running, unprefilled) in enumerate(before):
        for call, target in zip(line, targets, strict=True):
            if target == m:
                assert was_open
                assert unprefilled < cluster[m].chunk
                assert running == 0 or kv + call.prompt_tokens <= cluster[m].admit_tokens
                kv, running, unprefilled = kv + call.prompt_tokens, running + 1, unprefilled + call.prompt_tokens


@given(st.lists(calls, min_size=1, max_size=8), st.integers(1, 6))
def test_an_idle_cluster_never_lets_the_whole_line_wait(line, count):
    assert planned(line, [candidate(A100) for _ in range(count)])[0] != NONE


@given(st.lists(calls, min_size=1, max_size=AHEAD), clusters(), st.data())
def test_nobody_gets_a_call_that_it_cannot_serve(line, cluster, data):
    cached = [[data.draw(st.sampled_from([-1, 0])) for _ in cluster] for _ in line]
    for target, row in zip(planned(line, cluster, cached), cached, strict=True):
        assert target == NONE or row[target] >= 0


@given(calls, clusters())
def test_a_call_that_nobody_serves_stays_and_blocks_nobody(call, cluster):
    idle = candidate(A100)
    targets = planned([call, Call(10, 1.0)], [*cluster, idle], [[-1] * (len(cluster) + 1), [0] * (len(cluster) + 1)])
    assert targets[0] == NONE
    assert targets[1] != NONE


def test_a_call_waits_for_a_fast_instance_rather_than_start_on_a_slow_one():
    fast, slow = candidate(A100), candidate(A6000)
    fast.running, fast.kv_tokens, fast.unprefilled_tokens, fast.weight = 1, 1000, 600, 1.0
    long = Call(12_000, 700.0)
    assert planned([long], [fast, slow]) == [NONE]
    assert fast.planned == 1
    fast.unprefilled_tokens = 150_000
    fast.planned, fast.planned_tokens = 0, 0.0
    assert planned([long], [fast, slow]) == [1]


def test_those_behind_go_around_who_waits():
    fast, slow = candidate(A100), candidate(A6000)
    fast.running, fast.kv_tokens, fast.unprefilled_tokens, fast.weight = 1, 1000, 600, 1.0
    assert planned([Call(12_000, 700.0), Call(200, 5.0)], [fast, slow]) == [NONE, 1]


def test_a_prompt_in_the_cache_draws_a_call():
    assert planned([Call(12_000, 50.0)], [candidate(A6000), candidate(A6000)], [[0, 11_000]]) == [1]


def test_the_delay_of_urgent_ones_counts_more_than_that_of_others():
    calm, urgent = candidate(L40S), candidate(L40S)
    for one in (calm, urgent):
        one.running, one.kv_tokens = 4, 8000
    calm.weight, urgent.weight = 4 / 8, 4 * 8.0
    assert planned([Call()], [urgent, calm]) == [1]


def test_the_cost_by_hand():
    k = candidate(A100)  # R 3400, weights .03, overhead .005, kappa .226e-6, 100k KV
    k.running, k.kv_tokens, k.unprefilled_tokens, k.weight = 2, 20_000, 340, 3.0
    call = Call(3400, 100.0, 0.5)
    step = 0.035 + 0.226e-6 * 23_400
    own = 2400 / 3400 * (1 + 4400 / 106_000) + 0.9 * 100 * step
    harm = 2400 / 3400 + 0.6 * 100 * (0.226e-6 * 3400 + 2 / 3400)
    assert cost_s(k, call, 1000, USUAL) == pytest.approx(1.4 * 0.1 + own + 2 * (3 + 2) / 0.5 * harm)
    k.planned, k.planned_tokens, k.planned_kv_time, k.kv_time = 1, 660.0, 2e6, 1e6
    assert cost_s(k, call, 1000, USUAL) == pytest.approx(30.0 + own + 2 * (3 + 2) / 0.5 * harm)


def test_a_call_that_does_not_fit_waits_for_what_is_missing():
    k, call = candidate(A100), Call(980, 1.0)
    k.running, k.kv_tokens = 4, k.admit_tokens
    at_once = cost_s(k, call, 0, USUAL)
    k.kv_time = k.kv_tokens * 20.0  # each token is held for 20 s in the mean: all are free after 40 s
    assert cost_s(k, call, 0, USUAL) - at_once == pytest.approx(40.0 * 980 / k.admit_tokens)
    k.planned, k.planned_kv_time = 1, 50.0 * k.kv_room
    assert cost_s(k, call, 0, USUAL) - at_once == pytest.approx(40.0 * 980 / k.admit_tokens + 50.0)


@given(st.floats(-1e3, 1e3), st.floats(-1e3, 1e3), st.floats(0.0, 1e3))
def test_a_later_call_never_weighs_less(late, mean, more):
    assert 1 / 8 <= urgency_weight(late, mean, USUAL) <= urgency_weight(late + more, mean, USUAL) <= 8


def test_lateness_is_told_in_thirds_of_the_slo():
    assert lateness(now=130.0, key=100.0, slo_s=90.0) == 1.0
    assert urgency_weight(1.0, 1.0, USUAL) == 1.0


def test_room_is_that_of_the_kv_but_for_the_only_call():
    k = candidate(A6000)
    assert fits(k, k.kv_room)
    k.running, k.kv_tokens = 1, k.admit_tokens - 10
    assert fits(k, 10)
    assert not fits(k, 11)
