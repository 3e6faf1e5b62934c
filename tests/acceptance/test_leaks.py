"""When workflows have ended, in whatever way, nothing of them stays in Redis for ever."""

import os
import sqlite3
from pathlib import Path
from typing import Any

import plugins
import pytest
import redis
from deployment import Deployment, chain
from leaks import check_for_leaks, documented, leaks

from common.store.embedded import EmbeddedServer
from common.store.keys import Keys

TOOL: dict[str, Any] = {
    "name": "tool",
    "stages": {"query": {"tool": "sql.execute", "args": {"database": "shop", "sql": "SELECT 7 AS n"}}},
    "output": "query.output.rows",
}
WIDE: dict[str, Any] = {
    "name": "wide",
    "stages": {
        "parts": {"for_each": [1, 2, 3], "prompt": "say {{ item }}"},
        "again": {"prompt": "say {{ round }}", "repeat": {"while": "round < 2", "max": 3}},
    },
}


def test_nothing_of_an_ended_workflow_stays(server: EmbeddedServer, namespace: str, tmp_path: Path) -> None:
    sqlite3.connect(tmp_path / "shop.sqlite").close()
    home = str(plugins.install(tmp_path / "own"))
    own = os.pathsep.join([home, *filter(None, [os.environ.get("PYTHONPATH")])])
    with Deployment(server, namespace, tmp_path, PYTHONPATH=own) as cell:
        cell.define(TOOL, WIDE, chain(2, max_tokens=1_000_000))
        simulated = ("--engine", "simulated", "--time-scale", "20", "--responder", "obedient")
        cell.worker("fast", *simulated)
        cell.worker("leaves", *simulated, "--grace-s", "0")
        cell.tools("tools", "--database", f"shop=sqlite:///{tmp_path / 'shop.sqlite'}")
        failing = cell.client.submit(chain(1, retries=1), {"text": "crash"}, tenant="acme")
        lingering = [cell.client.submit("chain2", {"text": "linger"}) for _ in range(4)]
        good = [
            cell.client.submit("wide", stream=True), cell.client.submit("tool", id="order-1"),
            cell.client.submit("tool", id="order-1"), cell.client.submit("chain2", {"text": "say it"}),
        ]  # fmt: skip
        refused = cell.client.submit("unheard-of")
        ends = [cell.events(workflow)[-1].type for workflow in [*good, failing, refused]]
        assert ends == ["completed"] * 4 + ["failed", "rejected"]
        for workflow in lingering:
            cell.until(workflow, "stage_started")
        cell.processes.stop_one("leaves")
        for workflow in lingering:
            cell.client.cancel(workflow)
        assert [cell.events(workflow)[-1].type for workflow in lingering] == ["cancelled"] * 4
        cell.client.cancel(lingering[0])  # of what has ended: an answer of its own
        check_for_leaks(server.url, namespace)


@pytest.mark.strange_keys("it is about them")
@pytest.mark.parametrize(
    ("command", "told"),
    [
        (("hset", "request:r1", "token", 1), "request:r1, a hash, stays for ever"),
        (("set", "definition:d1", "x"), "definition:d1, a string, stays for ever"),
        (("hset", "instance:gone", "status", "gone"), "instance:gone, a hash, stays for ever"),
        (("zadd", "leases", 1, "r1"), "leases, a zset, stays for ever"),
        (("set", "novel", "x", "PX", 60_000), "novel, a string, is not in docs/protocol.md"),
        (("set", "live", "x", "PX", 60_000), "live, a string, is not in docs/protocol.md"),
    ],
)
def test_what_stays_is_found(server: EmbeddedServer, namespace: str, command: tuple[Any, ...], told: str) -> None:
    keys = Keys(namespace)
    with redis.Redis.from_url(server.url) as store:
        store.execute_command("hset", keys.ended, "completed", 1)  # may stay
        assert leaks(store, keys) == []
        name, key, *rest = command
        store.execute_command(name, keys.prefix + key, *rest)
        assert leaks(store, keys) == [told]


THEIRS = [
    ("hset", "workflow:w", "status", "running"), ("rpush", "workflow:w:mailbox", "due - a"),
    ("hset", "workflow:w:outputs", "a", "x"), ("hset", "request:r1", "workflow", "w"), ("zadd", "queue:a", 1, "r1"),
    ("zadd", "leases", 1, "r1"), ("sadd", "claimed:a", "r1"), ("zadd", "delayed", 1, "w a"),
    ("hset", "outstanding", "acme", 1),
]  # fmt: skip


@pytest.mark.parametrize("command", THEIRS, ids=lambda command: command[1])
def test_what_a_workflow_needs_may_stay_as_long_as_it_runs(
    server: EmbeddedServer, namespace: str, command: tuple[Any, ...]
) -> None:
    keys = Keys(namespace)
    with redis.Redis.from_url(server.url) as store:
        for name, key, *rest in [("zadd", "live", 1, "w"), THEIRS[3], command]:
            store.execute_command(name, keys.prefix + key, *rest)
        assert leaks(store, keys, running=True) == []
        assert [told for told in leaks(store, keys) if told.startswith(f"{command[1]}, ")] != []
        store.delete(keys.live)
        assert [told for told in leaks(store, keys, running=True) if told.startswith(f"{command[1]}, ")] != []
        store.zadd(keys.live, {"w": 1})


def test_the_protocol_names_its_keys() -> None:
    assert len(documented()) > 30
