"""An operation that is refused half-way, by a right its user lacks (as with an old ACL file), loses no workflow."""

import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest
from operations_bench import LEASE_MS, ROOM, accept, commit, dispatched, join, mail, push, queued

from common.errors import AttemptFailed, StoreRefused
from common.events import Completed, Evacuated, Failed, Lost, Outcome, Submitted
from common.lineup import Placement
from common.model import LINE
from common.store.cell import Cell
from common.store.embedded import EmbeddedServer

Lacking = Callable[[str], AbstractAsyncContextManager[Cell]]


@pytest.fixture
def lacking(server: EmbeddedServer, cell: Cell) -> Lacking:
    """The same cell for a user who may run everything but this command."""

    @asynccontextmanager
    async def opened(command: str) -> AsyncIterator[Cell]:
        name = f"user-{secrets.token_hex(4)}"
        rights = ("on", ">pw", "allkeys", "allcommands", f"-{command}")
        await cell.client.execute_command("ACL", "SETUSER", name, *rights)
        async with Cell.opened(f"redis://{name}:pw@127.0.0.1:{server.port}/0", cell.keys.namespace) as limited:
            yield limited
        await cell.client.execute_command("ACL", "DELUSER", name)

    return opened


@asynccontextmanager
async def full(cell: Cell) -> AsyncIterator[None]:
    await cell.client.config_set("maxmemory", 1)
    try:
        yield
    finally:
        await cell.client.config_set("maxmemory", 0)


async def claimed(cell: Cell) -> int:
    """A request of a tenant that is claimed; its token."""
    seat = await dispatched(cell, push("r1", "s", tenant="acme", price=100))
    (claim,) = await cell.queues.claim(seat, "c1", LEASE_MS, ROOM)
    return claim.token


@pytest.mark.strange_keys("what could not be counted stays")
@pytest.mark.parametrize("command", ["zincrby", "hincrby", "srem"])
async def test_what_was_handed_in_is_with_its_workflow(cell: Cell, lacking: Lacking, command: str) -> None:
    token = await claimed(cell)
    async with lacking(command) as limited:
        with pytest.raises(StoreRefused):
            await limited.queues.finish([("r1", token, Outcome("it", "a"))])
    assert await mail(cell) == [Completed("r1", "s", Outcome("it", "a"))]
    assert await cell.queues.finish([("r1", token, Outcome("it", "a"))]) == [False]


@pytest.mark.strange_keys("what could not be counted stays")
@pytest.mark.parametrize("command", ["hincrby", "srem"])
async def test_so_is_a_failure_and_what_is_given_back(cell: Cell, lacking: Lacking, command: str) -> None:
    token = await claimed(cell)
    async with lacking(command) as limited:
        with pytest.raises(StoreRefused):
            await limited.queues.finish([("r1", token, AttemptFailed("no"))])
    seat = await join(cell)
    await accept(cell, "w2")
    await commit(cell, 0, 1, workflow="w2", pushes=[push("r2", "s")])
    (claim,) = await cell.queues.claim(seat, "c2", LEASE_MS, ROOM)
    async with lacking(command) as limited:
        with pytest.raises(StoreRefused):
            await limited.queues.release([("r2", claim.token)])
    assert await mail(cell) == [Failed("r1", "s", "no", True)]
    assert await mail(cell, "w2") == [Evacuated("r2", "s")]


@pytest.mark.strange_keys("what could not be counted stays")
@pytest.mark.parametrize("command", ["sadd", "hincrby", "srem"])
async def test_what_cannot_be_given_back_to_the_line_is_left_to_its_lease(
    cell: Cell, lacking: Lacking, command: str
) -> None:
    seat = await join(cell)
    await accept(cell)
    await commit(cell, 0, 1, pushes=[push("r1", "s", LINE, features=frozenset({"chat"}))])
    plans = (await cell.line.survey(64)).plans
    assert await cell.line.place(plans, [Placement("r1", "a", seat.epoch or 0, 70)]) == [True]
    (claim,) = await cell.queues.claim(seat, "c1", LEASE_MS, ROOM)
    async with lacking(command) as limited:
        with pytest.raises(StoreRefused):
            await limited.queues.release([("r1", claim.token)])
    await cell.client.zadd(cell.keys.leases, {"r1": 0}, xx=True)
    assert await cell.queues.reap(0, 3)
    assert await queued(cell, "line*chat") == ["r1"]
    assert (await cell.line.survey(64)).line == ("r1",)


