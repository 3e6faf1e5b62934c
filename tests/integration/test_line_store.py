"""The line on a real server: what a planner sees, how it places, and how requests come back into the line."""

from dataclasses import replace

import pytest
from operations_bench import LEASE_MS, ROOM, accept, commit, join, mail, push, queued

from common.errors import AttemptFailed
from common.events import Completed, Evacuated, Failed, Lost, Outcome
from common.lineup import Placement
from common.model import LINE, InstanceLoad, LlmCall, Node, Push, Sampling
from common.store.cell import Cell
from common.store.inbox import End
from common.store.line import MOST_SEEN
from common.store.queues import Room, Seat

LOAD = InstanceLoad(2000.0, 0.07, 2e-7, 1000, 512, 64, 420, 20, 0.04, cache_version=1)


async def lined_up(cell: Cell, *pushes: Push) -> Seat:
    """A running workflow with these requests in the line, and instance a."""
    seat = await join(cell)
    await accept(cell)
    nodes = {p.node: Node("running", request=p.request, phase="queued") for p in pushes}
    assert await commit(cell, 0, 1, nodes=nodes, pushes=pushes) == 1
    return seat


def late(request: str, node: str, **changes: object) -> Push:
    return push(request, node, LINE, **changes)


async def place(cell: Cell, seat: Seat, *requests: str, load_ms: int = 70) -> list[bool] | None:
    seen = await cell.line.survey(64)
    return await cell.line.place(
        seen.plans, [Placement(request, seat.instance, seat.epoch or 0, load_ms) for request in requests]
    )


async def backlog(cell: Cell) -> dict[str, int]:
    return {name: load for name, load in (await cell.instances.backlogs()).items() if load}


async def key(cell: Cell, request: str, queue: str) -> float | None:
    found: float | None = await cell.client.zscore(cell.keys.queue(queue), request)
    return found


async def test_a_planner_sees_the_line_and_all_that_instances_have_at_one_instant(cell: Cell) -> None:
    seat = await lined_up(
        cell,
        late("r2", "t", offset_ms=20, prompt_tokens=40, expected_tokens=7, slo_ms=900, prefix=b"12345678"),
        late("r1", "s", requires=frozenset({"fast"}), features=frozenset({"chat"})),
    )
    assert await cell.line.wait()
    await join(cell, "b")
    await cell.instances.evacuate("b", "draining")
    await cell.instances.publish("a", seat.epoch or 0, LOAD, b"12345678abcdefgh")
    seen = await cell.line.survey(64)
    assert seen.line == ("r1", "r2")
    (standing,) = seen.standings
    assert (standing.instance, standing.load) == (next(i for i in await cell.instances.all() if i.id == "a"), LOAD)
    assert standing.cache == {b"12345678", b"abcdefgh"}
    asked = await cell.line.asked(["r1", "r2", "r9"])
    assert sorted(asked) == ["r1", "r2"]
    second = asked["r2"]
    assert (second.prompt_tokens, second.expected_tokens, second.slo_ms, second.prefix) == (40, 7, 900, b"12345678")
    assert second.key_ms == await key(cell, "r2", LINE)
    assert second.characters == len("prompt of t")
    assert (asked["r1"].requires, asked["r1"].features, asked["r1"].model) == ({"fast"}, {"chat"}, None)


async def test_a_planner_sees_where_one_that_must_run_alone_waits_or_runs(cell: Cell) -> None:
    seat = await lined_up(cell, *(late(f"r{number}", f"s{number}", offset_ms=number) for number in range(4)))
    await cell.client.hset(cell.keys.request("r1"), "alone", 1)

    async def alone() -> tuple[frozenset[str], bool]:
        seen = await cell.line.survey(64)
        return seen.alone, seen.standings[0].alone

    assert await alone() == ({"r1"}, False)
    await place(cell, seat, "r0", "r1", "r2")
    assert await alone() == (frozenset(), True)
    for turn, (running, shut) in enumerate([("r0", True), ("r1", True), ("r2", False)]):
        (claim,) = await cell.queues.claim(seat, f"c{turn}", LEASE_MS, replace(ROOM, requests=1))
        assert (claim.request, *await alone()) == (running, frozenset(), shut)
        await cell.queues.finish([(claim.request, claim.token, Outcome("x"))])


DEMANDS: tuple[dict[str, object], ...] = (
    {},
    {"call": LlmCall("x", None, "a/model", Sampling())},
    {"requires": frozenset({"eu"})},
    {"requires": frozenset({"fast"}), "features": frozenset({"json_schema"})},
    {"longer_than": 4095},
)


async def lanes(cell: Cell) -> dict[str, list[str]]:
    names = [name.decode() for name in await cell.client.smembers(cell.keys.lanes)]
    return {name: await queued(cell, name) for name in (LINE, *names)}


