"""Losses: what is taken from a request when the engine under it is lost, and how its innocent neighbours are spared."""

import pytest
from operations_bench import LEASE_MS, ROOM, commit, dispatched, join, mail, push, queued

from common.errors import AttemptFailed
from common.events import Completed, Evacuated, Lost, Outcome
from common.model import TOOLS
from common.settings import load
from common.store.cell import Cell
from common.store.queues import Loss, Room, Seat
from coordinator.desk import Desk
from coordinator.loops.completions import completions
from coordinator.loops.intake import intake
from workers.tools.execution import ONE

LIMIT = 3
BUSY = Room(requests=8, prefill_tokens=10_000, kv_tokens=10_000)


async def lose(cell: Cell, seat: Seat, call: str, room: Room = ROOM) -> list[Loss] | None:
    """The engine stalls under all that it can claim."""
    claims = await cell.queues.claim(seat, call, LEASE_MS, room)
    await cell.queues.forfeit([(claim.request, claim.token) for claim in claims], "stalled")
    return await cell.queues.reap(0, LIMIT)


async def test_what_was_forfeited_is_a_loss_at_once_though_its_worker_lives(cell: Cell) -> None:
    seat = await dispatched(cell, push("r1", "s"), push("r2", "t"))
    claims = await cell.queues.claim(seat, "c1", LEASE_MS, ROOM)
    await cell.queues.forfeit([("r1", claims[0].token), ("r2", claims[1].token + 1)], "stalled")
    held = [(claim.request, claim.token) for claim in claims]
    assert await cell.queues.renew(seat, LEASE_MS, held) == ("ready", ["r1"])  # a renewal that was on its way
    assert await cell.queues.reap(0, LIMIT) == [Loss("r1", "w1", "s", "a/p1", 1, "stalled")]
    assert await mail(cell) == [Evacuated("r1", "s")]
    assert await cell.instances.backlogs() == {"a": 100}
    assert await cell.client.zrange(cell.keys.leases, 0, -1) == [b"r2"]


async def test_a_result_that_comes_all_the_same_counts(cell: Cell) -> None:
    (claim,) = await cell.queues.claim(await dispatched(cell, push("r1", "s")), "c1", LEASE_MS, ROOM)
    await cell.queues.forfeit([("r1", claim.token)], "stalled")
    assert await cell.queues.finish([("r1", claim.token, Outcome("x"))]) == [True]
    await cell.queues.forfeit([("r1", claim.token)], "stalled")
    assert await cell.queues.reap(0, LIMIT) == []
    assert await mail(cell) == [Completed("r1", "s", Outcome("x"))]


async def test_the_next_attempt_is_held_like_any_other(cell: Cell) -> None:
    seat = await dispatched(cell, push("r1", "s"))
    (claim,) = await cell.queues.claim(seat, "c1", LEASE_MS, ROOM)
    await cell.queues.forfeit([("r1", claim.token)], "stalled")
    await cell.queues.finish([("r1", claim.token, AttemptFailed("late"))])
    await commit(cell, 1, 1, pushes=[push("r1", "s")])
    (again,) = await cell.queues.claim(seat, "c2", LEASE_MS, ROOM)
    assert await cell.queues.renew(seat, LEASE_MS, [("r1", again.token)]) == ("ready", [])
    await cell.client.zadd(cell.keys.leases, {"r1": 0})
    assert await cell.queues.reap(0, LIMIT) == [Loss("r1", "w1", "s", "a/p1", 1, "")]


async def test_an_engine_is_given_up_on_a_full_server(cell: Cell) -> None:
    (claim,) = await cell.queues.claim(await dispatched(cell, push("r1", "s")), "c1", LEASE_MS, ROOM)
    assert await cell.queues.reap(0, LIMIT) == []
    await cell.client.config_set("maxmemory", 1)
    try:
        await cell.queues.forfeit([("r1", claim.token)], "ended")
        assert await cell.queues.reap(0, LIMIT) == [Loss("r1", "w1", "s", "a/p1", 1, "ended")]
    finally:
        await cell.client.config_set("maxmemory", 0)


