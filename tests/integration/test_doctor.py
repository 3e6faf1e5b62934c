"""The command `doctor` against real servers: one that is well, and what is told of one that is not."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from operations_bench import LEASE_MS, ROOM, dispatched, join, push

from common.store.cell import Cell
from common.store.client import connect_sync
from common.store.embedded import EmbeddedServer
from common.store.keys import Keys
from common.store.offers import Offer
from hexgen_flow.cli import main

TOOLED = {"name": "tooled", "stages": {"s": {"tool": "sql.execute", "args": {}}}}


async def text(url: str, cell: Cell, *words: str, lease_s: int = 1) -> tuple[int, str]:
    """The code it leaves with and its output; it has a loop of its own, and so a thread of its own."""
    environment = {"HEXGEN_REDIS_URL": url, "HEXGEN_NAMESPACE": cell.keys.namespace, "HEXGEN_LEASE_S": str(lease_s)}
    invoke = CliRunner().invoke
    done = await asyncio.to_thread(invoke, main, ["doctor", *words], env=environment, catch_exceptions=False)
    return done.exit_code, done.stdout


async def told(url: str, cell: Cell, lease_s: int = 1) -> tuple[int, dict[str, dict[str, Any]]]:
    code, shown = await text(url, cell, "--json", lease_s=lease_s)
    found = json.loads(shown)
    assert found["namespace"] == cell.keys.namespace
    assert code == (1 if found["faults"] else 0)
    for name, state in (("faults", "fault"), ("warnings", "warning")):
        assert found[name] == sum(one["state"] == state for one in found["checks"])
    return code, {one["check"]: one for one in found["checks"]}


def states(found: dict[str, dict[str, Any]], state: str) -> set[str]:
    return {check for check, one in found.items() if one["state"] == state}


@pytest.fixture
async def limited(cell: Cell, server: EmbeddedServer) -> AsyncIterator[Any]:
    """Makes a user that may do less; gives its URL."""

    async def make(*rights: str) -> str:
        rules = ("on", ">pw", "allkeys", "allcommands", *rights)
        await cell.client.execute_command("ACL", "SETUSER", cell.keys.namespace, *rules)
        return f"redis://{cell.keys.namespace}:pw@127.0.0.1:{server.port}/0"

    yield make
    await cell.client.execute_command("ACL", "DELUSER", cell.keys.namespace)


async def is_new(cell: Cell) -> bool:
    """Whether the server tells rights: from 7.0 on."""
    return int((await cell.checkup.info())["redis_version"].partition(".")[0]) >= 7


async def test_a_cell_that_is_well_has_no_fault_and_no_warning(server: EmbeddedServer, cell: Cell) -> None:
    await cell.coordinators.announce("one", "flow", 60_000)
    await join(cell)
    await cell.records.register("tooled", "d1", TOOLED, 60_000)
    with connect_sync(server.url) as connection:
        Offer(connection, Keys(cell.keys.namespace), "tools-1", ["sql.execute"], 60_000).renew()
    code, found = await told(server.url, cell, lease_s=60)
    assert code == 0, found
    assert states(found, "ok") == set(found), found
    assert found["schema"]["found"] == "version 1"
    assert found["tools"]["found"] == "1 tool workers have all of sql.execute"
    code, shown = await text(server.url, cell, lease_s=60)
    assert code == 0, shown
    assert [line.split()[0] for line in shown.splitlines()] == ["ok"] * len(found)


async def test_a_server_that_is_not_there_is_the_one_fault(cell: Cell) -> None:
    code, found = await told("redis://127.0.0.1:1/0", cell)
    assert (code, set(found)) == (1, {"server"})
    assert "cannot be reached" in found["server"]["found"]
    code, shown = await text("redis://127.0.0.1:1/0", cell)
    assert shown.splitlines()[1].strip() == "-> start it, or correct --redis / HEXGEN_REDIS_URL"


async def test_a_cell_where_nobody_is(server: EmbeddedServer, cell: Cell) -> None:
    await cell.client.delete(cell.keys.schema)
    await cell.records.register("tooled", "d1", TOOLED, 60_000)
    code, found = await told(server.url, cell)
    assert code == 1
    assert states(found, "fault") == {"coordinators", "instances"}
    assert states(found, "warning") == {"schema", "tools"}
    assert found["tools"]["found"] == "no tool worker for sql.execute (used by tooled)"


async def test_what_is_stuck_is_told(server: EmbeddedServer, cell: Cell) -> None:
    seat = await dispatched(cell, push("r1", "s"))
    await cell.queues.claim(seat, "c1", LEASE_MS, ROOM)
    assert states((await told(server.url, cell))[1], "fault") == {"coordinators"}
    await cell.client.zadd(cell.keys.leases, {"r1": await cell.records.now_ms() - 2100})
    await cell.client.delete(cell.keys.submissions)  # it has had a later one
    await cell.inbox.prepare()
    await cell.client.xadd(cell.keys.submissions, {"json": "{}"}, id="1-1")
    await cell.client.xadd(cell.keys.dead, {"request": "r9"})
    found = (await told(server.url, cell))[1]
    assert states(found, "fault") == {"coordinators", "leases"}
    assert states(found, "warning") == {"streams", "dead letters"}


@pytest.mark.strange_keys("what is not ours stays")
async def test_what_is_not_ours_hides_nothing_else(server: EmbeddedServer, cell: Cell) -> None:
    await cell.client.hset(cell.keys.workflows, "w", "d1")
    await cell.client.set(cell.keys.definition("d1"), b"\xc1")
    await cell.client.set(cell.keys.leases, "no sorted set")
    found = (await told(server.url, cell))[1]
    assert states(found, "fault") == {"coordinators", "instances", "tools", "leases", "dead letters"}


async def test_an_unknown_schema_is_a_fault(server: EmbeddedServer, cell: Cell) -> None:
    await cell.client.hset(cell.keys.schema, "version", "7")
    found = (await told(server.url, cell))[1]
    assert "schema version 7" in found["schema"]["found"]
    assert (found["schema"]["state"], found["schema"]["advice"].split()[0]) == ("fault", "install")


async def test_a_server_without_aof_that_evicts_has_two_faults(server: EmbeddedServer, cell: Cell) -> None:
    await cell.client.config_set("maxmemory-policy", "allkeys-lru")
    await cell.client.config_set("appendonly", "no")
    try:
        found = (await told(server.url, cell))[1]
    finally:
        await cell.client.config_set("maxmemory-policy", "noeviction")
        await cell.client.config_set("appendonly", "yes")
    assert {"memory", "persistence"} <= states(found, "fault")


async def test_a_user_that_may_not_ask_gets_warnings(limited: Any, cell: Cell) -> None:
    found = (await told(await limited("-info", "-config", "-acl"), cell))[1]
    assert {"version", "memory", "persistence", "cluster"} <= states(found, "warning")
    new = await is_new(cell)
    # INFO is what a lease is taken back with: coordinators and workers need it.
    assert found["rights"]["state"] == ("fault" if new else "ok")
    assert found["rights"]["found"].startswith("this user may not run INFO" if new else "this user")


async def test_a_user_that_may_not_write_is_told_of_each_command(limited: Any, cell: Cell) -> None:
    found = (await told(await limited("-zadd", "-xgroup", "-xreadgroup"), cell))[1]
    if await is_new(cell):
        refused = "XGROUP CREATE, XGROUP DELCONSUMER, XREADGROUP, ZADD"
        assert found["rights"]["found"] == f"user {cell.keys.namespace} may not run {refused}"
    else:
        assert found["rights"]["state"] == "ok"


async def test_a_user_with_other_keys_is_told_of_those(limited: Any, cell: Cell) -> None:
    url = await limited("resetkeys", f"~{cell.keys.prefix}*")
    found = (await told(url, cell))[1]
    if await is_new(cell):
        assert found["rights"]["found"].endswith("may not run RPUSH on rq:*")
    url = await limited("resetkeys", "~rq:*")
    code, found = await told(url, cell)
    assert code == 1
    assert "coordinators" in states(found, "fault")


@pytest.mark.slow
def test_a_server_in_cluster_mode_is_told_apart(tmp_path: Path) -> None:
    with EmbeddedServer.start(tmp_path, extra_args=("--cluster-enabled", "yes")) as clustered:
        done = CliRunner().invoke(main, ["doctor", "--redis", clustered.url, "--json"], catch_exceptions=False)
    found = {one["check"]: one for one in json.loads(done.stdout)["checks"]}
    assert (found["cluster"]["state"], found["version"]["state"]) == ("warning", "ok")