async def test_what_asks_the_same_of_an_instance_waits_in_a_lane_and_a_planner_sees_the_heads_of_all(
    cell: Cell,
) -> None:
    pushes = [
        late(f"r{number}", f"s{number}", offset_ms=10 * number, **demand)
        for number, demand in enumerate(DEMANDS * 3, start=100)
    ]
    await lined_up(cell, *pushes)
    assert await lanes(cell) == {
        "line": ["r100", "r105", "r110"],
        "line/a/model": ["r101", "r106", "r111"],
        "line+eu": ["r102", "r107", "r112"],
        "line+fast*json_schema": ["r103", "r108", "r113"],
        "line>4095": ["r104", "r109", "r114"],
    }
    assert (await cell.line.survey(64)).line == tuple(f"r{number}" for number in range(100, 115))
    assert (await cell.line.survey(2)).line == tuple(f"r{number}" for number in range(100, 110))
    assert (await cell.records.counts())["in_line"] == 15
    at = (await cell.records.whereabouts(["r106"]))["r106"]
    assert (at.instance, at.place, at.queued) == (LINE, 2, 3)
    assert await backlog(cell) == {LINE: 1500}


async def test_of_very_many_lanes_fewer_each_are_seen(cell: Cell) -> None:
    many = [
        late(f"r{number}-{turn}", f"s{number}-{turn}", offset_ms=turn, requires=frozenset({f"l{number}"}))
        for number in range(MOST_SEEN // 4)
        for turn in range(5)
    ]
    await lined_up(cell, *many)
    assert {request[-1] for request in (await cell.line.survey(64)).line} == {"0", "1", "2"}


@pytest.mark.strange_keys("what was broken on purpose stays")
@pytest.mark.parametrize("demand", DEMANDS)
async def test_a_lane_lasts_as_long_as_something_waits_there(cell: Cell, demand: dict[str, object]) -> None:
    seat = await lined_up(cell, late("r1", "s", **demand), late("r2", "t", offset_ms=1, **demand))
    full = await lanes(cell)
    before = await key(cell, "r1", max(full))
    assert full[max(full)] == ["r1", "r2"]
    assert await place(cell, seat, "r1", "r2") == [True, True]
    assert await lanes(cell) == {LINE: []}
    await cell.line.wait()
    await cell.instances.publish("a", seat.epoch or 0, LOAD)
    assert await cell.client.exists(cell.keys.line_wake) == 0  # there is nothing to plan
    assert await cell.instances.evacuate("a", "lost") == 2
    assert await lanes(cell) == full
    assert await key(cell, "r1", max(full)) == before
    assert await backlog(cell) == {LINE: 140}
    await cell.line.wait()
    await join(cell)
    assert await cell.client.exists(cell.keys.line_wake) == 1
    await commit(cell, 1, 0, drops=["r1"])
    await cell.client.delete(cell.keys.request("r2"))
    await cell.client.set(cell.keys.request("r2"), "a text")
    assert await cell.line.give_back(["r2"]) == 1
    assert await lanes(cell) == {LINE: []}


async def test_a_cache_is_read_again_when_its_version_or_its_instance_is_another(cell: Cell) -> None:
    seat = await lined_up(cell, late("r1", "s"))

    async def cached() -> frozenset[bytes]:
        return (await cell.line.survey(64)).standings[0].cache

    assert await cached() == frozenset()
    await cell.instances.publish("a", seat.epoch or 0, LOAD, b"12345678")
    assert await cached() == await cached() == {b"12345678"}
    await join(cell)
    assert await cached() == frozenset()


async def test_a_request_is_placed_once_under_its_key(cell: Cell) -> None:
    seat = await lined_up(cell, late("r1", "s", offset_ms=-50))
    assert await backlog(cell) == {LINE: 100}
    before = await key(cell, "r1", LINE)
    seen = await cell.line.survey(64)
    plan = [Placement("r1", "a", seat.epoch or 0, 70)]
    assert await cell.line.place(seen.plans, plan) == [True]
    assert await cell.line.place(seen.plans, plan) is None  # the reply was lost; or another planner looked as early
    assert await place(cell, seat, "r1") == [False]
    assert (await queued(cell, LINE), await queued(cell)) == ([], ["r1"])
    assert await key(cell, "r1", "a") == before
    assert await backlog(cell) == {"a": 70}
    assert await cell.client.zcard(cell.keys.wake("a")) == 1
    (claim,) = await cell.queues.claim(seat, "c1", LEASE_MS, ROOM)
    assert (claim.request, claim.key_ms) == ("r1", before)


@pytest.mark.parametrize("how", ["draining", "another incarnation", "gone"])
async def test_nothing_is_placed_on_an_instance_that_is_not_the_one_seen(cell: Cell, how: str) -> None:
    seat = await lined_up(cell, late("r1", "s"))
    if how == "draining":
        await cell.instances.evacuate("a", "draining")
    elif how == "gone":
        await cell.instances.remove("a")
    else:
        await join(cell)
    assert await place(cell, seat, "r1") == [False]
    assert await queued(cell, LINE) == ["r1"]
    assert await backlog(cell) == {LINE: 100}


async def test_what_is_bound_to_an_instance_is_seen_until_it_is_handed_in(cell: Cell) -> None:
    seat = await lined_up(cell, late("r1", "s"), late("r2", "t", offset_ms=1), late("r3", "u", offset_ms=2))
    await place(cell, seat, "r1", "r2")
    (claim,) = await cell.queues.claim(seat, "c1", LEASE_MS, Room(1, 512, 1000))
    seen = (await cell.line.survey(64)).standings[0]
    assert (seen.queued, seen.claimed) == (("r2",), ("r1",))
    await cell.line.wait()
    await cell.queues.finish([(claim.request, claim.token, Outcome("x"))])
    assert await cell.line.wait()  # there is room
    assert (await cell.line.survey(64)).standings[0].claimed == ()
    await cell.queues.claim(seat, "c2", LEASE_MS, ROOM)
    await join(cell)
    assert (await cell.line.survey(64)).standings[0].claimed == ()  # of an earlier incarnation


async def test_a_queue_that_is_evacuated_goes_back_into_the_line(cell: Cell) -> None:
    seat = await lined_up(cell, late("r1", "s", offset_ms=-9), late("r2", "t"))
    before = await key(cell, "r1", LINE)
    await place(cell, seat, "r1", "r2")
    await cell.line.wait()
    assert await cell.instances.evacuate("a", "lost") == 2
    assert await queued(cell, LINE) == ["r1", "r2"]
    assert await key(cell, "r1", LINE) == before
    assert await backlog(cell) == {LINE: 140}
    assert await mail(cell) == []
    assert await cell.line.wait()


@pytest.mark.parametrize("how", ["release", "reap"])
async def test_a_claimed_request_that_is_given_back_goes_into_the_line(cell: Cell, how: str) -> None:
    seat = await lined_up(cell, late("r1", "s", offset_ms=-9))
    before = await key(cell, "r1", LINE)
    await place(cell, seat, "r1")
    (claim,) = await cell.queues.claim(seat, "c1", LEASE_MS, ROOM)
    if how == "release":
        await cell.queues.release([("r1", claim.token)])
    else:
        await cell.client.zadd(cell.keys.leases, {"r1": 0})
        await cell.queues.reap(0, 3)
    assert await queued(cell, LINE) == ["r1"]
    assert await key(cell, "r1", LINE) == before
    assert await backlog(cell) == {LINE: 70}
    assert await cell.client.exists(cell.keys.claimed("a")) == 0
    assert await mail(cell) == []
    assert await cell.queues.finish([("r1", claim.token, Outcome("late"))]) == [False]
    await place(cell, seat, "r1")
    (again,) = await cell.queues.claim(seat, "c2", LEASE_MS, ROOM)
    assert await cell.queues.finish([("r1", again.token, Outcome("x"))]) == [True]
    assert [type(event) for event in await mail(cell)] == [Completed]
    assert await backlog(cell) == {}


async def test_a_request_that_takes_its_workers_with_it_ends_as_a_dead_letter(cell: Cell) -> None:
    seat = await lined_up(cell, late("r1", "s"))
    await place(cell, seat, "r1")
    await cell.queues.claim(seat, "c1", LEASE_MS, ROOM)
    await cell.client.zadd(cell.keys.leases, {"r1": 0})
    await cell.queues.reap(0, 1)
    assert await queued(cell, LINE) == []
    assert await mail(cell) == [Lost("r1", "s", 1)]
    assert await cell.client.xlen(cell.keys.dead) == 1
    assert await backlog(cell) == {}


async def test_a_retry_joins_the_line_under_its_first_key(cell: Cell) -> None:
    seat = await lined_up(cell, late("r1", "s", offset_ms=-9))
    before = await key(cell, "r1", LINE)
    await place(cell, seat, "r1")
    (claim,) = await cell.queues.claim(seat, "c1", LEASE_MS, ROOM)
    await cell.queues.finish([("r1", claim.token, AttemptFailed("no"))])
    assert await mail(cell) == [Failed("r1", "s", "no", True)]
    assert await backlog(cell) == {}
    assert await commit(cell, 1, 1, pushes=[late("r1", "s", offset_ms=-5000)]) == 1
    assert await key(cell, "r1", LINE) == before
    assert await backlog(cell) == {LINE: 100}


async def test_the_key_of_a_policy_that_binds_early_is_none_for_the_line(cell: Cell) -> None:
    await lined_up(cell, push("r1", "s", offset_ms=-9000))
    enqueued_at = int(await cell.client.hget(cell.keys.request("r1"), "enqueued_at"))
    await cell.instances.evacuate("a", "lost")
    await commit(cell, 1, 1, pushes=[late("r1", "s", offset_ms=400)])  # its coordinator has another policy now
    assert await key(cell, "r1", LINE) == enqueued_at + 400


async def test_what_nobody_can_take_goes_back_to_its_workflow(cell: Cell) -> None:
    await lined_up(cell, late("r1", "s"), late("r2", "t"))
    await cell.client.zadd(cell.keys.queue(LINE), {"stray": 0})
    assert await cell.line.give_back(["r1", "stray", "never there"]) == 2
    assert await queued(cell, LINE) == ["r2"]
    assert await mail(cell) == [Evacuated("r1", "s")]
    assert await backlog(cell) == {LINE: 100}


async def test_what_has_left_the_line_is_not_sought_in_all_its_lanes(cell: Cell) -> None:
    seat = await lined_up(cell, *(late(f"r{number}", f"s{number}", **demand) for number, demand in enumerate(DEMANDS)))
    assert await place(cell, seat, "r1") == [True]
    await cell.client.config_resetstat()
    assert await cell.line.give_back(["r1"]) == 0
    assert (await cell.client.info("commandstats"))["cmdstat_zscore"]["calls"] == 1
    assert await queued(cell) == ["r1"]


async def test_the_end_of_a_workflow_takes_its_requests_out_of_the_line_and_off_instances(cell: Cell) -> None:
    seat = await lined_up(cell, late("r1", "s"), late("r2", "t"))
    await place(cell, seat, "r1")
    await commit(cell, 1, 0, drops=["r1", "r2"], end=End("cancelled", {}, 60_000))
    assert (await queued(cell), await queued(cell, LINE)) == ([], [])
    assert await backlog(cell) == {}


async def test_what_belongs_to_no_running_workflow_does_not_return_to_the_line(cell: Cell) -> None:
    seat = await lined_up(cell, late("r1", "s"))
    await place(cell, seat, "r1")
    await commit(cell, 1, 0, end=End("failed", {}, 60_000))
    assert await cell.instances.evacuate("a", "lost") == 1
    assert (await queued(cell), await queued(cell, LINE)) == ([], [])


async def test_a_request_pushed_to_an_instance_is_routed_anew_by_its_workflow(cell: Cell) -> None:
    seat = await lined_up(cell, late("r1", "s"))
    await place(cell, seat, "r1")
    await cell.instances.evacuate("a", "lost")
    await cell.line.give_back(["r1"])
    await join(cell)
    await commit(cell, 1, 1, pushes=[push("r1", "s")])  # its coordinator has another policy now
    await cell.instances.evacuate("a", "lost")
    assert await queued(cell, LINE) == []
    assert await mail(cell) == [Evacuated("r1", "s")]


@pytest.mark.strange_keys("what was broken on purpose stays")
async def test_a_record_that_cannot_be_read_keeps_no_other_from_being_placed(cell: Cell) -> None:
    seat = await lined_up(cell, late("r1", "s"), late("r2", "t"))
    await cell.client.delete(cell.keys.request("r1"))
    await cell.client.set(cell.keys.request("r1"), "a text")
    assert list(await cell.line.asked(["r1", "r2"])) == ["r2"]
    assert await place(cell, seat, "r1", "r2") == [False, True]
    assert await cell.line.give_back(["r1"]) == 1
    assert await queued(cell, LINE) == []


@pytest.mark.parametrize(("field", "value"), [("serves", b"\xc1"), ("profile", b"\x80"), ("load", b"\xc1")])
async def test_an_instance_that_cannot_be_read_hides_no_other(cell: Cell, field: str, value: bytes) -> None:
    await lined_up(cell, late("r1", "s"))
    await join(cell, "b")
    await cell.client.hset(cell.keys.instance("a"), field, value)
    seen = {standing.instance.id: standing for standing in (await cell.line.survey(64)).standings}
    assert set(seen) == ({"a", "b"} if field == "load" else {"b"})
    assert field != "load" or seen["a"].load is None


async def test_a_planner_is_woken_by_an_instance_that_is_ready_again(cell: Cell) -> None:
    seat = await lined_up(cell, late("r1", "s"))
    await cell.line.wait()
    await cell.instances.evacuate("a", "lost")
    await cell.queues.renew(seat, LEASE_MS, [])
    assert await cell.line.wait()
    await join(cell, "b")
    assert await cell.line.wait()
