"""scripts/load, small: a full cell costs what an empty one does, and a flood loses nothing. Counts, no times."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

LOAD = Path(__file__).resolve().parents[2] / "scripts" / "proofs" / "load.py"


def load(folder: Path, *options: str) -> tuple[dict[str, Any], str]:
    """Figures, and what was found."""
    command = [sys.executable, str(LOAD), *options, "--json"]
    own = os.environ | {"TMPDIR": str(folder)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False, cwd=folder, env=own)
    assert done.returncode in (0, 1), done.stderr
    return json.loads(done.stdout), done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["flow", "hexgen"])
def test_work_in_a_full_cell_costs_as_many_commands_as_in_an_empty_one(tmp_path: Path, policy: str) -> None:
    sizes = ("--workflows", "200", "--tenants", "200", "--rounds", "20", "--policy", policy)
    figures, told = load(tmp_path, "full", *sizes)
    few, full = figures["few"], figures["full"]
    assert [(one["workflows"], one["requests"]) for one in (few, full)] == [(10, 100), (200, 2000)]
    assert [figures[name]["completed"] for name in ("empty", "few", "full")] == [200, 200, 200], told
    assert full["commands_per_round"] < 1.1 * few["commands_per_round"]
    assert full["bytes_per_request"] < 8_000
    assert full["bytes_per_workflow"] < 20_000


@pytest.mark.slow
def test_a_flood_is_refused_and_nothing_of_it_lost(tmp_path: Path) -> None:
    figures, told = load(tmp_path, "flood", "--seconds", "12", "--times", "10", "--workflows", "40")
    assert figures["offered"] == figures["completed"] + figures["refused"]
    assert figures["lost"] == 0, told
    assert min(figures["completed"], figures["refused"]) > 20
    assert figures["most_live"] <= 40
    assert "is left" not in told
    assert "try again" not in told
    assert "grown" not in told
