"""What grows with traffic has bounds: the streams that are kept, and what is counted by names that come and go."""

from collections.abc import Awaitable, Callable

import pytest
from operations_bench import LEASE_MS, ROOM, accept, commit, dispatched, push

from common.events import Outcome
from common.model import TOOLS
from common.settings import load
from common.store.cell import Cell
from common.store.inbox import End
from common.store.queues import Seat
from coordinator.desk import Desk
from coordinator.loops.janitor import Janitor

SLACK = 100
"""Streams are cut where it is cheap: so many entries a server keeps in one piece."""


async def fill(cell: Cell, stream: str, most: int) -> None:
    """With more than may be there."""
    pipeline = cell.client.pipeline(transaction=False)
    for _ in range(most + 5 * SLACK):
        pipeline.xadd(stream, {"x": ""})
    await pipeline.execute()


async def bury(cell: Cell) -> None:
    entry = await cell.client.xadd(cell.keys.submissions, {"json": "{}"})
    await cell.inbox.refuse(entry.decode(), "json", {}, 60_000, "it cannot be taken")


async def decide(cell: Cell) -> None:
    assert await cell.tuning.decide(0, {"action": "kept"}, None) == 0


async def complete(cell: Cell) -> None:
    await accept(cell)
    end = End("completed", {}, 60_000, b"a record", keep_traces=500)
    assert await commit(cell, 0, 1, events=[("completed", {})], end=end) == 1


async def tell_token(cell: Cell) -> None:
    seat = await dispatched(cell, push("r1", "s", stream=True))
    (claim,) = await cell.queues.claim(seat, "c1", LEASE_MS, ROOM)
    await fill(cell, cell.keys.events("w1"), 10_000)  # once more: until here it had no tokens
    await cell.queues.emit_tokens(claim, "text")


BOUNDED: dict[str, tuple[str, int, Callable[[Cell], Awaitable[None]]]] = {
    "dead letters": ("dead", 10_000, bury),
    "decisions of the tuner": ("tuning", 2_000, decide),
    "traces": ("traces", 500, complete),
    "events": ("workflow:w1:events", 1_000, complete),
    "events with tokens": ("workflow:w1:events", 10_000, tell_token),
}


@pytest.mark.parametrize("what", BOUNDED)
async def test_a_stream_keeps_the_newest(cell: Cell, what: str) -> None:
    name, most, add = BOUNDED[what]
    stream = cell.keys.prefix + name
    await fill(cell, stream, most)
    await add(cell)
    assert most <= await cell.client.xlen(stream) <= most + SLACK
    ((_, newest),) = await cell.client.xrevrange(stream, count=1)
    assert newest != {b"x": b""}


async def test_what_is_counted_of_an_instance_goes_with_its_record(cell: Cell) -> None:
    async def counted() -> list[set[str]]:
        return [set(await cell.instances.backlogs()), set(await cell.instances.served())]

    seat = await dispatched(cell, push("r1", "s"), push("r2", "t", TOOLS))
    tools = Seat(TOOLS, None, "tools/1")
    for at in (seat, tools):
        (claim,) = await cell.queues.claim(at, "c1", LEASE_MS, ROOM)
        assert await cell.queues.finish([(claim.request, claim.token, Outcome("x", at.instance))]) == [True]
    await cell.instances.remove("a")
    assert await cell.instances.forget_counts() == 0
    assert (await counted())[1] == {"a", TOOLS}
    await cell.client.delete(cell.keys.instance("a"))  # as its time to live does
    assert await cell.instances.forget_counts() == 1
    assert await counted() == [{TOOLS}, {TOOLS}]


async def test_the_janitor_forgets_work_that_was_left_with_an_instance_that_is_gone(
    cell: Cell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is removed while one of its requests is claimed; the load is taken off later, or never."""

    async def at_once(seconds: float) -> None: ...

    monkeypatch.setattr("common.clock.sleep", at_once)
    seat = await dispatched(cell, push("r1", "s"))
    await cell.queues.claim(seat, "c1", LEASE_MS, ROOM)
    await cell.instances.remove("a")
    assert await cell.instances.backlogs() == {"a": 100}
    await cell.client.delete(cell.keys.instance("a"))
    await Janitor(Desk(cell, load(policy="hexgen")))()
    assert await cell.instances.backlogs() == {}