@pytest.mark.strange_keys("what could not be counted stays")
@pytest.mark.parametrize("command", ["hincrby", "srem"])
@pytest.mark.parametrize("losses", [1, 3])
async def test_a_lease_that_ran_out_is_told_of_by_the_next(
    cell: Cell, lacking: Lacking, command: str, losses: int
) -> None:
    await claimed(cell)
    assert await cell.queues.reap(0, losses) == []
    await cell.client.zadd(cell.keys.leases, {"r1": 0}, xx=True)
    async with lacking(command) as limited:
        with pytest.raises(StoreRefused):
            await limited.queues.reap(0, losses)
    await cell.queues.reap(0, losses)
    assert await mail(cell) == [Lost("r1", "s", 1) if losses == 1 else Evacuated("r1", "s")]


@pytest.mark.strange_keys("what could not be counted stays")
async def test_what_is_lost_on_its_way_back_to_the_line_keeps_its_lease(cell: Cell, lacking: Lacking) -> None:
    seat = await join(cell)
    await accept(cell)
    await commit(cell, 0, 1, pushes=[push("r1", "s", LINE)])
    assert await cell.line.place(0, [Placement("r1", "a", seat.epoch or 0, 70)]) == [True]
    assert len(await cell.queues.claim(seat, "c1", LEASE_MS, ROOM)) == 1
    assert await cell.queues.reap(0, 3) == []
    await cell.client.zadd(cell.keys.leases, {"r1": 0}, xx=True)
    async with lacking("srem") as limited:
        with pytest.raises(StoreRefused):
            await limited.queues.reap(0, 3)
    assert await cell.queues.reap(0, 3)
    assert (await cell.line.survey(64)).line == ("r1",)


async def test_a_workflow_for_which_nobody_could_be_called_is_called_for_by_the_next(
    cell: Cell, lacking: Lacking
) -> None:
    await dispatched(cell)
    await cell.client.xtrim(cell.keys.completions, 0)
    async with lacking("xadd") as limited:
        with pytest.raises(StoreRefused):
            await limited.inbox.cancel("w1", "no")
    assert await cell.client.xlen(cell.keys.completions) == 0
    for _ in range(2):
        await cell.inbox.cancel("w1", "no")
    assert await cell.client.xlen(cell.keys.completions) == 1


async def test_what_was_accepted_runs_though_it_could_not_be_counted(cell: Cell, lacking: Lacking) -> None:
    async with lacking("hincrby") as limited:
        with pytest.raises(StoreRefused):
            await accept(limited)
    assert await accept(cell) == "same"
    assert [type(event) for event in await mail(cell)] == [Submitted]
    told = await cell.client.xrange(cell.keys.events("w1"))
    assert [fields[b"type"] for _, fields in told] == [b"accepted"]


@pytest.mark.parametrize("shed", [False, True])
async def test_who_could_not_be_told_why_is_told_by_the_next(cell: Cell, lacking: Lacking, shed: bool) -> None:
    entry = await cell.records.submit({"workflow": "x"})
    await cell.inbox.read(cell.keys.submissions, "c1", 10)
    why = {"workflow": entry, "field": "", "error": "no"}

    async def refuse(by: Cell) -> None:
        call: Awaitable[object] = (
            by.inbox.shed([(entry, "json", why)]) if shed else by.inbox.refuse(entry, "json", why, 60_000)
        )
        await call

    async with lacking("copy") as limited:
        with pytest.raises(StoreRefused):
            await refuse(limited)
    assert await cell.client.xlen(cell.keys.submissions) == 1
    assert await cell.client.pttl(f"{cell.keys.prefix}reply") > 0  # what is left of it goes
    async with full(cell):
        await refuse(cell)
    assert await cell.client.xlen(cell.keys.submissions) == 0
    assert await cell.records.first(entry) == ("rejected", why)
    assert await cell.client.pttl(cell.keys.events(entry)) > 0


@pytest.mark.parametrize("how", ["complete", "fail", "release"])
async def test_a_full_server_takes_what_is_handed_in(cell: Cell, how: str) -> None:
    token = await claimed(cell)
    async with full(cell):
        if how == "release":
            await cell.queues.release([("r1", token)])
        else:
            ended = Outcome("it", "a") if how == "complete" else AttemptFailed("no")
            assert await cell.queues.finish([("r1", token, ended)]) == [True]
    assert len(await mail(cell)) == 1
    assert await cell.client.zcard(cell.keys.leases) == 0
