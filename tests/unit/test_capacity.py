"""The search for the highest rate, and the choice of a cluster by it."""

from dataclasses import replace

import pytest

from common.errors import InvalidDocument
from common.policy.registry import RATIOS
from common.profiles import A100, L40S
from coordinator.simulator.capacity import Load, Verdict, cheapest, highest_rate, holds, judge
from coordinator.simulator.cluster import Candidate
from coordinator.simulator.comparison import BEST, Setting
from coordinator.simulator.trace import TracedCall, TracedWorkflow

TRACE = (TracedWorkflow((TracedCall("draft", 6000, 300), TracedCall("check", 900, 40, (0,)))),)
SETTING = Setting.of(TRACE, [A100, L40S])
LOAD = Load(slo_s=40.0, seeds=3, workflows=100)


def searched(policy: str, setting: Setting = SETTING, slo_s: float = 40.0) -> float:
    return highest_rate(setting, policy, slo_s=slo_s, seeds=3, workflows=100)


@pytest.mark.slow
def test_the_rate_found_is_held_and_a_little_more_is_not() -> None:
    rate = searched("flow")
    assert holds(SETTING, "flow", (), LOAD, rate)
    assert not holds(SETTING, "flow", (), LOAD, 1.02 * rate)


def test_more_hardware_and_a_better_policy_hold_more() -> None:
    assert searched("vllm") < searched("flow") < 0.7 * searched("flow", Setting.of(TRACE, [A100, L40S] * 2))


def test_the_best_in_hindsight_holds_most_of_those_tried() -> None:
    best = searched(BEST)
    fixed = [highest_rate(SETTING, "hexgen", (("r", r),), slo_s=40.0, seeds=3, workflows=100) for r in RATIOS[::5]]
    assert best >= 0.98 * max(fixed)


def test_a_deadline_that_no_rate_meets_and_one_that_all_do() -> None:
    assert searched("flow", slo_s=5.0) == 0.0
    with pytest.raises(InvalidDocument, match="slo: is met at every rate"):
        searched("flow", slo_s=1e6)


def test_a_candidate_is_judged_at_the_rate_asked_for() -> None:
    candidate = Candidate("pair", (A100, L40S), 5.0)
    low, high = (judge(TRACE, "flow", LOAD, rate, candidate) for rate in (0.02, 2.0))
    assert (low.holds, high.holds) == (True, False)
    assert low.attainment == 1.0
    assert low.highest_rate == high.highest_rate
    assert low.price_per_1000 == pytest.approx(5.0 / 3600 / low.highest_rate * 1000)


def test_a_trace_that_fits_nowhere_is_a_fault_of_that_candidate() -> None:
    small = judge(TRACE, "flow", LOAD, None, Candidate("small", (replace(A100, kv_tokens=5000),)))
    assert not small.holds
    assert small.fault == "has a call of 6300 tokens; no instance of the cluster holds over 5000"


def test_the_cheapest_is_that_for_the_rate_or_for_a_workflow() -> None:
    def verdict(name: str, price: float | None, rate: float, *, held: bool = True) -> Verdict:
        return Verdict(Candidate(name, (A100,), price), held, rate)

    verdicts = [verdict("large", 8.0, 4.0), verdict("small", 3.0, 1.0), verdict("poor", 1.0, 0.5, held=False),
                verdict("unpriced", None, 9.0)]  # fmt: skip
    for rate, name in ((0.9, "small"), (None, "large")):
        best = cheapest(verdicts, rate)
        assert best is not None
        assert best.candidate.name == name
    assert cheapest(verdicts[2:], 1.0) is None
