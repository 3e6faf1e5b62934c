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


def test_the_commands(tmp_path: Path) -> None:
    for name in ("trace.json", "cluster.yaml"):
        (tmp_path / name).write_text(block(name))
    told = []
    for line in block("commands").splitlines():
        program, *words = shlex.split(line)
        assert program == "hexgen-flow"
        command = [sys.executable, "-m", "hexgen_flow", *words]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=170)
        assert (line, done.returncode, done.stderr) == (line, 0, "")
        told.append(done.stdout)
    assert "hexgen-no-pq" in told[0]
    assert len(json.loads(told[1])["runs"]) == 2 * 2 * 5
