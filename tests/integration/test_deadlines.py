"""Workflows that their deadline ends, on a real server: once, whoever is left to do it, and nothing of them stays."""

from dataclasses import replace
from typing import Any

import pytest

from common import clock, wire
from common.errors import AttemptFailed
from common.events import Outcome
from common.model import InstanceProfile, Slo
from common.settings import load
from common.store.cell import Cell
from common.store.queues import Room, Seat
from common.store.scripts import call_id
from coordinator.desk import Desk
from coordinator.loops.completions import completions, handle
from coordinator.loops.intake import intake

PROFILE = InstanceProfile("test", 1000.0, 0.03, 0.005, 1e-7, 1000)
ROOM = Room(1, 1000, 1000)
COPIES = {"name": "copies", "stages": {"a": {"for_each": "[1, 2, 3]", "prompt": "{{ item }}"}}}


class Bench:
    """A workflow that runs: one request is claimed, two are queued. Each step is another coordinator's."""

    def __init__(self, cell: Cell, seat: Seat) -> None:
        self.cell, self.seat = cell, seat

    def desk(self) -> Desk:
        return Desk(self.cell, load(policy="hexgen"))

    async def start(self, **asked: Any) -> Any:
        """Returns the claim."""
        await self.cell.records.submit({"workflow": COPIES, "id": "w", "slo_s": 600, **asked})
        await intake(self.desk())
        await completions(self.desk())
        (claim,) = await self.cell.queues.claim(self.seat, call_id(), 60_000, ROOM)
        return claim

    async def deadline_comes(self) -> None:
        """It is put forward, both where the workflow is kept and where its wake is."""
        read, keys = self.cell.client, self.cell.keys
        head = wire.unpack_head(await read.hget(keys.workflow("w"), "head"))
        now = await self.cell.records.now_ms()
        head = replace(head, slo=Slo(head.slo.arrival_at, now))
        await read.hset(keys.workflow("w"), "head", wire.pack_head(head))
        await read.zadd(keys.delayed, {"w @deadline": now}, xx=True)

    async def result(self) -> Any:
        return await self.cell.records.result("w")

    async def told(self) -> list[str]:
        entries = await self.cell.client.xrange(self.cell.keys.events("w"))
        return [fields[b"type"].decode() for _, fields in entries]

    async def is_clean(self) -> bool:
        """Whether nothing of the workflow's waits, runs or counts."""
        read, keys = self.cell.client, self.cell.keys
        sets = [await read.zcard(name) for name in (keys.delayed, keys.leases, keys.queue("a"), keys.live)]
        counts = [int(value) for value in (await read.hgetall(keys.backlog)).values()]
        requests = await read.keys(keys.request("*"))
        return not any([*sets, *counts, *requests]) and not await read.exists(keys.outstanding, keys.mailbox("w"))


@pytest.fixture
async def bench(cell: Cell) -> Bench:
    return Bench(cell, Seat("a", await cell.instances.register("a", PROFILE, ["default"], [], []), "a/1"))


async def test_the_deadline_ends_it_and_what_is_queued_or_runs_is_withdrawn(bench: Bench) -> None:
    claim = await bench.start(on_deadline="cancel")
    assert await bench.cell.queues.promote() == 0
    await bench.deadline_comes()
    assert [await bench.cell.queues.promote() for _ in range(2)] == [1, 0]  # of two coordinators, one wakes it
    await completions(bench.desk())
    result = await bench.result()
    assert (result["status"], result["error"], result["slo_met"]) == ("cancelled", "its deadline has passed", False)
    assert (await bench.told())[-1] == "cancelled"
    held = [(claim.request, claim.token)]
    assert await bench.cell.queues.renew(bench.seat, 60_000, held) == ("ready", [claim.request])
    assert await bench.cell.queues.finish([(*held[0], Outcome("late", "a"))]) == [False]
    assert await bench.is_clean()


async def test_a_coordinator_that_is_lost_with_it_leaves_it_to_the_next(bench: Bench) -> None:
    await bench.start(on_deadline="cancel")
    await bench.deadline_comes()
    await bench.cell.queues.promote()
    inbox, stream, lost, other = bench.cell.inbox, bench.cell.keys.completions, bench.desk(), bench.desk()
    (entry,) = await inbox.read(stream, lost.name, 1)
    (stale,) = await inbox.stale(stream, 0)
    taken = await inbox.take_over(stream, other.name, 0, stale)
    assert taken is not None
    await handle(other, [taken])
    await handle(lost, [entry])  # it was only slow
    assert (await bench.result())["status"] == "cancelled"
    assert (await bench.told()).count("cancelled") == 1
    assert await bench.is_clean()


async def test_one_that_completes_before_leaves_no_wake_behind(bench: Bench) -> None:
    claim = await bench.start(on_deadline="cancel")
    assert await bench.cell.client.zrange(bench.cell.keys.delayed, 0, -1) == [b"w @deadline"]
    while True:
        await bench.cell.queues.finish([(claim.request, claim.token, Outcome("done", "a"))])
        await completions(bench.desk())
        if await bench.result() is not None:
            break
        (claim,) = await bench.cell.queues.claim(bench.seat, call_id(), 60_000, ROOM)
    assert (await bench.result())["status"] == "completed"
    assert await bench.is_clean()


async def test_a_wake_is_not_counted_as_a_request_that_is_delayed(bench: Bench) -> None:
    claim = await bench.start(on_deadline="cancel")
    assert (await bench.cell.records.counts())["delayed"] == 0
    await bench.cell.queues.finish([(claim.request, claim.token, AttemptFailed("no"))])
    await completions(bench.desk())
    assert await bench.cell.client.zcard(bench.cell.keys.delayed) == 2
    assert (await bench.cell.records.counts())["delayed"] == 1


async def test_others_have_no_wake(bench: Bench) -> None:
    await bench.start(on_deadline="continue")
    assert await bench.cell.client.exists(bench.cell.keys.delayed) == 0


async def test_one_that_cannot_be_read_any_more_leaves_no_wake_behind(bench: Bench) -> None:
    await bench.start(on_deadline="cancel")
    await bench.cell.client.hset(bench.cell.keys.workflow("w"), "head", b"\xc1")
    await bench.cell.inbox.cancel("w", "look at it")
    await completions(bench.desk())
    assert (await bench.result())["status"] == "failed"
    assert await bench.cell.client.exists(bench.cell.keys.delayed) == 0


async def test_its_deadline_comes_by_itself(bench: Bench) -> None:
    await bench.cell.records.submit({"workflow": COPIES, "id": "w", "slo_s": 0.2, "on_deadline": "cancel"})
    await intake(bench.desk())
    await completions(bench.desk())
    while await bench.result() is None:
        if await bench.cell.queues.promote():
            await completions(bench.desk())
        await clock.sleep(0.01)
    result = await bench.result()
    assert result["status"] == "cancelled"
    assert result["elapsed_s"] >= 0.2
    assert await bench.is_clean()
