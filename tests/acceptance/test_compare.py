"""scripts/compare live: one small run of it, with all its processes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

LIVE = Path(__file__).resolve().parents[2] / "scripts" / "benchmarks" / "live.py"


@pytest.mark.slow
def test_a_small_run_is_compared_with_its_prediction(tmp_path: Path) -> None:
    options = [
        "--policies",
        "vllm,hexgen",
        "--workflows",
        "4",
        "--rate",
        "0.05",
        "--scale",
        "40",
        "--seeds",
        "1",
        "--json",
    ]
    done = subprocess.run(
        [sys.executable, str(LIVE), *options],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        cwd=tmp_path,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert {run["policy"] for run in told["runs"]} == {"vllm", "hexgen"}
    for row in told["policies"].values():
        # Four workflows say little, but one that is lost, or times scaled wrongly, would be far off.
        assert 0.5 < row["ratio_p50_s"] < 2
        assert 0 < row["live_p50_s"] <= row["live_p95_s"]


def test_an_unknown_policy_is_named(tmp_path: Path) -> None:
    command = [sys.executable, str(LIVE), "--policies", "fastest"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path)
    assert done.returncode == 2
    assert "'fastest' is not one of" in done.stderr
