"""The work a workflow still has before it, in expected seconds. Tools with a hint make the numbers plain."""

import pytest
from core_bench import TWO, Bench, definition, instance

from common.events import Outcome
from common.model import Usage
from common.policy.cost import exec_s
from common.policy.registry import policy
from coordinator.places import find
from coordinator.remaining import Remaining, best_s

PATH = policy("hexgen")._replace(budgets_along_path=True)
HALF = 0.5
"""How likely every `when` and `while` is as long as nothing has been learned."""


def tool(seconds, **keys):
    return {"tool": "t", "expect": {"seconds": seconds}, **keys}


def bench(stages, inputs=None, **keys):
    return Bench({"stages": stages}, inputs, **keys)


def left(bench):
    return Remaining(bench.workflow.definition, bench.workflow.nodes, bench.cluster).workflow_s()


DIAMOND = {"a": tool(1), "b": tool(2, needs=["a"]), "c": tool(4, needs=["a"]), "d": tool(8, needs=["b", "c"])}


def test_all_that_has_not_ended_is_summed():
    one = bench(DIAMOND)
    assert left(one) == 15
    one.submit()
    assert left(one) == 15
    one.complete("a")
    one.complete("c")
    assert left(one) == 10


def test_along_the_critical_path_the_longer_side_counts():
    one = bench(DIAMOND, rules=PATH)
    assert left(one) == 13
    one.submit()
    one.complete("a")
    one.complete("c")
    assert left(one) == 10


def test_after_the_last_stage_nothing_is_left():
    one = bench(DIAMOND).run()
    assert left(one) == 0


def test_parallel_copies_count_once():
    one = bench({"a": tool(3, for_each=[1, 2, 3])})
    assert left(one) == 3
    one.submit()
    assert left(one) == 3
    one.complete("a[1]")
    assert left(one) == 3


def test_of_a_join_the_longest_copy_that_must_complete_counts():
    inner = {"x": tool(10), "y": tool(2, needs=["x"])}
    for join, seconds in (("all", 12), ({"quorum": 2}, 2), ("first_success", 2)):
        one = bench({"a": {"for_each": [1, 2, 3], "join": join, "stages": inner}})
        one.submit()
        assert left(one) == 12
        one.complete("a[1].x")
        one.complete("a[2].x")
        assert left(one) == seconds


def test_an_optional_stage_that_has_failed_leaves_nothing():
    one = bench({"a": tool(10, optional=True), "b": tool(3)})
    one.submit()
    one.fail("a", retryable=False)
    assert left(one) == 3


def test_a_branch_counts_at_its_mean_until_it_is_decided():
    stages = {"a": tool(1), "b": tool(10, needs=["a"], when="a.output")}
    one = bench(stages)
    one.submit()
    assert left(one) == 1 + 10 * HALF
    one.complete("a", True)
    assert left(one) == 10
    other = bench(stages)
    other.submit()
    other.complete("a", False)
    assert left(other) == 0


def test_the_mean_of_a_branch_is_learned():
    one = bench({"a": tool(10, when="true")})
    spec = one.workflow.definition.stages["a"]
    for _ in range(97):
        one.estimates.saw_branch("flow", spec, False)
    assert left(one) == pytest.approx(10 * 0.015, rel=0.1)


def test_a_loop_counts_at_its_mean_given_the_rounds_done():
    one = bench({"a": tool(1, repeat={"while": "true", "max": 4}), "b": tool(100, needs=["a"])})
    assert left(one) == 100 + 1 + HALF + HALF**2 + HALF**3
    one.submit()
    assert left(one) == 100 + 1 + HALF + HALF**2 + HALF**3
    one.complete("a@0")
    assert left(one) == 100 + 1 + HALF + HALF**2
    one.complete("a@1")
    one.complete("a@2")
    assert left(one) == 101


def test_leaving_a_loop_removes_the_expected_rest():
    one = bench({"a": tool(8, repeat={"while": "output", "max": 100}), "b": tool(5, needs=["a"])})
    one.submit()
    assert left(one) == pytest.approx(21)
    one.complete("a@0", False)
    assert left(one) == 5


def test_what_is_left_of_a_loop_depends_on_the_rounds_done():
    """Learned from workflows that all go round exactly twice."""
    one = bench({"a": tool(10, repeat={"while": "output", "max": 9})})
    spec = one.workflow.definition.stages["a"]
    for _ in range(200):
        one.estimates.saw_round("flow", spec, 0, True)
        one.estimates.saw_round("flow", spec, 1, False)
    assert left(one) == pytest.approx(20, rel=0.02)
    one.submit()
    one.complete("a@0", True)
    assert left(one) == pytest.approx(10, rel=0.03)


def after(bench, key):
    remaining = Remaining(bench.workflow.definition, bench.workflow.nodes, bench.cluster)
    return remaining.after_s(find(bench.workflow.definition, key))


@pytest.mark.parametrize("rules", [None, PATH])
def test_after_a_request_its_own_path_counts_whatever_budgets_do(rules):
    one = bench(DIAMOND | {"e": tool(16, needs=["b"])}, rules=rules)
    assert {key: after(one, key) for key in "abcde"} == {"a": 18, "b": 16, "c": 8, "d": 0, "e": 0}


def test_after_a_request_in_a_loop_come_its_scope_the_further_rounds_and_what_waits_for_the_loop():
    group = {"stages": {"x": tool(1), "y": tool(2, needs=["x"]), "z": tool(1, needs=["x"])}}
    one = bench({"g": group | {"repeat": {"while": "true", "max": 3}}, "h": tool(10, needs=["g"], when="true")})
    one.submit()
    assert after(one, "g@0.x") == 2 + (HALF + HALF**2) * 3 + 10 * HALF
    assert after(one, "g@1.z") == HALF * 3 + 10 * HALF
    assert after(one, "g@2.y") == 10 * HALF


