"""The recoverer on a real server: whatever number was lost at once is found in one look."""

import pytest
from operations_bench import LEASE_MS, accept, commit, dispatched, push

from common.settings import load
from common.store.cell import Cell
from common.store.queues import Room
from coordinator.desk import Desk
from coordinator.loops.recoverer import promoter, recoverer

MANY = 250


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    async def at_once(seconds: float) -> None: ...

    monkeypatch.setattr("common.clock.sleep", at_once)


@pytest.mark.strange_keys("it loses records")
@pytest.mark.parametrize("lost", [0, MANY - 1])
async def test_all_leases_that_ran_out_together_are_ended_in_one_look(cell: Cell, lost: int) -> None:
    """Also where the records of the oldest are lost."""
    seat = await dispatched(cell, *(push(f"r{i}", f"s{i}") for i in range(MANY)))
    assert len(await cell.queues.claim(seat, "c1", 0, Room(MANY, 1_000_000, 1_000_000))) == MANY
    for request in (await cell.client.zrange(cell.keys.leases, 0, -1))[:lost]:
        await cell.client.delete(cell.keys.request(request.decode()))
    await cell.queues.reap(LEASE_MS, 3)
    await cell.client.hset(cell.keys.server, "since", 0)
    await recoverer(Desk(cell, load(policy="hexgen")))
    assert await cell.client.zcard(cell.keys.leases) == 0


async def test_all_that_is_due_together_is_woken_in_one_look(cell: Cell) -> None:
    await accept(cell)
    await commit(cell, 0, 1, delays=[(f"s{i}", 0) for i in range(MANY)])
    await promoter(Desk(cell, load(policy="hexgen")))
    assert await cell.client.zcard(cell.keys.delayed) == 0


async def test_a_delay_of_no_workflow_holds_up_no_other(cell: Cell) -> None:
    await cell.client.zadd(f"{cell.keys.prefix}delayed", {"nobody": 1, "w b": 2})
    assert await cell.queues.promote() == 2