async def test_with_one_loss_left_it_runs_alone_and_neighbours_are_spared(cell: Cell) -> None:
    """r2 is what stalls engines; whoever runs beside it has the same losses."""
    pushes = [push(f"r{number}", f"s{number}", offset_ms=number) for number in range(4)]
    seat = await dispatched(cell, *pushes)
    for turn in range(LIMIT - 1):
        assert await lose(cell, seat, f"c{turn}") == [
            Loss(one.request, "w1", one.node, "a/p1", turn + 1, "stalled") for one in pushes
        ]
        await commit(cell, 1 + turn, 4, pushes=pushes)
    assert await cell.queues.claim(seat, "busy", LEASE_MS, BUSY) == []  # as long as anything else runs there
    for number, _ in enumerate(pushes):
        if number == 2:
            assert await lose(cell, seat, "alone2") == [Loss("r2", "w1", "s2", "a/p1", LIMIT, "stalled")]
            continue
        (claim,) = await cell.queues.claim(seat, f"alone{number}", LEASE_MS, ROOM)
        (again,) = await cell.queues.claim(seat, f"alone{number}", LEASE_MS, ROOM)
        assert claim.request == f"r{number}"
        assert claim.alone
        assert again.alone
        assert await cell.queues.finish([(claim.request, claim.token, Outcome("x"))]) == [True]
    told = await mail(cell)
    assert [event for event in told if isinstance(event, Lost)] == [Lost("r2", "s2", LIMIT)]
    assert len(told) == len(pushes)
    (letter,) = await cell.dead.all()
    assert (letter.request, letter.reason) == ("r2", "its worker or engine was lost 3 times")
    assert await cell.instances.backlogs() == {"a": 0}


async def test_it_waits_for_its_turn_and_takes_nobody_with_it(cell: Cell) -> None:
    seat = await dispatched(cell, *(push(f"r{number}", f"s{number}", offset_ms=number) for number in range(3)))
    await cell.client.hset(cell.keys.request("r1"), "alone", 1)
    rounds = [await cell.queues.claim(seat, f"c{turn}", LEASE_MS, ROOM) for turn in range(3)]
    assert [[claim.request for claim in claims] for claims in rounds] == [["r0"], ["r1"], ["r2"]]
    assert [[claim.alone for claim in claims] for claims in rounds] == [[False], [True], [False]]


async def places(cell: Cell, desk: Desk, *workflows: str) -> list[str]:
    """The instances to which their requests go, after a new look at the cluster."""
    desk.refresh()
    for workflow in workflows:
        stages = {"s": {"prompt": "say it"}}
        await cell.records.submit({"workflow": {"name": "one", "stages": stages}, "id": workflow})
    await intake(desk)
    await completions(desk)
    found = {(await cell.client.hget(cell.keys.request(request), "workflow")).decode(): instance
             for instance in ("a", "b") for request in await queued(cell, instance)}  # fmt: skip
    return [found[workflow] for workflow in workflows]


@pytest.mark.parametrize("policy", ["vllm", "hexgen"])
async def test_policies_that_bind_early_go_around_one_that_must_run_alone(cell: Cell, policy: str) -> None:
    desk = Desk(cell, load(policy=policy))
    seats = {name: await join(cell, name) for name in ("a", "b")}
    (here,) = await places(cell, desk, "w1")
    there = "b" if here == "a" else "a"
    (request,) = await queued(cell, here)
    await cell.client.hset(cell.keys.request(request), "alone", 1)
    assert await places(cell, desk, "w2", "w3", "w4") == [there] * 3
    (claim,) = await cell.queues.claim(seats[here], "c1", LEASE_MS, ROOM)
    assert claim.alone
    assert await places(cell, desk, "w5", "w6") == [there] * 2
    assert await cell.queues.finish([(request, claim.token, Outcome("x"))]) == [True]
    assert here in await places(cell, desk, "w7", "w8")


async def test_a_tool_request_runs_alone_in_any_case(cell: Cell) -> None:
    await dispatched(cell, push("r1", "s", TOOLS))
    await cell.client.hset(cell.keys.request("r1"), "alone", 1)
    (claim,) = await cell.queues.claim(Seat(TOOLS, None, "tools/1"), "ticket", LEASE_MS, ONE)
    assert claim.request == "r1"


@pytest.mark.parametrize("limit", [1, 2])
async def test_a_small_limit_is_kept(cell: Cell, limit: int) -> None:
    seat = await dispatched(cell, push("r1", "s"))
    for turn in range(limit):
        (claim,) = await cell.queues.claim(seat, f"c{turn}", LEASE_MS, ROOM)
        assert claim.alone == (turn == 1)
        await cell.queues.forfeit([("r1", claim.token)], "ended")
        assert await cell.queues.reap(0, limit) == [Loss("r1", "w1", "s", "a/p1", turn + 1, "ended")]
        await commit(cell, 1 + turn, 1, pushes=[push("r1", "s")] if turn + 1 < limit else [])
    assert len(await cell.dead.all()) == 1
