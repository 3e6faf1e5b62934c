"""Workloads: recordings replayed, tenants and deadlines, and what policies are told of calls."""

from dataclasses import replace

import numpy as np
import pytest

from common.errors import InvalidDocument
from common.policy.cost import exec_s
from common.profiles import A100, L40S
from coordinator.simulator.expectation import Expectation, alone_s
from coordinator.simulator.trace import Trace, TracedCall, TracedWorkflow
from coordinator.simulator.workload import Workload, draw, with_arrivals

SHORT = (TracedCall("a", 1000, 100), TracedCall("b", 500, 10, needs=(0,)))
LONG = (
    TracedCall("a", 1000, 300),
    TracedCall("tool", 0, 0, needs=(0,), tool_s=2.0),
    TracedCall("b", 500, 30, needs=(1,)),
    TracedCall("a", 1000, 200, needs=(2,)),
)
TRACE: Trace = (
    TracedWorkflow(SHORT, "ann", 0.5, 2.0, arrival_s=10.0),
    TracedWorkflow(LONG, "bob", arrival_s=11.0),
    TracedWorkflow(SHORT, "bob", arrival_s=20.0),
)


def drawn(trace: Trace = TRACE, paths: str = "learned", **changes: object) -> Workload:
    given = {"count": 7, "rate": 1.0, "seed": 0, "slo_s": 100.0, "arrivals": "file", **changes}
    return draw(trace, Expectation(trace, [A100, L40S], paths), **given)  # type: ignore[arg-type]


def test_a_recording_is_replayed_in_its_order_and_rhythm_and_goes_round() -> None:
    workload = drawn()
    # Recorded at a mean gap of 5 s, asked for at one of 1 s; the first follows the last after a mean gap.
    assert workload.workflows["arrival"].tolist() == pytest.approx([0.0, 0.2, 2.0, 3.0, 3.2, 5.0, 6.0])
    assert workload.workflows["left"].tolist() == [2, 4, 2, 2, 4, 2, 2]
    assert drawn(rate=0.2).workflows["arrival"][2] == pytest.approx(10.0)


def test_other_seeds_start_at_other_places_of_the_recording() -> None:
    starts = {int(drawn(seed=seed).workflows["left"][:2] @ [1, 10]) for seed in range(12)}
    assert starts == {42, 24, 22}
    assert all(drawn(seed=seed).workflows["arrival"][0] == 0.0 for seed in range(12))


def test_without_recorded_arrivals_there_is_nothing_to_replay() -> None:
    with pytest.raises(InvalidDocument, match="has no arrival_s"):
        drawn(tuple(replace(workflow, arrival_s=None) for workflow in TRACE))
    with pytest.raises(InvalidDocument, match="at different times"):
        drawn(TRACE[:1])
    with pytest.raises(InvalidDocument, match="above 0"):
        drawn(rate=0.0)


def test_arrivals_can_be_written_into_a_trace() -> None:
    recorded = with_arrivals(TRACE * 100, "gamma", 2.0, 3)
    times = [workflow.arrival_s or 0.0 for workflow in recorded]
    assert times == sorted(times)
    assert drawn(recorded, count=300, rate=2.0).workflows["arrival"][-1] == pytest.approx(299 / 2.0)
    assert [workflow.calls for workflow in recorded] == [workflow.calls for workflow in TRACE * 100]


def test_each_workflow_has_its_tenants_deadline_and_weight() -> None:
    workload = drawn(count=3)
    workflows = workload.workflows
    assert [workload.tenants[number] for number in workflows["tenant"]] == ["ann", "bob", "bob"]
    assert workflows["weight"].tolist() == [2.0, 1.0, 1.0]
    assert workflows["slo_s"].tolist() == [50.0, 100.0, 100.0]
    assert (workflows["deadline"] == workflows["arrival"] + workflows["slo_s"]).all()


def mean_s(prompt: float, output: float) -> float:
    return float(np.mean([exec_s(profile, prompt, output) for profile in (A100, L40S)]))


def test_policies_are_told_means_and_an_average_path() -> None:
    calls = drawn(count=2).calls
    a, b = mean_s(1000, 175), mean_s(500, 50 / 3)
    assert calls["expected_tokens"].tolist() == pytest.approx([175, 50 / 3, 175, 0, 50 / 3, 175])
    # What follows a first `a`: in two of three workflows b, in one all the rest.
    rest = (2 * b + (2.0 + b + a)) / 3
    assert calls["rest_s"].tolist() == pytest.approx([rest, a / 3, rest, b + a, a / 3, 0.0])


def test_where_paths_are_known_they_are_the_workflows_own() -> None:
    a, b = mean_s(1000, 175), mean_s(500, 50 / 3)
    calls = drawn(paths="known", count=2).calls
    assert calls["rest_s"].tolist() == pytest.approx([b, 0.0, 2.0 + b + a, b + a, a, 0.0])
    assert calls["stage_s"].tolist() == pytest.approx([a, b, a, 2.0, b, a])


def test_an_oracle_is_told_the_truth() -> None:
    calls = drawn(oracle=True, count=2).calls
    assert (calls["expected_tokens"] == calls["output_tokens"]).all()
    times = [mean_s(1000, 300), 2.0, mean_s(500, 30), mean_s(1000, 200)]
    assert calls["stage_s"][2:].tolist() == pytest.approx(times)
    assert calls["rest_s"][2:].tolist() == pytest.approx([sum(times[1:]), sum(times[2:]), times[3], 0.0])


def test_single_calls_do_not_make_a_workflows_own_latency_shorter() -> None:
    single = TracedWorkflow((TracedCall("chat", 100, 10),))
    assert alone_s((*TRACE, single), A100) == alone_s(TRACE, A100)
    assert alone_s((single,), A100) == pytest.approx(exec_s(A100, 100, 10))
