"""The completions loop and the memory of its coordinator, on a real server."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from common import clock
from common.errors import AttemptFailed
from common.events import Outcome
from common.model import InstanceProfile
from common.settings import load
from common.store.cell import Cell
from common.store.inbox import Look
from common.store.queues import Room, Seat
from common.store.scripts import call_id
from coordinator import core
from coordinator.desk import Desk
from coordinator.loops.completions import completions, handle
from coordinator.loops.intake import intake, take
from coordinator.loops.recoverer import promoter

PROFILE = InstanceProfile("test", 1000.0, 0.03, 0.005, 1e-7, 1000)
ONE = {
    "name": "one",
    "stages": {"a": {"prompt": "say {{ inputs.x }}"}},
    "inputs": {"x": {"type": "any"}},
    "output": "a.output",
}


async def submit(desk: Desk, identifier: str) -> Seat:
    seat = Seat("a", await desk.cell.instances.register("a", PROFILE, ["default"], [], []), "a/1")
    await desk.cell.records.submit({"workflow": ONE, "inputs": {"x": 1}, "id": identifier})
    await intake(desk)
    return seat


async def answer(cell: Cell, seat: Seat, text: str) -> None:
    """What the worker of this seat does with one request."""
    (claim,) = await cell.queues.claim(seat, call_id(), 60_000, Room(1, 1000, 1000))
    assert await cell.queues.finish([(claim.request, claim.token, Outcome(text, "a"))]) == [True]


async def test_an_id_that_is_used_again_meets_nothing_of_its_first_use(cell: Cell) -> None:
    one, other = Desk(cell, load(policy="hexgen")), Desk(cell, load(policy="hexgen"))
    for text, starts, ends in (("first", other, one), ("second", one, other)):
        seat = await submit(one, "w")
        await completions(starts)
        await answer(cell, seat, text)
        await completions(ends)
        result = await cell.records.result("w")
        assert result
        assert (result["status"], result["output"]) == ("completed", text)
        await cell.client.delete(cell.keys.workflow("w"), cell.keys.result("w"), cell.keys.events("w"))  # purged


async def test_a_cancellation_whose_coordinator_dies_on_it_is_not_told_as_refused(
    cell: Cell, monkeypatch: pytest.MonkeyPatch
) -> None:
    dying, other = Desk(cell, load(policy="hexgen")), Desk(cell, load(policy="hexgen"))
    await submit(dying, "w")
    cancel = cell.inbox.cancel

    async def cancel_and_die(*asked: str) -> bool:
        await cancel(*asked)
        raise asyncio.CancelledError

    entry = await cell.records.submit({"cancel": "w"})
    with monkeypatch.context() as patch:
        patch.setattr(cell.inbox, "cancel", cancel_and_die)
        with pytest.raises(asyncio.CancelledError):
            await intake(dying)
    await completions(other)
    for stale in await cell.inbox.stale(cell.keys.submissions, 0):
        left = await cell.inbox.take_over(cell.keys.submissions, other.name, 0, stale)
        assert left is not None
        await take(other, left)
    result: Any = await cell.records.result("w")
    assert result["status"] == "cancelled"
    assert await cell.client.exists(cell.keys.events(entry)) == 0


async def test_a_workflow_may_leave_the_memory_while_it_is_looked_at(
    cell: Cell, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = Desk(cell, load(policy="hexgen"))
    seat = await submit(desk, "w")
    await completions(desk)
    begin = cell.inbox.begin

    async def begin_and_forget(wanted: Sequence[tuple[str, int]], messages: int) -> list[Look]:
        looks = await begin(wanted, messages)
        desk.forget("w")  # as another loop of this coordinator does whose memory is full
        return looks

    monkeypatch.setattr(cell.inbox, "begin", begin_and_forget)
    await answer(cell, seat, "done")
    await completions(desk)
    result: Any = await cell.records.result("w")
    assert result["output"] == "done"


RACE = {
    "name": "race",
    "stages": {
        "a": {"for_each": [1, 2, 3, 4], "join": "first_success", "prompt": "{{ item }}"},
        "b": {"needs": ["a"], "optional": True, "retries": 0, "prompt": "{{ a.output }}"},
        "c": {"needs": ["b"], "prompt": "{{ b.status }}"},
    },
    "output": "[a.output, b.output, b.status]",
}


async def test_losers_and_optional_failures_leave_nothing_behind(cell: Cell) -> None:
    """One copy wins while another runs, one waits and one is to be tried again."""
    desk = Desk(cell, load(policy="hexgen"))
    seat = Seat("a", await cell.instances.register("a", PROFILE, ["default"], [], []), "a/1")
    await cell.records.submit({"workflow": RACE, "id": "w"})
    await intake(desk)
    await completions(desk)
    winner, loser, failing = await cell.queues.claim(seat, call_id(), 60_000, Room(3, 1000, 1000))
    await cell.queues.finish([(failing.request, failing.token, AttemptFailed("out of memory", retryable=True))])
    await completions(desk)
    assert await cell.client.zcard(cell.keys.delayed) == 1
    assert await cell.queues.finish([(winner.request, winner.token, Outcome("won", "a"))]) == [True]
    await completions(desk)
    assert await cell.client.zcard(cell.keys.delayed) == 0
    assert await cell.queues.renew(seat, 60_000, [(loser.request, loser.token)]) == ("ready", [loser.request])
    assert await cell.queues.finish([(loser.request, loser.token, Outcome("late", "a"))]) == [False]
    (second,) = await cell.queues.claim(seat, call_id(), 60_000, Room(8, 1000, 1000))
    assert second.node == "b"
    await cell.queues.finish([(second.request, second.token, AttemptFailed("broken", retryable=True))])
    await completions(desk)
    await answer(cell, seat, "end")
    await completions(desk)
    result = await cell.records.result("w")
    assert result
    assert (result["status"], result["output"]) == ("completed", ["won", None, "failed"])
    assert await cell.client.zcard(cell.keys.leases) == await cell.client.zcard(cell.keys.queue("a")) == 0
    assert (await cell.instances.backlogs())["a"] == 0
    assert await cell.client.keys(f"{cell.keys.prefix}request:*") == []
    assert await cell.client.exists(f"{cell.keys.prefix}outstanding", cell.keys.outputs("w")) == 0


async def test_what_takes_much_effort_is_done_in_several_steps_and_others_end_meanwhile(
    cell: Cell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(core, "STEP_EFFORT", 5_000)
    monkeypatch.setattr(clock, "sleep", lambda _: asyncio.sleep(0))
    desk = Desk(cell, load(policy="hexgen"))
    costly = {f"s{at}": {"tool": "t", "when": "range(500) | list | sort | list | sum < 0"} for at in range(8)}
    stages = {"g": {"for_each": "range(20) | list", "stages": costly}}
    await cell.records.submit({"workflow": {"name": "costly", "stages": stages}, "id": "costly"})
    seat = await submit(desk, "neighbour")
    await completions(desk)
    assert await cell.client.zcard(cell.keys.delayed) > 0
    await answer(cell, seat, "done")
    await completions(desk)
    assert (await cell.records.result("neighbour") or {})["status"] == "completed"
    assert await cell.records.result("costly") is None
    for _ in range(100):
        await promoter(desk)
        await completions(desk)
        if result := await cell.records.result("costly"):
            break
    assert result
    assert result["output"] == {"g": [dict.fromkeys(costly)] * 20}
    assert await cell.client.zcard(cell.keys.delayed) == 0


async def test_a_call_for_nobody_is_settled(cell: Cell) -> None:
    desk = Desk(cell, load(policy="hexgen"))
    await cell.client.xadd(cell.keys.completions, {"hello": "world"})
    await handle(desk, await cell.inbox.read(cell.keys.completions, "c1", 10))
    assert await cell.client.xlen(cell.keys.completions) == 0
