"""In real processes a workflow that is given an earlier deadline overtakes those that were before it."""

import os
import signal
import time
from pathlib import Path

import pytest
from deployment import Deployment, chain
from redis import Redis

from common.store.embedded import EmbeddedServer
from common.store.keys import Keys

TEXT = "word " * 2000
"""2,500 tokens, more than a worker claims at a time: they start one after the other."""


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["flow", "hexgen"])
def test_an_amended_workflow_overtakes(server: EmbeddedServer, namespace: str, tmp_path: Path, policy: str) -> None:
    keys = Keys(namespace)
    with (
        Deployment(server, namespace, tmp_path, HEXGEN_POLICY=policy, HEXGEN_LEASE_S="30") as cell,
        Redis.from_url(server.url) as store,
    ):
        cell.define(chain(1, max_tokens=8))
        cell.worker("only", "--engine", "simulated", "--no-prefix-cache")
        while cell.instances().get("only", {}).get("status") != "ready":
            time.sleep(0.05)
        os.kill(cell.pids["only"], signal.SIGSTOP)
        for name in ("w0", "w1", "w2"):
            cell.client.submit("chain1", {"text": TEXT}, id=name, slo_s=600)
        while store.zcard(keys.queue("line")) + store.zcard(keys.queue("only")) < 3:
            time.sleep(0.05)
        cell.client.amend("w2", slo_s=0.1)
        cell.until("w2", "amended")
        os.kill(cell.pids["only"], signal.SIGCONT)
        ends = {name: cell.events(name)[-1] for name in ("w0", "w1", "w2")}
    ended_at = {name: int(end.id.partition("-")[0]) for name, end in ends.items()}
    assert {end.type for end in ends.values()} == {"completed"}
    assert ended_at["w2"] < ended_at["w1"]
    assert (ends["w2"].data["slo_s"], ends["w2"].data["slo_met"]) == (0.1, False)
    assert (ends["w1"].data["slo_s"], ends["w1"].data["slo_met"]) == (600, True)
