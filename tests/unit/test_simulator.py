"""The simulator: what it reads, what it draws, and what holds of every run."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from common.errors import InvalidDocument
from common.policy.registry import POLICIES
from common.profiles import A100, L40S
from coordinator.simulator import compiled
from coordinator.simulator.expectation import Expectation, alone_s, rounds
from coordinator.simulator.simulation import HOP_S, Outcome, simulate
from coordinator.simulator.trace import Trace, TracedCall, TracedWorkflow, read_trace
from coordinator.simulator.workload import Workload, arrival_times, draw

PUBLISHED = [
    {"Text2SQLRequest": [
        {"step": "keywords", "input_length": 600, "output_length": 40},
        {"step": "generate_candidate_a", "input_length": 9000, "output_length": 600},
        {"step": "generate_candidate_b", "input_length": 8000, "output_length": 500},
        {"step": "revise", "input_length": 6000, "output_length": 150},
        {"step": "revise", "input_length": 6100, "output_length": 0},
        {"step": "evaluate", "input_length": 900, "output_length": 20},
        {"step": "evaluate", "input_length": 950, "output_length": 25},
    ]},
    {"Text2SQLRequest": [{"step": "keywords", "input_length": 500, "output_length": 30}]},
]  # fmt: skip
CLUSTER = [A100, L40S]


def read(tmp_path: Path, document: object) -> Trace:
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(document))
    return read_trace(path)


@pytest.fixture
def trace(tmp_path: Path) -> Trace:
    return read(tmp_path, PUBLISHED)


def drawn(trace: Trace, **changes: object) -> Workload:
    given = {"count": 60, "rate": 0.1, "seed": 1, "slo_s": 200.0, **changes}
    return draw(trace, Expectation(trace, CLUSTER), **given)  # type: ignore[arg-type]


def ran(workload: Workload, policy: str = "flow") -> Outcome:
    return simulate(workload, CLUSTER, POLICIES[policy])


def test_candidates_and_evaluations_run_side_by_side_all_else_in_line(trace: Trace) -> None:
    assert [call.needs for call in trace[0].calls] == [(), (0,), (0,), (1, 2), (3,), (4,), (4,)]
    assert trace[0].calls[4].output_tokens == 1
    assert rounds(trace[0].calls) == [0, 0, 0, 0, 1, 0, 0]


def test_our_own_format(tmp_path: Path) -> None:
    call = {"stage": "a", "prompt_tokens": 100, "output_tokens": 5, "prefix": [["shared", 40], [".mine", 60]]}
    tool = {"stage": "t", "prompt_tokens": 0, "output_tokens": 0, "tool_s": 2.5, "needs": [0]}
    found = read(tmp_path, [{"calls": [call, tool, call]}])
    assert [one.needs for one in found[0].calls] == [(), (0,), (1,)]
    workload = drawn(found, count=2)
    came = ran(workload)
    assert workload.blocks["end"].tolist() == [40, 60, 60]
    assert (came.latency_s > 2.5).all()
    assert workload.calls["instance"].tolist() == [pytest.approx(0, abs=1), -1, pytest.approx(0, abs=1)] * 2


@pytest.mark.parametrize(
    ("document", "place", "fault"),
    [
        ({}, "trace.json[0]", "a list of calls"),
        ([], "trace.json", "at least one"),
        ([{"calls": []}], "trace.json[0]", "has no calls"),
        ([{"a": [], "b": []}], "trace.json[0]", "under one name"),
        ([{"x": [{"step": "a", "input_length": 5}]}], "trace.json[0].0.output_length", "not None"),
        ([{"x": [{"step": "a", "input_length": -5, "output_length": 5}]}], "trace.json[0].0.input_length", "not -5"),
        ([{"x": [{"step": "a", "input_length": 10**12, "output_length": 5}]}], "trace.json[0].0.input_length", "to"),
        ([{"x": [{"stepp": "a"}]}], "trace.json[0].0.stepp", "is not one of"),
        ([{"calls": [{"stage": "a", "prompt_tokens": 1, "output_tokens": 1, "needs": [0]}]}], "needs", "before"),
        ([{"calls": [{"stage": "a", "prompt_tokens": 9, "output_tokens": 1, "prefix": [["k", 99]]}]}], "prefix", "the"),
        ([{"calls": [{"stage": "a", "prompt_tokens": 1, "output_tokens": 1, "tool_s": -1}]}], "tool_s", "seconds"),
    ],
)  # fmt: skip
def test_a_bad_trace_is_refused_with_place_and_fault(tmp_path: Path, document: object, place: str, fault: str) -> None:
    with pytest.raises(InvalidDocument) as refused:
        read(tmp_path, document)
    assert place in refused.value.field
    assert fault in refused.value.message


@pytest.mark.parametrize(("kind", "spread"), [("poisson", 1.0), ("gamma", 3.0)])
def test_arrivals_have_the_rate_and_the_spread_asked_for(kind: str, spread: float) -> None:
    gaps = np.diff(arrival_times(kind, 200_000, 0.5, np.random.default_rng(1)))
    assert gaps.mean() == pytest.approx(2.0, rel=0.05)
    assert gaps.std() / gaps.mean() == pytest.approx(spread, rel=0.05)


def test_a_step_triples_the_rate_half_way() -> None:
    times = arrival_times("step", 100_000, 0.5, np.random.default_rng(1))
    assert len(times) / times[-1] == pytest.approx(0.5, rel=0.01)
    assert times[49_999] / (times[-1] - times[49_999]) == pytest.approx(3.0, rel=0.05)


@pytest.mark.parametrize("rate", [0.0, -1.0, float("nan"), float("inf")])
def test_a_rate_that_is_none_is_refused(trace: Trace, rate: float) -> None:
    with pytest.raises(InvalidDocument, match="above 0"):
        drawn(trace, rate=rate)


def test_a_call_that_fits_nowhere_is_refused(trace: Trace) -> None:
    with pytest.raises(InvalidDocument, match="has a call of 9600 tokens; no instance of the cluster holds over 9000"):
        simulate(drawn(trace), [replace(L40S, kv_tokens=9000)] * 2, POLICIES["flow"])


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_a_call_goes_only_where_it_fits(trace: Trace, policy: str) -> None:
    workload = drawn(trace)
    simulate(workload, [A100, replace(L40S, kv_tokens=9000)], POLICIES[policy])
    long = workload.calls["prompt_tokens"] + workload.calls["output_tokens"] > 9000
    assert set(workload.calls["instance"][long]) == {0}
    assert set(workload.calls["instance"]) == {0, 1}


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_every_call_ends_once_after_those_it_needs(trace: Trace, policy: str) -> None:
    workload = drawn(trace)
    came = ran(workload, policy)
    calls = workload.calls
    assert came.calls == sum(came.served) == len(calls)
    assert (calls["ready_at"] <= calls["started_at"]).all()
    assert (calls["started_at"] < calls["ended_at"]).all()
    assert (calls["generated"] == calls["output_tokens"]).all()
    for call in calls:
        for child in workload.children[call["first_child"] : call["first_child"] + call["children"]]:
            assert calls[child]["ready_at"] >= call["ended_at"] + HOP_S - 1e-9
    assert (workload.workflows["ended_at"] > workload.workflows["arrival"]).all()
    assert all(0.0 < share <= 1.0 + 1e-9 for share in came.busy)


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_a_run_is_the_same_again(trace: Trace, policy: str) -> None:
    first, again = ran(drawn(trace), policy), ran(drawn(trace), policy)
    assert (first.latency_s == again.latency_s).all()
    assert (ran(drawn(trace, seed=2), policy).latency_s != first.latency_s).any()


def test_alone_a_workflow_takes_as_long_as_expected(trace: Trace) -> None:
    workload = draw(trace[:1], Expectation(trace[:1], [A100] * 4), count=1, rate=1.0, seed=1, slo_s=900.0)
    came = simulate(workload, [A100] * 4, POLICIES["flow"])
    assert came.latency_s[0] == pytest.approx(alone_s(trace[:1], A100), rel=0.05)


def test_a_shared_prefix_saves_work() -> None:
    call = TracedCall("a", 4000, 50, prefix=(("shared", 3500),))
    came = ran(drawn((TracedWorkflow((call,)),), count=30))
    assert 0.7 < came.cached < 0.875
    assert ran(drawn((TracedWorkflow((replace(call, prefix=()),)),), count=30)).cached == 0.0


def test_compiled_and_interpreted_are_the_same(trace: Trace, monkeypatch: pytest.MonkeyPatch) -> None:
    assert compiled.compiled_run() is not None
    fast = ran(drawn(trace))
    monkeypatch.setattr("coordinator.simulator.simulation.compiled_run", lambda: None)
    assert ran(drawn(trace)).latency_s == pytest.approx(fast.latency_s, rel=1e-9)


def test_better_policies_are_better(trace: Trace) -> None:
    """On a loaded cluster, what the paper and its successor are for."""
    p95 = {name: ran(drawn(trace, count=200, rate=0.12), name).percentile_s(95) for name in ("vllm", "hexgen", "flow")}
    assert p95["flow"] < p95["hexgen"] < p95["vllm"]
