"""A failover has lost the last steps: coordinators that remember them go on from what the new master knows."""

import pytest
from operations_bench import LEASE_MS, PROFILE, ROOM

from common.events import Outcome
from common.settings import load
from common.store.cell import Cell
from common.store.queues import Seat
from common.store.scripts import call_id
from coordinator.desk import Desk
from coordinator.loops.completions import completions
from coordinator.loops.intake import intake

TWO = {
    "name": "two",
    "stages": {"a": {"prompt": "say a"}, "b": {"needs": ["a"], "prompt": "say {{ a.output }}"}},
    "output": "b.output",
}
Past = dict[bytes, tuple[int, bytes]]


async def replicated(cell: Cell) -> Past:
    """All keys of the cell as they are now."""
    keys = await cell.client.keys(f"{cell.keys.prefix}*")
    return {key: (max(0, await cell.client.pttl(key)), await cell.client.dump(key)) for key in keys}


async def fail_over(cell: Cell, past: Past) -> None:
    """What came after that is lost."""
    await cell.client.delete(*await cell.client.keys(f"{cell.keys.prefix}*"))
    for key, (ttl_ms, value) in past.items():
        await cell.client.restore(key, ttl_ms, value)


async def answer(cell: Cell, seat: Seat, text: str) -> None:
    (claim,) = await cell.queues.claim(seat, call_id(), LEASE_MS, ROOM)
    assert await cell.queues.finish([(claim.request, claim.token, Outcome(text))]) == [True]


@pytest.mark.parametrize("goes_on", ["who remembers", "another"])
async def test_a_step_that_was_lost_is_not_remembered_as_the_one_made_instead(cell: Cell, goes_on: str) -> None:
    seat = Seat("a", await cell.instances.register("a", PROFILE, ["default"], [], []), "a/1")
    first, second = (Desk(cell, load(policy="hexgen")) for _ in range(2))
    workflow = await cell.records.submit({"workflow": TWO})
    await intake(first)
    await completions(first)
    await answer(cell, seat, "a")
    past = await replicated(cell)
    await completions(first)
    await fail_over(cell, past)
    await completions(second)
    await answer(cell, seat, "b")
    await completions(first if goes_on == "who remembers" else second)
    result = await cell.records.result(workflow)
    assert result is not None
    assert result["output"] == "b"
