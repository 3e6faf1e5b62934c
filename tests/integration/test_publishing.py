"""What a worker publishes of its engine, and what a claim tells of a request, on a real server."""

import math
from dataclasses import replace

import pytest
from operations_bench import LEASE_MS, PROFILE, dispatched, join, push, queued

from common.model import LINE, InstanceLoad, RunningCall
from common.store.cell import Cell
from common.store.queues import Room

LOAD = InstanceLoad(
    2000.0, 0.07, 2e-7, 1000, 512, 64, kv_tokens=420, unprefilled_tokens=20, token_s=0.04,
    running=(RunningCall("r1", 300, 100, 0, 150, 17, 60_000),), iterations=12, cache_version=3,
)  # fmt: skip


async def test_a_load_is_read_as_it_was_published_and_corrects_the_profile(cell: Cell) -> None:
    seat = await join(cell)
    await join(cell, "b")
    assert (await cell.instances.all())[0].profile == PROFILE
    assert await cell.instances.publish("a", seat.epoch or 0, LOAD, b"12345678")
    assert await cell.instances.loads(["a", "b", "c"]) == {"a": LOAD}
    assert await cell.instances.caches(["a", "b", "c"]) == {"a": b"12345678"}
    first, second = await cell.instances.all()
    assert (first.profile.prefill_tokens_per_s, first.profile.kv_s_per_token) == (2000.0, 2e-7)
    assert first.profile.weights_s == pytest.approx(0.06)
    assert first.profile.overhead_s == pytest.approx(0.01)
    assert second.profile == PROFILE
    assert (await cell.instances.describe())[0]["load"]["running"] == 1


async def test_the_cache_stays_until_a_later_one_is_published(cell: Cell) -> None:
    epoch = (await join(cell)).epoch or 0
    await cell.instances.publish("a", epoch, LOAD, b"12345678")
    await cell.instances.publish("a", epoch, LOAD)
    assert await cell.instances.caches(["a"]) == {"a": b"12345678"}
    await cell.instances.publish("a", epoch, LOAD, b"")
    assert await cell.instances.caches(["a"]) == {"a": b""}


async def test_only_the_current_incarnation_publishes_and_a_new_one_begins_with_nothing(cell: Cell) -> None:
    old = (await join(cell)).epoch or 0
    await cell.instances.publish("a", old, LOAD, b"12345678")
    later = (await join(cell)).epoch or 0
    assert await cell.instances.loads(["a"]) == await cell.instances.caches(["a"]) == {}
    assert not await cell.instances.publish("a", old, LOAD, b"12345678")
    assert await cell.instances.loads(["a"]) == {}
    await cell.instances.remove("a", later)
    assert not await cell.instances.publish("a", later, LOAD)
    assert not await cell.instances.publish("never there", 1, LOAD)
    assert await cell.client.exists(cell.keys.instance("never there")) == 0


@pytest.mark.strange_keys("it fills the line by hand")
async def test_a_load_calls_a_coordinator_only_where_there_is_a_line(cell: Cell) -> None:
    epoch = (await join(cell)).epoch or 0
    await cell.instances.publish("a", epoch, LOAD)
    assert await cell.client.exists(cell.keys.line_wake) == 0
    await cell.client.zadd(cell.keys.queue(LINE), {"r1": 17})
    await cell.instances.publish("a", epoch, LOAD)
    assert await cell.client.zcard(cell.keys.line_wake) == 1


async def test_a_load_that_cannot_be_read_hides_no_instance(cell: Cell) -> None:
    await join(cell)
    await cell.client.hset(cell.keys.instance("a"), "load", b"\x81\xa7running\xc0")
    assert await cell.instances.loads(["a"]) == {}
    assert (await cell.instances.all())[0].profile == PROFILE
    assert (await cell.instances.describe())[0]["load"] is None


@pytest.mark.strange_keys("it fills the line by hand")
@pytest.mark.parametrize("speeds", [{"prefill_tokens_per_s": 0.0}, {"step_s": math.nan}, {"kv_s_per_token": math.inf}])
async def test_speeds_that_no_engine_can_have_are_not_believed(cell: Cell, speeds: dict[str, float]) -> None:
    """Every estimate divides by them: one broken worker would fail the workflows of all."""
    epoch = (await join(cell)).epoch or 0
    await cell.instances.publish("a", epoch, replace(LOAD, **speeds))
    assert (await cell.instances.all())[0].profile == PROFILE
    await cell.client.zadd(cell.keys.queue(LINE), {"r1": 17})
    assert (await cell.line.survey(1)).standings[0].load is None


async def test_a_claim_tells_the_key_and_the_figures_also_when_asked_again(cell: Cell) -> None:
    asked = push("r1", "s", offset_ms=250, prompt_tokens=40, expected_tokens=77, slo_ms=60_000)
    seat = await dispatched(cell, asked)
    (once,) = await cell.queues.claim(seat, "c1", LEASE_MS, Room(1, 512, 1000))
    assert (once.prompt_tokens, once.expected_tokens, once.slo_ms) == (40, 77, 60_000)
    assert once.key_ms == once.enqueued_at + 250
    (again,) = await cell.queues.claim(seat, "c1", LEASE_MS, Room(1, 512, 1000))
    assert again == replace(once, claimed_at=again.claimed_at)


async def test_an_empty_engine_takes_the_first_whatever_its_length_and_no_more(cell: Cell) -> None:
    seat = await dispatched(cell, push("r1", "s", prompt_tokens=2000), push("r2", "t", offset_ms=1, prompt_tokens=2000))
    assert await cell.queues.claim(seat, "c1", LEASE_MS, Room(8, 9000, 1000)) == []
    assert len(await cell.queues.claim(seat, "c2", LEASE_MS, Room(8, 9000, 1000, empty=True))) == 1
    assert await queued(cell) == ["r2"]
