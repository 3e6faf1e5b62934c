"""Traffic leaves nothing behind: once what was kept for a while is gone, Redis holds as much as before it came."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from deployment import Deployment, chain

from common.store.embedded import EmbeddedServer
from common.store.keys import Keys

PERIODS, WORKFLOWS = 5, 600
KEEP_S, KEEP_TRACES = "2", 100
SIZES = {"hash": "hlen", "zset": "zcard", "stream": "xlen", "set": "scard", "list": "llen", "string": "exists"}
PASSING = ("answer:", "claim:", "wake:")
"""Kept for ten minutes, for a lease, until somebody looks: there or not at any moment, and few."""
TOLERANCE = 32 << 10
"""Bytes that three periods may leave: 18 for each workflow. While it is kept, one has some thousand."""


@pytest.fixture
def own(tmp_path: Path, program: Path | None) -> Iterator[EmbeddedServer]:
    """A server with nothing else in it; of what it writes down nothing is to be counted."""
    with EmbeddedServer.start(tmp_path / "server", program=program, appendonly=False) as running:
        yield running


def traffic(store: Any, keys: Keys, period: int) -> None:
    """Workflows of as many tenants, some refused, some cancelled while they wait for their retry, some with a
    definition of their own."""
    pipeline = store.pipeline(transaction=False)
    for number in range(WORKFLOWS):
        document: dict[str, Any] = {"workflow": "chain2", "inputs": {"text": f"text {number} of {period}"}}
        document |= {"tenant": f"tenant-{period}-{number}", "stream": number % 3 == 0}
        if number % 10 == 0:
            document = {"workflow": f"unheard-of-{period}-{number}"}
        if number % 10 == 1:
            document = {"workflow": {"name": "toolless", "stages": {"a": {"tool": "no.such"}}}}
        if number % 10 == 2:
            own = {"name": "own", "description": f"{number} of {period}", "stages": {"a": {"prompt": "x"}}}
            document |= {"workflow": own, "inputs": {}}
        pipeline.xadd(keys.submissions, {"json": json.dumps(document)})
    entries = pipeline.execute()
    until(lambda: store.xlen(keys.submissions) == 0)
    for entry in entries[1::10]:
        pipeline.xadd(keys.submissions, {"json": json.dumps({"cancel": entry.decode()})})
    pipeline.execute()


def until(holds: Any) -> None:
    give_up_at = time.monotonic() + 120
    while not holds():
        assert time.monotonic() < give_up_at
        time.sleep(0.05)


def is_over(store: Any, keys: Keys) -> bool:
    """All has ended, and what is kept for a while is gone."""
    if store.exists(keys.live) or store.xlen(keys.submissions) or store.exists(keys.shares):
        return False
    kept = (f"{keys.prefix}workflow:*", f"{keys.prefix}definition:*:uses")
    return all(next(store.scan_iter(names, count=1000), None) is None for names in kept)


def sizes(store: Any, keys: Keys) -> dict[str, int]:
    """How much is in each key that does not pass soon."""
    found = {}
    for key in store.scan_iter(f"{keys.prefix}*", count=1000):
        name, size = key.decode().removeprefix(keys.prefix), SIZES[store.type(key).decode()]
        if not name.startswith(PASSING):
            found[name] = int(getattr(store, size)(key))
    return found


@pytest.mark.slow
def test_a_day_of_traffic_in_short_does_not_grow_memory(own: EmbeddedServer, namespace: str, tmp_path: Path) -> None:
    keys, after, used = Keys(namespace), [], []
    kept = {"HEXGEN_KEEP_DONE_S": KEEP_S, "HEXGEN_KEEP_FAILED_S": KEEP_S, "HEXGEN_KEEP_TRACES": str(KEEP_TRACES)}
    with redis.Redis.from_url(own.url) as store, Deployment(own, namespace, tmp_path, **kept) as cell:
        cell.define(chain(2))
        cell.worker("one", "--engine", "noop")
        cell.worker("other", "--engine", "noop")
        for period in range(PERIODS):
            traffic(store, keys, period)
            until(lambda: is_over(store, keys))
            after.append(sizes(store, keys))
            used.append(store.info("memory")["used_memory_dataset"])
        assert int(store.hget(keys.ended, "completed") or 0) == PERIODS * WORKFLOWS * 8 // 10
        cell.processes.check()
    traces = [found.pop("traces") for found in after]
    assert KEEP_TRACES <= min(traces) <= max(traces) <= 2 * KEEP_TRACES  # cut where it is cheap
    assert {"learned", "ended", "served", "backlog"} <= set(after[0])
    assert after[1:] == after[1:2] * (PERIODS - 1)
    assert max(used[2:]) - used[1] < TOLERANCE, used
