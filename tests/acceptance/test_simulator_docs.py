"""docs/simulator.md as it stands there."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
TEXT = (Path(__file__).resolve().parents[2] / "docs" / "simulator.md").read_text("utf-8")


def block(name: str) -> str:
    found = re.search(rf"^<!-- test: {re.escape(name)} -->\n+```\w+\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
    assert found
    return found[1]


def outputs(name: str, folder: Path) -> list[str]:
    """What the commands of a block print, run one after the other in a folder with the files of the page."""
    for file in ("trace.json", "cluster.yaml", "clusters.yaml"):
        (folder / file).write_text(block(file))
    told = []
    for line in block(name).splitlines():
        program, *words = shlex.split(line)
        assert program == "hexgen-flow"
        command = [sys.executable, "-m", "hexgen_flow", *words]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=170)
        assert (line, done.returncode, done.stderr) == (line, 0, "")
        told.append(done.stdout)
    return told


def test_the_commands(tmp_path: Path) -> None:
    table, runs, _ = outputs("commands", tmp_path)
    assert "hexgen-no-pq" in table
    figures = json.loads(runs)["runs"]
    assert len(figures) == 2 * 2 * 5
    assert set(figures[0]) <= set(re.findall(r"`(\w+)`", TEXT))
    assert {path.stem for path in (tmp_path / "simulation").iterdir()} == {
        "p95-0.05", "attainment-0.05", "latency-0.05", "instances",
    }  # fmt: skip
    assert json.loads((tmp_path / "events.json").read_text())["traceEvents"]


def test_the_plans(tmp_path: Path) -> None:
    table, found = outputs("plans", tmp_path)
    assert "the cheapest that holds 0.05 workflows/s" in table
    found = json.loads(found)
    assert {*found, *found["candidates"][0]} <= set(re.findall(r"`(\w+)`", TEXT))
