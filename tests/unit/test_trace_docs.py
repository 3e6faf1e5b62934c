"""docs/traces.md as it stands there."""

import json
import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from coordinator.simulator.trace import TracedCall, TracedWorkflow, read_trace
from hexgen_flow.cli import main

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "traces.md").read_text("utf-8")


def block(name: str) -> str:
    found = re.search(rf"^<!-- test: {re.escape(name)} -->\n+```\w+\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
    assert found
    return found[1]


def test_the_trace_is_read(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text(block("trace.json"))
    trace = read_trace(path)
    assert [(workflow.tenant, workflow.slo_scale, workflow.arrival_s) for workflow in trace] == [
        ("reports", 2.0, 0.0),
        ("default", 0.2, 3.5),
    ]


def test_the_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for line in block("commands").splitlines():
        program, *words = shlex.split(line)
        done = CliRunner().invoke(main, words)
        assert (line, program, done.exit_code) == (line, "hexgen-flow", 0), done.output
    assert len(read_trace(tmp_path / "made.json")) == 300


def test_the_trace_of_opentelemetry_is_read_shown_and_replayed(tmp_path: Path) -> None:
    path = tmp_path / "otel.json"
    later = block("otel.json").replace('"5b8e"', '"77ab"').replace('"17600000', '"17600001')
    path.write_text(block("otel.json") + later)
    calls = (
        TracedCall("draft", 900, 60),
        TracedCall("before chat qwen", 0, 0, (0,), 2.5),
        TracedCall("chat qwen", 1200, 30, (1,)),
    )
    assert read_trace(path) == tuple(TracedWorkflow(calls, "reports", arrival_s=at) for at in (0.0, 100.0))
    shown = json.loads(ran("trace", "show", str(path), "--json"))
    assert (shown["workflows"], shown["tenants"], shown["arrivals"]) == (2, {"reports": 2}, True)
    assert shown["stages"]["before chat qwen"]["tool_s"] == 2.5
    assert "before chat qwen" in ran("trace", "show", str(path))
    options = (
        "--policy",
        "flow",
        "--rate",
        "0.1",
        "--workflows",
        "4",
        "--seeds",
        "1",
        "--arrivals",
        "file",
        "--no-plots",
        "--json",
    )
    (run,) = json.loads(ran("simulate", "--trace", str(path), *options))["runs"]
    assert run["calls"] == 4 * len(calls)
    assert run["p50_s"] > 2.5


def ran(*words: str) -> str:
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 0, done.output
    return done.output
