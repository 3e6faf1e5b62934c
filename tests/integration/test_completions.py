"""The completions loop and the memory of its coordinator, on a real server."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from common.events import Outcome
from common.model import InstanceProfile
from common.settings import load
from common.store.cell import Cell
from common.store.inbox import Look
from common.store.queues import Room, Seat
from common.store.scripts import call_id
from coordinator.desk import Desk
from coordinator.loops.completions import completions
from coordinator.loops.intake import intake, take

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
