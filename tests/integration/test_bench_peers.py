"""scripts/bench dispatch: its bookkeeping, and one small run of it."""

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "scripts" / "benchmarks"


@pytest.fixture
def chains(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return module("chains", monkeypatch)


def module(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module(name)


def test_a_percentile_is_a_value_that_was_measured(chains: ModuleType) -> None:
    values = [float(value) for value in range(1, 201)]
    assert [chains.percentile(values, percent) for percent in (0, 50, 99, 99.1, 100)] == [1, 100, 198, 199, 200]
    assert chains.percentile([7.0], 50) == 7.0


def test_figures_of_a_run(chains: ModuleType) -> None:
    run = chains.Chains(chains.Load(chains=2, length=3, payload_bytes=1))
    run.handed_on(0, [0.001, 0.003])
    run.ended(0)
    run.handed_on(1, [0.002])
    assert not run.over
    run.handed_on(1, [0.004])
    run.ended(1)
    assert run.figures(elapsed_s=2.0) == chains.Figures(requests_per_s=3.0, p50_ms=2.0, p99_ms=4.0)


@pytest.mark.parametrize("gaps", [[], [0.1, 0.1]])
def test_a_lost_or_repeated_request_is_an_error(chains: ModuleType, gaps: list[float]) -> None:
    run = chains.Chains(chains.Load(chains=1, length=2, payload_bytes=1))
    run.handed_on(0, gaps)
    with pytest.raises(chains.BenchmarkError, match=f"chain 0 ended with {len(gaps) + 1} of 2 requests"):
        run.ended(0)
    with pytest.raises(chains.BenchmarkError, match="only 0 of 1 chains ended"):
        run.figures(1.0)


def test_a_chain_ends_once(chains: ModuleType) -> None:
    run = chains.Chains(chains.Load(chains=1, length=2, payload_bytes=1))
    run.handed_on(0, [0.1])
    run.ended(0)
    with pytest.raises(chains.BenchmarkError, match="or twice"):
        run.ended(0)


def test_the_middle_of_runs_is_taken_figure_by_figure(chains: ModuleType) -> None:
    runs = [chains.Figures(10, 3, 9), chains.Figures(30, 1, 8), chains.Figures(20, 2, 7)]
    assert chains.middle(runs) == chains.Figures(20, 2, 8)


@pytest.mark.parametrize("size", [1, 7, 2048])
def test_a_prompt_has_the_size_asked_for(chains: ModuleType, size: int) -> None:
    assert len(chains.prompt(size).encode()) == size
    assert chains.prompt(size) == chains.prompt(size)


def test_a_row_shows_each_name_at_its_best(chains: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    dispatch = module("dispatch", monkeypatch)
    measured = {
        ("rq", "job"): [chains.Figures(100, 1, 2)],
        ("rq", "driver"): [chains.Figures(200, 3, 4)],
        ("hexgen_flow", "coordinator"): [chains.Figures(1500, 5, 6)],
    }
    row = dispatch.row(chains.Load(1, 2, 2048), measured)
    assert row["results"]["rq"] == {"requests_per_s": 200, "p50_ms": 3, "p99_ms": 4, "next_enqueued_by": "driver"}
    assert row["times_rq"] == {"rq": 1.0, "hexgen_flow": 7.5}
    assert "1500" in dispatch.table(row)


def test_a_small_run_prints_one_json_object() -> None:
    options = ["--only", "rq", "--chains", "3", "--length", "3", "--payload", "100", "--repeats", "1", "--json"]
    done = subprocess.run(
        [sys.executable, str(BENCHMARKS / "dispatch.py"), *options],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    [row] = told["rows"]
    figures = row["results"]["rq"]
    assert row["payload_bytes"] == 100
    assert figures["requests_per_s"] > 0
    assert 0 < figures["p50_ms"] <= figures["p99_ms"]
    assert row["times_rq"] == {"rq": 1.0}
    assert told["redis_version"].startswith(("redis", "valkey"))
