"""scripts/chaos for a minute, and the controls that show it would notice."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

CHAOS = Path(__file__).resolve().parents[2] / "scripts" / "proofs" / "chaos.py"


def chaos(folder: Path, *options: str) -> tuple[int, dict[str, Any], str]:
    """Exit code, figures, what was found."""
    command = [sys.executable, str(CHAOS), *options, "--json"]
    own = os.environ | {"TMPDIR": str(folder)}  # where it leaves its logs, if it finds fault
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False, cwd=folder, env=own)
    assert done.returncode in (0, 1), done.stderr
    return done.returncode, json.loads(done.stdout or "{}"), done.stderr


@pytest.mark.slow
def test_nothing_is_lost_and_nothing_done_twice(tmp_path: Path) -> None:
    code, figures, told = chaos(tmp_path, "--seconds", "60", "--seed", "1")
    assert code == 0, told
    assert [figures[name] for name in ("lost", "wrong", "double_effects", "residue")] == [0, 0, 0, 0]
    assert figures["completed"] + figures["cancelled"] == figures["workflows"] > 20
    assert figures["amended"] > 0
    assert len(figures["faults"]) == 12  # each kind


def found_out(folder: Path, what: str, fault: str) -> bool:
    """Whether one of a few short runs without it shows this fault: in a single one chance may have spared it."""
    for seed in ("8", "9", "10", "11"):
        code, figures, told = chaos(folder, "--seconds", "15", "--seed", seed, "--without", what)
        if figures[fault] > 0:
            assert code == 1, told
            return True
    return False


@pytest.mark.slow
def test_without_leases_workflows_are_lost(tmp_path: Path) -> None:
    assert found_out(tmp_path, "lease", "lost")


@pytest.mark.slow
def test_without_the_fence_results_count_twice(tmp_path: Path) -> None:
    assert found_out(tmp_path, "fence", "double_effects")
