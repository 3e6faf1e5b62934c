"""Requests whose records are lost or of another type: what they had added to counters goes when they are found."""

from collections.abc import Awaitable, Callable

import pytest
from operations_bench import LEASE_MS, ROOM, accept, commit, dispatched, push

from common.errors import AttemptFailed, BadRecord
from common.events import Outcome
from common.lineup import Placement
from common.model import LINE, Claim
from common.settings import load
from common.store.cell import Cell
from common.store.queues import Room, Seat
from coordinator.desk import Desk
from coordinator.loops.completions import completions

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


FIELDS = (
    "workflow", "node", "instance", "load_ms", "enqueued_at", "offset_ms", "lane", "payload", "token", "tenant",
    "charged", "losses",
)  # fmt: skip
NAMES = ("instance", "lane")
"""That these are others cannot be seen: anything may be a name."""
VALUES = (None, "many", "1e99", f"{2**63 - 1}")
damaged = pytest.mark.parametrize(
    ("field", "value"),
    [(name, value) for name in FIELDS for value in VALUES if value is None or name not in NAMES],
)
Hand = Callable[[Cell, list[Claim]], Awaitable[object]]


async def damage(cell: Cell, field: str, value: str | None) -> None:
    """One field of r1."""
    key = cell.keys.request("r1")
    await (cell.client.hdel(key, field) if value is None else cell.client.hset(key, field, value))


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


def held(claims: list[Claim]) -> list[tuple[str, int]]:
    return [(claim.request, claim.token) for claim in claims]


HANDS: dict[str, Hand] = {
    "complete": lambda cell, claims: cell.queues.finish([(*pair, Outcome("x")) for pair in held(claims)]),
    "fail": lambda cell, claims: cell.queues.finish([(*pair, AttemptFailed("no")) for pair in held(claims)]),
    "release": lambda cell, claims: cell.queues.release(held(claims)),
    "forfeit": lambda cell, claims: cell.queues.forfeit(held(claims), "ended"),
}


async def told(cell: Cell) -> set[bytes]:
    """Of which requests their workflow has mail, whatever it says."""
    return {message.split()[1] for message in await cell.client.lrange(cell.keys.mailbox("w1"), 0, -1)}


@damaged
@pytest.mark.parametrize("how", HANDS)
async def test_one_that_its_worker_hands_in(cell: Cell, how: str, field: str, value: str | None) -> None:
    pushes = [push(f"r{number}", f"s{number}", tenant="acme", price=5) for number in (1, 2)]
    claims = await cell.queues.claim(await dispatched(cell, *pushes), "c1", LEASE_MS, ROOM)
    await damage(cell, field, value)
    await HANDS[how](cell, claims)
    await cell.client.zadd(cell.keys.leases, {"r1": 0}, xx=True)
    await cell.queues.reap(0, 3)
    assert await cell.client.zcard(cell.keys.leases) == await cell.client.scard(cell.keys.claimed("a")) == 0
    assert await backlog(cell) == {}
    assert await told(cell) == ({b"r2"} if field == "workflow" else {b"r1", b"r2"})


@damaged
@pytest.mark.parametrize("how", ["evacuate", "claim and reap"])
async def test_one_that_waits_in_a_queue(cell: Cell, how: str, field: str, value: str | None) -> None:
    seat = await dispatched(cell, *(push(f"r{number}", f"s{number}", tenant="acme", price=5) for number in (1, 2)))
    await damage(cell, field, value)
    if how == "evacuate":
        await cell.instances.evacuate("a", "lost")
    else:
        await cell.queues.claim(seat, "c1", LEASE_MS, ROOM)
        await cell.client.zadd(cell.keys.leases, {"r1": 0, "r2": 0}, xx=True)
        await cell.queues.reap(0, 3)
    assert await cell.client.zcard(cell.keys.leases) == await cell.client.zcard(cell.keys.queue("a")) == 0
    assert await backlog(cell) == {}
    assert await told(cell) == ({b"r2"} if field == "workflow" else {b"r1", b"r2"})


@damaged
async def test_one_that_waits_in_the_line(cell: Cell, field: str, value: str | None) -> None:
    seat = await dispatched(cell, *(push(f"r{number}", f"s{number}", LINE) for number in (1, 2)))
    await damage(cell, field, value)
    placed = await cell.line.place(0, [Placement(f"r{number}", "a", seat.epoch or 0, 100) for number in (1, 2)])
    assert placed is not None
    assert placed[1]
    await cell.line.give_back(["r1"])
    await cell.instances.evacuate("a", "lost")
    await cell.line.give_back(["r1", "r2"])
    assert await backlog(cell) == {}
    assert await told(cell) == ({b"r2"} if field == "workflow" else {b"r1", b"r2"})


@pytest.mark.parametrize("value", [None, "many"])
@pytest.mark.parametrize("field", ["status", "version"])
async def test_a_workflow_that_does_not_say_how_it_is_ends_with_its_next_mail(
    cell: Cell, field: str, value: str | None
) -> None:
    await accept(cell)
    key, desk = cell.keys.workflow("w1"), Desk(cell, load(policy="hexgen"))
    await (cell.client.hdel(key, field) if value is None else cell.client.hset(key, field, value))
    assert await cell.inbox.cancel("w1", "it hangs")
    while await cell.client.xlen(cell.keys.completions):
        await completions(desk)
    result = await cell.records.result("w1")
    assert result is not None
    assert (result["status"], "is damaged" in result["error"]) == ("failed", True)
    assert await cell.records.live(10) == []


async def test_a_workflow_fails_whose_request_does_not_say_for_which_stage_it_is(cell: Cell) -> None:
    seat = await dispatched(cell, push("r1", "s"))
    claims = await cell.queues.claim(seat, "c1", LEASE_MS, ROOM)
    await damage(cell, "node", None)
    await HANDS["complete"](cell, claims)
    while await cell.client.xlen(cell.keys.completions):
        await completions(Desk(cell, load(policy="hexgen")))
    result = await cell.records.result("w1")
    assert result is not None
    assert "the record of request r1 is damaged" in result["error"]


@pytest.mark.parametrize("field", ["status", "head", "n:s"])
async def test_a_workflow_that_cannot_be_shown_is_told_to_be_so(cell: Cell, field: str) -> None:
    await dispatched(cell, push("r1", "s"))
    await cell.client.hset(cell.keys.workflow("w1"), field, b"\xff")
    with pytest.raises(BadRecord, match=r"^workflow w1 cannot be read: "):
        await cell.records.workflow("w1")
