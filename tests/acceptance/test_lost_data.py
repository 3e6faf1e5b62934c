"""Redis loses all it held while real processes run: they say so and go on, none of them started again."""

import os
import signal
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis
from deployment import Deployment, chain

from common.store.embedded import EmbeddedServer

pytestmark = pytest.mark.slow
ENDLESS = chain(1, max_tokens=100_000, timeout_s=3600)
SHORT: dict[str, Any] = {
    "name": "short",
    "stages": {
        "say": {"prompt": "a word", "max_tokens": 1},
        "query": {"tool": "sql.execute", "args": {"database": "shop", "sql": "SELECT 7 AS n"}, "needs": ["say"]},
    },
    "output": "query.output.rows",
}


SLOW = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 5000000) SELECT count(*) FROM n"
QUERY: dict[str, Any] = {
    "name": "query",
    "stages": {"query": {"tool": "sql.execute", "args": {"database": "shop", "sql": SLOW}}},
}


def flush(server: EmbeddedServer, folder: Path) -> EmbeddedServer:
    with redis.Redis.from_url(server.url) as connection:
        connection.flushall()
    return server


def restart_without_data(server: EmbeddedServer, folder: Path) -> EmbeddedServer:
    os.kill(server.pid, signal.SIGKILL)
    server.stop()
    return EmbeddedServer.start(folder, port=server.port, appendonly=False)


def until_running(cell: Deployment, count: int) -> None:
    """Until the engine has so many requests, by what its worker tells with each renewal."""
    while (cell.instances().get("busy", {}).get("load") or {}).get("running") != count:
        time.sleep(0.05)


@pytest.mark.parametrize("lose", [flush, restart_without_data])
def test_all_go_on_when_the_data_is_lost(
    namespace: str, tmp_path: Path, lose: Callable[[EmbeddedServer, Path], EmbeddedServer]
) -> None:
    sqlite3.connect(tmp_path / "shop.sqlite").close()
    server = EmbeddedServer.start(tmp_path / "redis", appendonly=False)
    try:
        with Deployment(server, namespace, tmp_path) as cell:
            cell.define(ENDLESS, SHORT)
            cell.worker("busy", "--engine", "simulated", "--responder", "echo:100000")
            cell.tools("tools", "--database", f"shop=sqlite:///{tmp_path / 'shop.sqlite'}")
            cell.until(cell.client.submit("chain1", {"text": "talk for an hour"}), "stage_started")
            until_running(cell, 1)
            cell.until(cell.client.submit(QUERY), "stage_started")
            with redis.Redis.from_url(server.url) as connection:
                while connection.zcard(f"{{hexgen:{namespace}}}:leases") < 2:
                    time.sleep(0.01)
            server = lose(server, tmp_path / "redis")
            # Submitted at once, before anybody has noticed.
            assert cell.client.wait(cell.client.submit("short"), timeout_s=60)["output"] == [[7]]
            until_running(cell, 0)
            cell.processes.check()
            assert "instance busy is not registered any more: the data of namespace" in cell.log("busy")
            assert (
                "not registered any more, so the data of this namespace is gone: text2sql, chain1, short;"
                in cell.log("coordinator")
            )
    finally:
        server.stop()
