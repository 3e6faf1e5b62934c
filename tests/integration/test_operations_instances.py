"""The Lua operations on instances and their queues, before and after, on a real server."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from operations_bench import LEASE_MS, PROFILE, ROOM, commit, dispatched, join, mail, push, queued

from common import wire
from common.errors import Superseded, Unregistered
from common.events import Evacuated
from common.store.cell import Cell


async def test_renew_keeps_what_is_held_and_tells_what_is_not(cell: Cell) -> None:
    seat = await dispatched(cell, push("r1", "s"), push("r2", "t"))
    held = await cell.queues.claim(seat, "c1", 50, ROOM)
    await commit(cell, 1, 0, drops=["r2"])
    status, gone = await cell.queues.renew(seat, LEASE_MS, [(c.request, c.token) for c in held])
    assert (status, gone) == ("ready", ["r2"])
    ttl = await cell.client.zscore(cell.keys.leases, "r1") - held[0].claimed_at
    assert ttl >= LEASE_MS
    assert (await cell.queues.renew(seat, LEASE_MS, [("r1", 99)]))[1] == ["r1"]


async def test_renew_brings_a_lost_instance_back(cell: Cell) -> None:
    seat = await join(cell)
    await cell.instances.evacuate("a", "lost")
    assert (await cell.instances.all())[0].status == "lost"
    await cell.queues.renew(seat, LEASE_MS, [])
    assert (await cell.instances.all())[0].status == "ready"


@pytest.mark.parametrize("how", ["left", "lost"])
async def test_an_instance_that_is_gone_is_told_so_and_not_brought_back(cell: Cell, how: str) -> None:
    """It has left, or the cell has lost its data: nobody else has taken over."""
    seat = await join(cell)
    if how == "left":
        assert await cell.instances.remove("a", seat.epoch)
    else:
        await cell.client.delete(*await cell.client.keys(f"{cell.keys.prefix}*"))
    for _ in range(2):
        with pytest.raises(Unregistered, match="instance a is not registered any more"):
            await cell.queues.renew(seat, LEASE_MS, [])
        with pytest.raises(Unregistered):
            await cell.queues.claim(seat, "c1", LEASE_MS, ROOM)
        assert await cell.instances.evacuate("a", "draining", seat.epoch) == 0
        assert await cell.instances.all() == []
    later = await join(cell)
    assert (await cell.instances.all())[0].status == "ready"
    assert await cell.queues.renew(later, LEASE_MS, []) == ("ready", [])
    with pytest.raises(Superseded):
        await cell.queues.renew(seat, LEASE_MS, [])
    await cell.instances.remove("a", later.epoch)
    with pytest.raises(Superseded):  # though that one has left since
        await cell.queues.renew(seat, LEASE_MS, [])


async def test_epochs_are_not_met_again_when_the_data_is_lost(cell: Cell) -> None:
    old = await join(cell)
    await cell.client.delete(*await cell.client.keys(f"{cell.keys.prefix}*"))
    await asyncio.sleep(0.002)  # epochs are times in ms
    assert (await join(cell)).epoch != old.epoch
    with pytest.raises(Superseded):
        await cell.queues.claim(old, "c1", LEASE_MS, ROOM)


async def test_evacuate_routes_a_whole_queue_anew_and_keeps_its_age(cell: Cell) -> None:
    await dispatched(cell, push("r1", "s"), push("r2", "t"))
    born = await cell.client.hget(cell.keys.request("r1"), "enqueued_at")
    assert await cell.instances.evacuate("a", "lost", most=1) == 2
    assert await queued(cell) == []
    assert await cell.instances.backlogs() == {"a": 0}
    assert set(await mail(cell)) == {Evacuated("r1", "s"), Evacuated("r2", "t")}
    await join(cell, "b")
    await commit(cell, 1, 2, pushes=[push("r1", "s", "b")])
    assert await queued(cell, "b") == ["r1"]
    assert await cell.client.zscore(cell.keys.queue("b"), "r1") == int(born)


async def test_an_instance_gives_its_queue_away_on_a_full_server(cell: Cell) -> None:
    await dispatched(cell, push("r1", "s"))
    await cell.client.config_set("maxmemory", 1)
    try:
        assert await cell.instances.evacuate("a", "stalled") == 1
    finally:
        await cell.client.config_set("maxmemory", 0)
    assert await queued(cell) == []


async def test_an_earlier_incarnation_cannot_drain_or_remove_the_later(cell: Cell) -> None:
    old = await dispatched(cell, push("r1", "s"))
    new = await join(cell)
    with pytest.raises(Superseded):
        await cell.instances.evacuate("a", "draining", old.epoch)
    assert not await cell.instances.remove("a", old.epoch)
    assert (await cell.instances.all())[0].status == "ready"
    assert await queued(cell) == ["r1"]
    assert await cell.instances.evacuate("a", "draining", new.epoch) == 1
    assert await cell.instances.remove("a", new.epoch)
    assert await cell.instances.all() == []
    assert await cell.client.hexists(cell.keys.backlog, "a") == 0


async def test_an_instance_that_comes_back_is_kept(cell: Cell) -> None:
    await join(cell)
    await cell.instances.remove("a")
    assert await cell.client.pttl(cell.keys.instance("a")) > 0
    await join(cell)
    assert await cell.client.pttl(cell.keys.instance("a")) == -1
    assert (await cell.instances.all())[0].status == "ready"


@pytest.mark.parametrize(
    ("changes", "labels", "kept"),
    [
        ({}, ["fast"], True),
        ({"kv_tokens": 2000, "prefill_tokens_per_s": 900.0}, ["fast"], True),
        ({"kv_tokens": 999}, ["fast"], False),
        ({}, ["slow"], False),
    ],
)
async def test_an_instance_that_comes_back_as_another_gives_its_queue_away(
    cell: Cell, changes: dict[str, Any], labels: list[str], kept: bool
) -> None:
    await dispatched(cell, push("r1", "s"))
    await cell.instances.register("a", replace(PROFILE, **changes), ["m"], labels, ["chat"])
    assert await queued(cell) == (["r1"] if kept else [])
    assert await mail(cell) == ([] if kept else [Evacuated("r1", "s")])
    assert (await cell.instances.all())[0].status == "ready"


async def test_an_instance_that_died_while_giving_its_queue_away_goes_on_with_it(cell: Cell) -> None:
    await dispatched(cell, push("r1", "s"))
    await cell.client.hset(cell.keys.instance("a"), "status", "joining")
    await join(cell)
    assert await queued(cell) == []
    assert (await cell.instances.all())[0].status == "ready"


@pytest.mark.strange_keys("what was broken on purpose stays")
async def test_an_instance_whose_record_cannot_be_read_does_not_hide_the_others(
    cell: Cell, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("a", "b", "c", "d", "e"):
        await join(cell, name)
    await cell.client.hset(cell.keys.instance("a"), "profile", b"\xc1")
    await cell.client.hset(cell.keys.instance("b"), "serves", wire.pack(7))
    await cell.client.hdel(cell.keys.instance("c"), "epoch")
    await cell.client.set(cell.keys.instance("d"), "no hash at all")
    for _ in range(2):
        assert [instance.id for instance in await cell.instances.all()] == ["e"]
    assert [shown["instance"] for shown in await cell.instances.describe()] == ["e"]
    assert caplog.text.count("cannot be read") == 4


async def test_a_draining_instance_that_falls_silent_does_not_come_back_as_ready(cell: Cell) -> None:
    seat = await dispatched(cell, push("r1", "s"))
    await cell.instances.evacuate("a", "draining", seat.epoch)
    await cell.instances.evacuate("a", "lost")
    await cell.queues.renew(seat, LEASE_MS, [])
    assert (await cell.instances.all())[0].status == "draining"
