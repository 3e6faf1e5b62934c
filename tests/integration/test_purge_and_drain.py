"""The commands `purge` and `drain` on a real server: what they take away, and what they leave."""

import asyncio
import json

import pytest
from click.testing import CliRunner, Result
from operations_bench import accept, commit, dispatched, join, mail, push, queued

from common.events import Evacuated
from common.store.cell import Cell
from common.store.embedded import EmbeddedServer
from common.store.inbox import End
from common.store.retention import PAGE
from hexgen_flow.cli import main


async def run(server: EmbeddedServer, cell: Cell, *words: str) -> Result:
    """A command, which has a loop of its own, in a thread of its own."""
    environment = {"HEXGEN_REDIS_URL": server.url, "HEXGEN_NAMESPACE": cell.keys.namespace}
    invoke = CliRunner().invoke
    return await asyncio.to_thread(invoke, main, list(words), env=environment, catch_exceptions=False)


async def end(cell: Cell, workflow: str) -> None:
    result = End("completed", {"status": "completed"}, 60_000)
    assert await commit(cell, 0, 1, workflow=workflow, events=[("completed", {})], end=result) == 1


async def keys(cell: Cell, workflow: str) -> set[str]:
    found = await cell.client.keys(f"{cell.keys.workflow(workflow)}*")
    return {key.decode().removeprefix(cell.keys.workflow(workflow)) for key in found}


async def test_an_ended_workflow_is_forgotten_and_its_id_is_free(server: EmbeddedServer, cell: Cell) -> None:
    await accept(cell)
    await end(cell, "w1")
    assert await keys(cell, "w1") == {"", ":events", ":result"}
    done = await run(server, cell, "purge", "w1", "--json")
    assert (done.exit_code, json.loads(done.stdout)) == (0, {"workflow": "w1", "purged": 1})
    assert await keys(cell, "w1") == set()
    assert await accept(cell, digest="another") == "accepted"


async def test_one_that_runs_is_refused_and_one_nobody_knows_too(server: EmbeddedServer, cell: Cell) -> None:
    await accept(cell)
    before = await keys(cell, "w1")
    done = await run(server, cell, "purge", "w1")
    assert (done.exit_code, done.stderr) == (3, "Error: workflow w1 cannot be purged: it is running\n")
    assert await keys(cell, "w1") == before
    done = await run(server, cell, "purge", "w2")
    assert (done.exit_code, done.stderr) == (1, "Error: nothing is known of w2 here (yet, or any more)\n")


async def test_all_that_have_ended_are_forgotten_and_no_other(server: EmbeddedServer, cell: Cell) -> None:
    ended = [f"w{number}" for number in range(3)]
    for workflow in [*ended, "runs"]:
        await accept(cell, workflow)
    for workflow in ended:
        await end(cell, workflow)
    async with Cell.opened(server.url, cell.keys.namespace + "-other") as other:
        await accept(other)
        await end(other, "w1")
        assert (await run(server, cell, "purge", "--ended")).stdout == "3 workflows are forgotten\n"
        assert await keys(other, "w1") == {"", ":events", ":result"}
    assert [await keys(cell, workflow) for workflow in ended] == [set()] * 3
    assert await cell.records.status("runs") == "running"
    assert await mail(cell, "runs") != []


async def test_more_than_a_page_of_them(cell: Cell) -> None:
    names = {f"w{number}" for number in range(3 * PAGE)}
    pipeline = cell.client.pipeline(transaction=False)
    for name in names:
        pipeline.hset(cell.keys.workflow(name), "status", "failed")
        pipeline.hset(cell.keys.outputs(name), "s", "x")
    await pipeline.execute()
    pages = [page async for page in cell.retention.kept()]
    assert {name for page in pages for name in page} == names
    assert sum([await cell.retention.purge(page) for page in pages]) == len(names)


@pytest.mark.parametrize("words", [(), ("w1", "--ended")])
async def test_purge_is_told_what(server: EmbeddedServer, cell: Cell, words: tuple[str, ...]) -> None:
    done = await run(server, cell, "purge", *words)
    assert (done.exit_code, done.stderr) == (
        2, "Error: WORKFLOW: name one workflow, or give --ended for all that have ended\n",
    )  # fmt: skip


@pytest.mark.strange_keys("it claims by hand")
async def test_drain_sends_the_queue_elsewhere_and_leaves_what_runs(server: EmbeddedServer, cell: Cell) -> None:
    seat = await dispatched(cell, push("r1", "s"))
    await cell.client.sadd(cell.keys.claimed("a"), "r0")
    done = await run(server, cell, "drain", "a", "--json")
    told = {"instance": "a", "status": "draining", "moved": 1, "running": 1}
    assert (done.exit_code, json.loads(done.stdout)) == (0, told)
    assert await queued(cell) == []
    assert await mail(cell) == [Evacuated("r1", "s")]
    assert await cell.queues.renew(seat, 60_000, []) == ("draining", [])
    again = await run(server, cell, "drain", "a")
    assert again.stdout == "a is draining: 0 queued requests go elsewhere, 1 still run\n"


async def test_an_instance_that_is_just_joining_stays_drained(cell: Cell) -> None:
    seat = await join(cell)
    await cell.instances.evacuate("a", "joining", seat.epoch)
    await cell.instances.evacuate("a", "draining", seat.epoch)
    await cell.instances.evacuate("a", "ready", seat.epoch)
    assert (await cell.instances.all())[0].status == "draining"
    await join(cell)
    assert (await cell.instances.all())[0].status == "ready"


async def test_nobody_of_that_name_can_be_drained(server: EmbeddedServer, cell: Cell) -> None:
    await cell.instances.remove("a", (await join(cell)).epoch)
    done = await run(server, cell, "drain", "a")
    assert done.exit_code == 1
    assert done.stderr == "Error: no instance a is registered; hexgen-flow instances shows those that are\n"
    assert await cell.client.hget(cell.keys.instance("a"), "status") == b"gone"
