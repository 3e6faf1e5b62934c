"""Copies race in real processes: the first ends the stage, the others leave their engine long before they are done."""

import time
from pathlib import Path

import pytest
from deployment import Deployment
from redis import Redis

from common.store.embedded import EmbeddedServer
from common.store.keys import Keys

pytestmark = pytest.mark.slow

LONG = "word " * 2000  # echoed it is 2,500 tokens: more than a minute
RACE = {
    "name": "race",
    "inputs": {"texts": {"type": "array"}},
    "stages": {
        "race": {
            "for_each": "inputs.texts",
            "join": "first_success",
            "prompt": "{{ item.text }}",
            "max_tokens": 100_000,
            "retries": 0,
        },
        "extra": {"needs": ["race"], "optional": True, "prompt": "{{ 1 / 0 }}"},
    },
    "output": "[race.output, extra.status]",
}


def test_losers_are_aborted_in_their_engine(server: EmbeddedServer, namespace: str, tmp_path: Path) -> None:
    with Deployment(server, namespace, tmp_path) as cell:
        cell.define(RACE)
        cell.worker("only", "--engine", "simulated", "--profile", "a100", "--responder", "echo")
        while "only" not in cell.instances():
            time.sleep(0.05)
        texts = [{"text": LONG}, {"no text": "fails"}, {"text": "short"}]
        started_at = time.monotonic()
        workflow = cell.client.submit("race", {"texts": texts})
        events = cell.events(workflow)
        ended = [event.data for event in events if event.type == "stage_completed"]
        assert [(data["stage"], data["status"]) for data in ended] == [("race", "completed"), ("extra", "failed")]
        assert events[-1].data["output"] == ["short", "failed"]
        while (cell.instances()["only"]["load"] or {"running": True})["running"]:
            assert time.monotonic() < started_at + 40, "its answer takes longer than this"
            time.sleep(0.1)
        keys = Keys(namespace)
        with Redis.from_url(server.url) as store:
            assert store.zcard(keys.leases) == store.zcard(keys.delayed) == 0
            assert store.keys(f"{keys.prefix}request:*") == []
