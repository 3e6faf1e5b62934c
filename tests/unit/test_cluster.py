"""One coordinator's view of the cluster: who serves, backlog that grows as it dispatches, expected times."""

import pytest
from core_bench import definition, instance

from common.policy.cost import exec_s
from common.policy.registry import binds_late, names, policy
from coordinator.cluster import LONGEST_LOAD_MS, Cluster, Waiting, load_ms
from coordinator.estimates import Estimates

NOTHING: frozenset[str] = frozenset()
CALL = Waiting(1000, 50)
FAST, SLOW = instance("fast"), instance("slow", "a6000", models=("n",))


def cluster(*instances, backlog=None, rules="hexgen", estimates=None, **others):
    return Cluster(instances, backlog or {}, policy(rules), estimates or Estimates(), lambda: "r", **others)


def test_only_ready_instances_serve():
    view = cluster(FAST, instance("leaving", status="draining"))
    assert view.serving(None, NOTHING, NOTHING) == [FAST]


def test_a_model_is_served_by_those_that_answer_to_it():
    view = cluster(FAST, SLOW)
    assert view.serving("n", NOTHING, NOTHING) == [SLOW]
    assert view.serving(None, NOTHING, NOTHING) == [FAST, SLOW]


def test_what_is_dispatched_counts_at_once():
    view = cluster(FAST, instance("twin"), backlog={"gone": 5})
    chosen = [view.choose(view.instances, CALL)[0] for _ in range(4)]
    cost_ms = load_ms(exec_s(FAST.profile, 1000, 50))
    assert sorted(chosen) == [0, 0, 1, 1]
    assert view.backlog_ms == {"gone": 5, "fast": 2 * cost_ms, "twin": 2 * cost_ms}
    assert view.turn == 4


def test_the_backlog_of_the_store_decides():
    view = cluster(FAST, instance("twin"), backlog={"fast": 60_000})
    assert view.choose(view.instances, CALL)[0] == 1


def test_a_backlog_below_nothing_counts_as_nothing():
    view = cluster(FAST, instance("twin"), backlog={"fast": -5000, "twin": 100})
    assert view.choose(view.instances, CALL)[0] == 0


def test_round_robin_ignores_the_backlog():
    view = cluster(FAST, instance("twin"), backlog={"fast": 60_000}, rules="vllm")
    assert [view.choose(view.instances, CALL)[0] for _ in range(3)] == [0, 1, 0]


@pytest.mark.parametrize("rules", [name for name in names() if not binds_late(name)])
def test_one_that_is_shut_is_chosen_only_if_all_are(rules):
    three = FAST, instance("twin"), instance("third")
    view = cluster(*three, rules=rules, shut=frozenset({"fast", "third"}))
    assert {view.choose(view.instances, CALL)[0] for _ in range(3)} == {1}
    view = cluster(*three, rules=rules, shut=frozenset({"fast", "third", "twin"}))
    assert {view.choose(view.instances, CALL)[0] for _ in range(3)} == {0, 1, 2}


@pytest.mark.parametrize(("cost_s", "load"), [(0.0, 1), (0.0004, 1), (1.5, 1500), (1e30, LONGEST_LOAD_MS)])
def test_a_load_is_at_least_a_millisecond_and_bounded(cost_s, load):
    assert load_ms(cost_s) == load


STAGES = definition(
    {
        "stages": {
            "any": {"prompt": "x" * 4000, "expect": {"output_tokens": 100}},
            "one": {"prompt": "x" * 4000, "model": "n", "expect": {"output_tokens": 100}},
            "nobody": {"prompt": "x" * 4000, "model": "z", "expect": {"output_tokens": 100}},
            "tool": {"tool": "t", "expect": {"seconds": 3}},
        }
    }
).stages


def test_a_stage_is_expected_to_take_the_mean_of_those_that_serve_it():
    view = cluster(FAST, SLOW)
    fast, slow = exec_s(FAST.profile, 1000, 100), exec_s(SLOW.profile, 1000, 100)
    assert view.stage_s("flow", STAGES["any"]) == pytest.approx((fast + slow) / 2)
    assert view.stage_s("flow", STAGES["one"]) == pytest.approx(slow)
    assert view.stage_s("flow", STAGES["tool"]) == 3


def test_where_nobody_serves_a_stage_all_are_taken_and_where_nobody_is_a_second():
    fast, slow = exec_s(FAST.profile, 1000, 100), exec_s(SLOW.profile, 1000, 100)
    assert cluster(FAST, SLOW).stage_s("flow", STAGES["nobody"]) == pytest.approx((fast + slow) / 2)
    assert cluster().stage_s("flow", STAGES["any"]) == 1.0
