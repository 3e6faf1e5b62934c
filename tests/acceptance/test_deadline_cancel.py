"""Deadlines that end their workflow, in real processes: though no coordinator saw them come, and in the engines too."""

import time
from pathlib import Path

import pytest
from deployment import Deployment
from redis import Redis

from common.store.embedded import EmbeddedServer
from common.store.keys import Keys

pytestmark = pytest.mark.slow

SLO_S = 8.0
LONG = "word " * 2000  # echoed it is 2,500 tokens: more than a minute
MANY = {
    "name": "many",
    "inputs": {"text": {"type": "string"}},
    "stages": {"copies": {"for_each": "range(80) | list", "prompt": "{{ inputs.text }}", "max_tokens": 100_000}},
}


def test_the_next_coordinator_ends_what_is_overdue(server: EmbeddedServer, namespace: str, tmp_path: Path) -> None:
    with Deployment(server, namespace, tmp_path) as cell, Redis.from_url(server.url) as store:
        cell.define(MANY)
        cell.worker("only", "--engine", "simulated", "--profile", "a100", "--responder", "echo")
        cell.client.wait(cell.client.submit("many", {"text": "short"}), timeout_s=60)  # all are up
        workflow = cell.client.submit("many", {"text": LONG}, slo_s=SLO_S, on_deadline="cancel")
        other = cell.client.submit("many", {"text": LONG}, slo_s=SLO_S)
        keys = Keys(namespace)
        deadline_at = cell.until(workflow, "accepted").data["deadline_at"]
        for one in (workflow, other):
            cell.until(one, "stage_started")
        while not store.zcard(keys.leases):
            time.sleep(0.05)
        cell.kill("coordinator")
        while store.time()[0] * 1000 <= deadline_at:  # type: ignore[index]
            time.sleep(0.1)
        cell.coordinator("second")
        result = cell.events(workflow)[-1].data
        assert (result["status"], result["error"]) == ("cancelled", "its deadline has passed")
        assert result["elapsed_s"] >= SLO_S
        cell.client.cancel(other)  # it goes on until somebody asks for its end
        assert cell.events(other)[-1].data["error"] == "cancelled by request"
        ended_at = time.monotonic()
        while (cell.instances()["only"]["load"] or {"running": True})["running"]:
            assert time.monotonic() < ended_at + 40, "its answers take longer than this"
            time.sleep(0.1)
        assert store.zcard(keys.leases) == store.zcard(keys.delayed) == 0
        assert store.keys(f"{keys.prefix}request:*") == []
        cell.processes.check()
