"""Tickets: as many in RQ as tool requests wait, whatever is lost, doubled or late. Real Redis, RQ's real queue."""

import asyncio
from pathlib import Path

import pytest
import redis
from operations_bench import LEASE_MS, ROOM, commit, dispatched, push, queued
from rq import Queue
from rq.serializers import JSONSerializer

from common import clock, settings
from common.errors import AttemptFailed, StoreRefused, StoreUnavailable
from common.model import Claim
from common.store.cell import Cell
from common.store.embedded import EmbeddedServer
from common.store.queues import Room, Seat
from coordinator.desk import Desk
from coordinator.language.grammar import LONGEST_ATTEMPT_S
from coordinator.loops.relay import Relay

ONE = Room(requests=1, prefill_tokens=1, kv_tokens=100)


@pytest.fixture
def desk(cell: Cell) -> Desk:
    return Desk(cell, settings.load(redis_url=cell.url, namespace=cell.keys.namespace))


@pytest.fixture
def queue(cell: Cell) -> Queue:
    return Queue(cell.keys.tickets, connection=redis.Redis.from_url(cell.url), serializer=JSONSerializer)


def requests(count: int, first: int = 0):
    return [push(f"r{number}", f"s{number}", "tools", offset_ms=number) for number in range(first, first + count)]


def taken(queue: Queue) -> str:
    """The ticket of the next job, taken as a tool worker takes it."""
    _, job_id = Queue.lmove(queue.connection, queue.key, None)
    job = queue.job_class.fetch(job_id.decode(), queue.connection, queue.serializer)
    return job.args[0]


async def claim(cell: Cell, ticket: str) -> list[Claim]:
    return await cell.queues.claim(Seat("tools", None, f"worker of {ticket}"), ticket, LEASE_MS, ONE)


async def test_each_request_has_one_ticket(cell: Cell, desk: Desk, queue: Queue) -> None:
    await dispatched(cell, *requests(150))
    for _ in range(3):
        await Relay(desk).relay()
    assert queue.count == 150
    assert all(job.timeout > LONGEST_ATTEMPT_S for job in queue.jobs)
    claimed = [(await claim(cell, taken(queue)))[0].request for _ in range(150)]
    assert claimed == [f"r{number}" for number in range(150)]
    await Relay(desk).relay()
    assert queue.count == 0


async def test_a_new_attempt_has_a_new_ticket_at_once(cell: Cell, desk: Desk, queue: Queue) -> None:
    await dispatched(cell, *requests(1))
    await Relay(desk).relay()
    (held,) = await claim(cell, taken(queue))
    await cell.queues.finish([(held.request, held.token, AttemptFailed("not today"))])
    await commit(cell, 1, 1, pushes=requests(1))
    await Relay(desk).relay()
    assert [one.request for one in await claim(cell, taken(queue))] == ["r0"]


async def test_a_request_overtaken_by_one_that_had_no_ticket_yet_gets_another(
    cell: Cell, desk: Desk, queue: Queue
) -> None:
    await dispatched(cell, *requests(1))
    await Relay(desk).relay()
    await commit(cell, 1, 0, pushes=[push("urgent", "u", "tools", offset_ms=-1000)])
    assert [one.request for one in await claim(cell, taken(queue))] == ["urgent"]
    await Relay(desk).relay()
    assert [one.request for one in await claim(cell, taken(queue))] == ["r0"]


async def test_a_lost_ticket_is_replaced_and_no_other(cell: Cell, desk: Desk, queue: Queue) -> None:
    await dispatched(cell, *requests(5))
    await Relay(desk).relay()
    lost = [taken(queue), taken(queue)]
    await Relay(desk).relay()
    assert queue.count == 3  # they may still be about to claim
    for _ in range(3):
        await Relay(desk, lost_ms=0).relay()
    assert queue.count == 5
    assert not {*lost} & {taken(queue) for _ in range(5)}


