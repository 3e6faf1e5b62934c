"""Runs of policies on the same workflows: which are made, in which order, and what is told of each."""

from dataclasses import replace
from statistics import fmean

import numpy as np
import pytest

from common.errors import InvalidDocument
from common.policy.registry import RATIOS, names
from common.profiles import A100, L40S
from coordinator.simulator import comparison
from coordinator.simulator.comparison import BEST, ORACLE, Run, Setting, compare, made, policies
from coordinator.simulator.trace import TracedCall, TracedWorkflow

CALLS = (TracedCall("draft", 6000, 300), TracedCall("check", 900, 40, (0,)), TracedCall("revise", 4000, 200, (1,)))
TRACE = (TracedWorkflow(CALLS), TracedWorkflow(CALLS[:2]))
SETTING = Setting.of(TRACE, [A100, L40S])
RUN = Run("flow", 0.2, 0, 40, 60.0)


def test_all_are_the_registrys_policies_and_those_of_hindsight() -> None:
    assert policies("all") == [*names(), BEST, ORACLE]
    assert policies("vllm, flow,vllm") == ["vllm", "flow"]
    with pytest.raises(InvalidDocument, match="'flowing' is not one of all, vllm"):
        policies("flow,flowing")


def test_runs_come_in_order_and_are_counted() -> None:
    runs = [replace(RUN, policy=policy, seed=seed) for policy in ("vllm", "flow") for seed in range(2)]
    heard: list[tuple[int, int]] = []
    found = compare(SETTING, runs, lambda done, total: heard.append((done, total)))
    assert [one.run for one in found] == runs
    assert heard == [(1, 4), (2, 4), (3, 4), (4, 4)]


@pytest.mark.slow
def test_processes_make_the_same_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [replace(RUN, seed=seed) for seed in range(4)]
    here = compare(SETTING, runs)
    monkeypatch.setattr(comparison, "WORTH_PROCESSES", 0)
    heard: list[int] = []
    assert [one.figures for one in compare(SETTING, runs, lambda done, _: heard.append(done))] == [
        one.figures for one in here
    ]
    assert heard == [1, 2, 3, 4]
    with pytest.raises(InvalidDocument, match="above 0"):
        compare(SETTING, [RUN, replace(RUN, rate=-1.0), RUN])


def test_the_best_is_the_best_of_all_tried_over_all_seeds() -> None:
    runs = [replace(RUN, policy=BEST, rate=0.3, seed=seed) for seed in range(2)]
    found = compare(SETTING, runs)
    tried = {
        r: fmean(made(SETTING, replace(one, policy="hexgen", parameters=(("r", r),))).figures["p95_s"] for one in runs)
        for r in RATIOS
    }
    assert len(set(tried.values())) > 1
    assert [(one.run.policy, one.run.seed) for one in found] == [(BEST, 0), (BEST, 1)]
    assert fmean(one.figures["p95_s"] for one in found) == min(tried.values())
    assert {round(r, 3) for r in RATIOS} >= {one.figures["r"] for one in found}
    assert len({one.figures["r"] for one in found}) == 1


def test_each_rate_has_a_best_of_its_own() -> None:
    found = compare(SETTING, [replace(RUN, policy=BEST, rate=rate) for rate in (0.05, 0.4)])
    assert [one.run.rate for one in found] == [0.05, 0.4]


def test_an_oracle_is_flow_with_the_truth() -> None:
    flow, oracle = (made(SETTING, replace(RUN, policy=policy)) for policy in ("flow", ORACLE))
    assert (flow.latency_s != oracle.latency_s).any()


def test_parameters_change_a_policy_and_are_checked() -> None:
    calm, keen = (made(SETTING, replace(RUN, parameters=(("urgency", value),))) for value in (0.0, 5.0))
    assert (calm.latency_s != keen.latency_s).any()
    with pytest.raises(InvalidDocument, match="flair"):
        made(SETTING, replace(RUN, parameters=(("flair", 1.0),)))


def test_figures_agree_with_the_latencies() -> None:
    one = made(SETTING, RUN)
    assert one.figures["p95_s"] == pytest.approx(np.percentile(one.latency_s, 95), abs=1e-3)
    assert one.figures["attainment"] == (one.slo_shares <= 1.0).mean()
    assert one.figures["goodput_per_s"] == pytest.approx(one.figures["attainment"] * one.figures["throughput_per_s"])
    assert "tenants" not in one.figures


def test_tenants_are_told_apart() -> None:
    trace = (TracedWorkflow(CALLS, tenant="chat", slo_scale=1e-6), TracedWorkflow(CALLS, tenant="reports"))
    one = made(Setting.of(trace, [A100, L40S]), replace(RUN, rate=0.01))
    assert one.figures["tenants"] == {"chat": 0.0, "reports": 1.0}
    assert one.figures["fairness"] == 0.5
