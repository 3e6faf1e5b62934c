"""scripts/bench decision gives a figure for every policy."""

import json
import subprocess
import sys
from pathlib import Path

from common.policy.registry import names

BENCHMARK = Path(__file__).resolve().parents[2] / "scripts" / "benchmarks" / "decision.py"


def test_every_policy_has_its_figure() -> None:
    command = [sys.executable, str(BENCHMARK), "--instances", "2", "--json"]
    told = json.loads(subprocess.run(command, check=True, capture_output=True, timeout=60).stdout)
    assert told["instances"] == 2
    assert list(told["decision_us"]) == names()
    assert all(0.0 < micros < 1e6 for micros in told["decision_us"].values())
