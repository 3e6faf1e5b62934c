"""Limits with real processes: they are the cell's, whichever coordinator takes a submission, and room comes back."""

import time
from pathlib import Path

import plugins
import pytest
import redis
from deployment import Deployment, chain

from common.store.embedded import EmbeddedServer
from common.store.keys import Keys
from hexgen_flow.client import Client, Rejected

LIMIT = 8
BURST = 200
ONE = chain(1, max_tokens=1_000_000)


def until_answered(store: "redis.Redis", keys: Keys) -> None:
    """Until no submission waits."""
    until = time.monotonic() + 60
    while store.xlen(keys.submissions):
        assert time.monotonic() < until
        time.sleep(0.05)


@pytest.mark.slow
def test_a_burst_beyond_the_limit_is_told_when_to_retry(server: EmbeddedServer, namespace: str, tmp_path: Path) -> None:
    keys = Keys(namespace)
    own = {"PYTHONPATH": str(plugins.install(tmp_path / "own"))}
    with Deployment(server, namespace, tmp_path, **own) as cell, redis.Redis.from_url(server.url) as store:
        store.hset(keys.limits, "workflows", LIMIT)
        cell.coordinator("first")
        cell.coordinator("second")
        cell.worker("only", "--engine", "simulated", "--time-scale", "20", "--responder", "obedient")
        cell.client.wait(cell.client.submit(ONE, {"text": "say it"}), timeout_s=30)  # all are up
        submitted = [cell.client.submit(ONE, {"text": "linger"}) for _ in range(BURST)]
        until_answered(store, keys)
        answers = [next(cell.client.events(workflow, timeout_s=30)) for workflow in submitted]
        running = [workflow for workflow, answer in zip(submitted, answers, strict=True) if answer.type == "accepted"]
        refused = [workflow for workflow, answer in zip(submitted, answers, strict=True) if answer.type == "rejected"]
        assert (len(running), len(refused)) == (LIMIT, BURST - LIMIT)
        assert store.zcard(keys.live) == LIMIT
        for workflow in refused[::20]:
            with pytest.raises(Rejected, match=f"the cell runs {LIMIT} of {LIMIT} workflows") as told:
                cell.client.wait(workflow, timeout_s=30)
            assert told.value.retry_after_s is not None
            assert 1 <= told.value.retry_after_s <= 60
        for workflow in running:
            cell.client.cancel(workflow)
        assert [cell.events(workflow)[-1].type for workflow in running] == ["cancelled"] * LIMIT
        again = cell.client.submit(ONE, {"text": "say it"})
        assert cell.client.wait(again, timeout_s=30)["status"] == "completed"
        assert store.exists(keys.running, keys.workflow_tenants) == 0


def test_other_refusals_give_no_time(server: EmbeddedServer, namespace: str, tmp_path: Path) -> None:
    with Deployment(server, namespace, tmp_path) as cell, Client(server.url, namespace) as client:
        cell.coordinator()
        with pytest.raises(Rejected) as told:
            client.wait(client.submit("unheard-of"), timeout_s=30)
        assert told.value.retry_after_s is None
