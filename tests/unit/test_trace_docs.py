"""docs/traces.md as it stands there."""

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from coordinator.simulator.trace import read_trace
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