async def test_a_long_queue_of_old_tickets_does_not_grow(cell: Cell, desk: Desk, queue: Queue) -> None:
    """Slow tools: every ticket waits longer than the time after which one counts as lost, also while one is at work."""
    await dispatched(cell, *requests(20))
    relay = Relay(desk, lost_ms=0)
    for left in range(20, 10, -1):
        await relay.relay()
        ticket = taken(queue)
        await relay.relay()  # taken and not yet used: this very one may be replaced, for it could be lost
        assert queue.count <= left
        assert await claim(cell, ticket)
    await relay.relay()
    assert 10 <= queue.count <= 11


async def test_a_relay_killed_before_it_writes_is_made_up_for(cell: Cell, desk: Desk, queue: Queue) -> None:
    await dispatched(cell, *requests(3))
    assert len(await cell.queues.to_relay(0, 60_000)) == 3
    await Relay(desk).relay()
    assert queue.count == 0
    await Relay(desk, lost_ms=0).relay()
    assert queue.count == 3


async def test_two_relays_at_once_write_one_ticket_each_request(cell: Cell, desk: Desk, queue: Queue) -> None:
    await dispatched(cell, *requests(250))
    await asyncio.gather(*(Relay(desk).relay() for _ in range(4)))
    assert queue.count == 250


async def test_a_lost_queue_of_rq_is_written_anew(cell: Cell, desk: Desk, queue: Queue) -> None:
    await dispatched(cell, *requests(120))
    await Relay(desk).relay()
    queue.connection.delete(queue.key, *(f"rq:job:{name}" for name in queue.job_ids))
    await Relay(desk, lost_ms=0).relay()
    assert queue.count == 120


async def test_tickets_of_what_was_withdrawn_serve_others(cell: Cell, desk: Desk, queue: Queue) -> None:
    await dispatched(cell, *requests(4))
    await Relay(desk).relay()
    await commit(cell, 1, 0, drops=["r0", "r1", "r2"], pushes=requests(2, first=10))
    await Relay(desk).relay()
    assert queue.count == 4
    assert [len(await claim(cell, taken(queue))) for _ in range(4)] == [1, 1, 1, 0]
    assert await queued(cell, "tools") == []
    assert await cell.client.zcard(cell.keys.prefix + "relayed") == 0


async def test_a_doubled_ticket_claims_each_time_and_counts_once(cell: Cell, desk: Desk, queue: Queue) -> None:
    await dispatched(cell, *requests(2))
    await Relay(desk).relay()
    ticket = taken(queue)
    assert [one.request for one in await claim(cell, ticket)] == ["r0"]
    assert [one.request for one in await claim(cell, ticket)] == ["r0"]  # the same call again: the same answer
    seat = Seat("tools", None, "another worker")
    assert [one.request for one in await cell.queues.claim(seat, ticket, LEASE_MS, ROOM)] == ["r1"]
    assert await claim(cell, taken(queue)) == []


async def test_where_other_nodes_have_rqs_keys_a_coordinator_without_tools_needs_none_of_them(
    tmp_path: Path, program: Path | None
) -> None:
    options = ("--cluster-enabled", "yes", "--cluster-require-full-coverage", "no")
    with EmbeddedServer.start(tmp_path, program=program, extra_args=options) as node:
        cell = Cell.open(node.url, "apart")
        slot = await cell.client.cluster("KEYSLOT", cell.keys.live)
        await cell.client.cluster("ADDSLOTS", slot)
        while (await cell.client.cluster("INFO"))["cluster_state"] != "ok":
            await clock.sleep(0.05)
        relay = Relay(Desk(cell, settings.load(redis_url=cell.url, namespace="apart")))
        with pytest.raises((StoreRefused, StoreUnavailable)):
            await asyncio.to_thread(relay._count)
        await relay.relay()
        relay._queue.connection.connection_pool.disconnect()
        await cell.close()
