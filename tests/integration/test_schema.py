"""The version of a namespace's keys: who writes it, and who keeps out of a namespace with another."""

import asyncio
import os
import subprocess
import sys

import pytest

from common.errors import StoreRefused
from common.store.cell import Cell
from common.store.embedded import EmbeddedServer
from common.store.schema import SCHEMA

WORDS = {
    "coordinator": ["coordinator"],
    "worker": ["worker", "--instance", "a", "--engine", "noop"],
    "tools": ["tools"],
    "tuner": ["tuner"],
}


async def test_the_first_coordinator_writes_it_and_a_later_one_leaves_it(cell: Cell) -> None:
    assert await cell.schema.read() == b"%d" % SCHEMA
    await cell.inbox.prepare()
    assert await cell.schema.read() == b"%d" % SCHEMA


async def test_a_namespace_that_has_lost_its_data_gets_it_anew(cell: Cell) -> None:
    await cell.client.delete(*await cell.client.keys(f"{cell.keys.prefix}*"))
    await cell.inbox.forget_consumers(1000)  # as its coordinators do, which meet no group then
    assert await cell.schema.read() == b"%d" % SCHEMA


@pytest.mark.parametrize("found", [b"2", b"1.5", b"\xff"])
async def test_an_unknown_one_is_refused_and_nothing_is_written(server: EmbeddedServer, found: bytes) -> None:
    async with Cell.opened(server.url, f"schema-{found.hex()}") as cell:
        await cell.client.hset(cell.keys.schema, "version", found)
        with pytest.raises(StoreRefused, match="has schema version"):
            await cell.inbox.prepare()
        assert await cell.client.keys(f"{cell.keys.prefix}*") == [cell.keys.schema.encode()]


@pytest.mark.slow
@pytest.mark.parametrize("process", WORDS)
async def test_each_process_says_so_in_one_sentence_and_ends(cell: Cell, server: EmbeddedServer, process: str) -> None:
    await cell.client.hset(cell.keys.schema, "version", str(SCHEMA + 1))
    environment = os.environ | {"HEXGEN_REDIS_URL": server.url, "HEXGEN_NAMESPACE": cell.keys.namespace}
    command = [sys.executable, "-m", "hexgen_flow", *WORDS[process]]
    done = await asyncio.to_thread(subprocess.run, command, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 3
    told = (
        f"Error: namespace {cell.keys.namespace} has schema version {SCHEMA + 1}, and this hexgen-flow knows {SCHEMA}: "
    )
    assert done.stderr.splitlines()[-1].startswith(told)
    assert "Traceback" not in done.stderr
    assert await cell.client.keys(f"{cell.keys.prefix}instance*") == []
    assert await cell.client.keys(f"{cell.keys.prefix}offers") == []
