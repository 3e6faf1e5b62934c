"""An instance drained from outside, real processes: what runs ends where it is, and the worker ends with it."""

import json
import time
from pathlib import Path

import pytest
from click.testing import CliRunner
from deployment import Deployment, chain

from common.store.embedded import EmbeddedServer
from hexgen_flow.cli import main


@pytest.mark.slow
def test_a_drained_worker_finishes_what_runs_and_ends(server: EmbeddedServer, namespace: str, tmp_path: Path) -> None:
    with Deployment(server, namespace, tmp_path) as cell:
        cell.define(chain(1))
        cell.worker("leaving", "--profile", "a100", "--responder", "echo:400")
        runs = cell.client.submit("chain1", {"text": "a question"})
        while not ((cell.instances().get("leaving") or {}).get("load") or {}).get("running"):
            time.sleep(0.05)
        done = CliRunner().invoke(main, ["drain", "leaving", "--json"], env=cell.environment, catch_exceptions=False)
        told = {"instance": "leaving", "status": "draining", "moved": 0, "running": 1}
        assert json.loads(done.stdout) == told
        waits = cell.client.submit("chain1", {"text": "another"})
        assert cell.events(runs)[-1].type == "completed"
        assert cell.processes.ended("leaving", 30) == 0
        assert "instance leaving is marked draining" in cell.log("leaving")
        assert "has run 1 requests" in cell.log("leaving")  # neither given back nor taken anew
        assert "leaving" not in cell.instances()
        cell.worker("staying", "--profile", "a100", "--time-scale", "20")
        assert cell.events(waits)[-1].type == "completed"
