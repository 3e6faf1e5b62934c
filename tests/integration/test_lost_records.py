"""Requests whose records are lost or of another type: what they had added to counters goes when they are found."""

from collections.abc import Awaitable, Callable

import pytest
from operations_bench import LEASE_MS, ROOM, commit, dispatched, push

from common.model import LINE
from common.store.cell import Cell
from common.store.queues import Room, Seat

pytestmark = pytest.mark.strange_keys("records of requests are damaged")
Break = Callable[[Cell, str], Awaitable[object]]


async def other_type(cell: Cell, request: str) -> None:
    await cell.client.delete(cell.keys.request(request))
    await cell.client.set(cell.keys.request(request), "no hash")


BREAKS: dict[str, Break] = {
    "of another type": other_type,
    "deleted": lambda cell, request: cell.client.delete(cell.keys.request(request)),
    "without payload": lambda cell, request: cell.client.hdel(cell.keys.request(request), "payload"),
    "without load": lambda cell, request: cell.client.hdel(cell.keys.request(request), "load_ms"),
}
LOST = [name for name in BREAKS if name != "without payload"]


async def two(cell: Cell, at: str = "a", **changes: object) -> None:
    pushes = [push(f"r{number}", f"s{number}", at, load_ms=100 + number, **changes) for number in (1, 2)]
    await dispatched(cell, *pushes)


async def backlog(cell: Cell) -> dict[str, int]:
    return {name: load for name, load in (await cell.instances.backlogs()).items() if load}


@pytest.mark.parametrize("what", [name for name in BREAKS if name != "without load"])
@pytest.mark.parametrize("at", ["a", "tools"])
async def test_a_claim_that_finds_nothing_to_run(cell: Cell, what: str, at: str) -> None:
    seat = await dispatched(cell, *(push(f"r{number}", f"s{number}", at, load_ms=100 + number) for number in (1, 2)))
    if at == "tools":
        seat = Seat(at, None, "tools/1")
    await BREAKS[what](cell, "r1")
    (claim,) = await cell.queues.claim(seat, "c1", LEASE_MS, ROOM)
    assert claim.request == "r2"
    assert await backlog(cell) == {at: 102}
    await commit(cell, 1, 0, drops=["r1", "r2"])
    assert await backlog(cell) == {}


@pytest.mark.parametrize("what", LOST)
async def test_an_evacuation(cell: Cell, what: str) -> None:
    await two(cell)
    await BREAKS[what](cell, "r1")
    await cell.instances.evacuate("a", "lost", most=1)
    assert await backlog(cell) == {}


@pytest.mark.parametrize("what", LOST)
async def test_a_lease_that_runs_out(cell: Cell, what: str) -> None:
    seat = await dispatched(cell, *(push(f"r{number}", f"s{number}", load_ms=100 + number) for number in (1, 2)))
    await cell.queues.claim(seat, "c1", LEASE_MS, ROOM)
    await BREAKS[what](cell, "r1")
    await cell.client.zadd(cell.keys.leases, {"r1": 0})
    await cell.queues.reap(0, 3)
    assert await backlog(cell) == {"a": 102}
    assert await cell.client.smembers(cell.keys.claimed("a")) == {b"r2"}


@pytest.mark.parametrize("what", LOST)
@pytest.mark.parametrize("demand", [frozenset(), frozenset({"fast"})])
async def test_what_the_line_gives_back(cell: Cell, what: str, demand: frozenset[str]) -> None:
    await two(cell, LINE, requires=demand)
    await BREAKS[what](cell, "r1")
    assert await cell.line.give_back(["r1"]) == 1
    assert await backlog(cell) == {LINE: 102}


@pytest.mark.parametrize("what", LOST)
@pytest.mark.parametrize("claimed", [False, True])
async def test_one_that_its_workflow_drops(cell: Cell, what: str, claimed: bool) -> None:
    """Where it was, is found when its place in the queue, or its lease, comes to its end."""
    seat = await dispatched(cell, *(push(f"r{number}", f"s{number}", load_ms=100 + number) for number in (1, 2)))
    if claimed:
        await cell.queues.claim(seat, "c1", LEASE_MS, Room(1, 10_000, 10_000))
    await BREAKS[what](cell, "r1")
    await commit(cell, 1, 0, drops=["r1"])
    await cell.client.zadd(cell.keys.leases, {"r1": 0}, xx=True)
    await cell.queues.reap(0, 3)
    await cell.queues.claim(seat, "c2", LEASE_MS, ROOM)
    assert await backlog(cell) == {"a": 102}
    assert await cell.client.smembers(cell.keys.claimed("a")) == {b"r2"}
    assert await cell.client.zrange(cell.keys.leases, 0, -1) == [b"r2"]