def test_a_copy_waits_for_no_other_copy():
    one = bench({"g": {"for_each": [1, 2, 3], "stages": {"x": tool(1), "y": tool(2, needs=["x"])}}})
    assert after(one, "g[1].x") == 2


@pytest.mark.parametrize(("rules", "round_s"), [(None, 3), (PATH, 2)])
def test_a_group_counts_by_its_own_stages(rules, round_s):
    group = {"stages": {"x": tool(1), "y": tool(2)}, "repeat": {"while": "true", "max": 2}}
    one = bench({"g": group}, rules=rules)
    assert left(one) == round_s * 1.5
    one.submit()
    one.complete("g@0.y")
    assert left(one) == 1 + round_s * HALF


def test_of_running_copies_the_longest_counts_whichever_it_is():
    stages = {"x": tool(1), "y": tool(2, needs=["x"])}
    one = bench({"g": {"for_each": [1, 2, 3], "stages": stages}})
    one.submit()
    assert left(one) == 3
    for index in (0, 1):
        one.complete(f"g[{index}].x")
        one.complete(f"g[{index}].y")
    assert left(one) == 3
    one.complete("g[2].x")
    assert left(one) == 2


def test_copies_that_repeat_count_as_the_one_that_has_most_before_it():
    one = bench({"a": tool(1, for_each=[1, 2], repeat={"while": "output", "max": 3})})
    one.submit()
    assert left(one) == 1.75
    one.complete("a[0]@0", True)
    assert left(one) == 1.75
    one.complete("a[1]@0", False)
    assert left(one) == 1 + HALF


def test_many_running_copies_cost_no_more_than_a_look_at_some():
    stages = {"x": tool(1), "y": tool(2, needs=["x"])}
    one = bench({"g": {"for_each": "range(1000) | list", "stages": stages}})
    one.submit()
    looked_at = []
    one.cluster.stage_s = lambda name, spec: looked_at.append(spec.path) or 1.0
    left(one)
    assert len(looked_at) < 100


def test_an_llm_stage_counts_as_the_mean_of_the_instances_that_serve_it():
    one = bench({"a": {"prompt": "x" * 4000, "expect": {"output_tokens": 100}}})
    costs = [exec_s(instance.profile, 1000, 100) for instance in one.cluster.instances]
    assert left(one) == pytest.approx(sum(costs) / 2)


def test_two_definitions_of_one_name_are_not_confused():
    one, other = definition({"stages": {"a": tool(1)}}), definition({"stages": {"a": tool(5)}})
    runs = Bench(one)
    assert Remaining(one, {}, runs.cluster).workflow_s() == 1
    assert Remaining(other, {}, runs.cluster).workflow_s() == 5


# -- without guesses


def best(bench):
    return best_s(bench.workflow.definition, bench.cluster)


def through(bench, key):
    return Remaining(bench.workflow.definition, bench.workflow.nodes, bench.cluster).through_s(
        find(bench.workflow.definition, key)
    )


LLM = {"prompt": "x" * 4000, "expect": {"output_tokens": 100}}


def test_at_best_each_request_is_on_the_instance_that_is_the_fastest_for_it():
    instances = (TWO[0], instance("n", "a6000", models=("n",)))
    one = bench({"a": LLM, "b": {**LLM, "model": "n", "needs": ["a"]}}, instances=instances)
    fast, slow = (exec_s(one.profile, 1000, 100) for one in instances)
    assert best(one) == pytest.approx(fast + slow)
    assert through(one, "a") == pytest.approx((fast + slow) / 2 + slow)


@pytest.mark.parametrize("rules", [None, PATH])
def test_at_best_the_critical_path_counts_whatever_budgets_do(rules):
    one = bench(DIAMOND, rules=rules)
    assert best(one) == 13
    assert through(one, "b") == 10


def test_what_is_only_guessed_counts_nothing_until_it_has_run():
    one = bench({"a": {"prompt": "x" * 4000}, "b": {"tool": "t", "needs": ["a"]}, "c": tool(2, needs=["b"])})
    assert best(one) == through(one, "a") == 2
    stages = one.workflow.definition.stages
    one.estimates.learn("flow", stages["a"], Outcome("x", usage=Usage(1000, 100), prompt_chars=4000))
    one.estimates.learn("flow", stages["b"], Outcome("x", run_ms=1000))
    one.register(*TWO)
    assert 2 < best(one) < through(one, "a")
    assert through(one, "b") > 2.1


def test_without_an_instance_that_serves_it_a_request_counts_nothing():
    one = bench({"a": LLM, "b": tool(2, needs=["a"])}, instances=())
    assert best(one) == through(one, "a") == 2
    one.register(instance("other", models=("n",)), instance("lost", status="lost"))
    assert best(bench({"a": {**LLM, "model": "m"}}, instances=one.cluster.instances)) == 0


def test_optional_stages_count_nothing_but_the_one_that_starts():
    one = bench({"a": tool(1, optional=True), "b": tool(2, needs=["a"], optional=True), "c": tool(4, needs=["b"])})
    assert best(one) == 4
    assert (through(one, "a"), through(one, "b"), through(one, "c")) == (5, 6, 4)
    assert left(one) == 7


def test_the_way_through_a_stage_leaves_its_loops_by_their_means():
    group = {"stages": {"x": tool(4, optional=True), "y": tool(2, needs=["x"])}}
    one = bench({"g": group | {"repeat": {"while": "true", "max": 3}}, "h": tool(10, needs=["g"])})
    assert through(one, "g@0.x") == 4 + 2 + (HALF + HALF**2) * 2 + 10
    assert through(one, "g@2.x") == 4 + 2 + 10
