"""The window of completed workflows, and what the tuner keeps, on a real server."""

import pytest
from test_completions import answer, submit

from common.events import Outcome
from common.model import Usage
from common.policy.registry import policy
from common.policy.rules import Rules
from common.settings import load
from common.store.cell import Cell
from common.store.queues import Room, Seat
from common.store.scripts import call_id
from common.store.tuning import NONE, Parameters
from coordinator.desk import Desk
from coordinator.loops.completions import completions
from coordinator.loops.roster import Roster


async def complete(cell: Cell, desk: Desk, name: str, seat: Seat) -> None:
    await completions(desk)
    (claim,) = await cell.queues.claim(seat, call_id(), 60_000, Room(1, 1000, 1000))
    outcome = Outcome("done", "a", 7, 250, Usage(120, 30, 64), 400)
    assert await cell.queues.finish([(claim.request, claim.token, outcome)]) == [True]
    await completions(desk)


async def test_a_workflow_that_completes_is_recorded_in_the_same_step(cell: Cell) -> None:
    desk = Desk(cell, load(policy="hexgen", alpha=0.25))
    seat = await submit(desk, "w")
    now, arrivals = await cell.traces.arrivals(10)
    await complete(cell, desk, "w", seat)
    (record,) = await cell.traces.window(10)
    (call,) = record.calls
    assert (call.stage, call.prompt_tokens, call.output_tokens, call.cached_tokens) == ("a", 120, 30, 64)
    assert (call.queued_s, call.run_s, call.needs) == (0.007, 0.25, ())
    assert (record.name, record.tenant, record.values) == ("one", "default", {"alpha": 0.25})
    assert (await cell.traces.arrivals(10))[1] == [record.arrival_at]  # while it ran: when it was accepted
    assert [record.arrival_at <= accepted_at <= now for accepted_at in arrivals] == [True]
    assert now <= record.ended_at
    assert 0 < await cell.client.pttl(cell.keys.traces) <= 24 * 3600 * 1000


async def test_what_tells_no_tokens_or_is_not_wanted_is_not_recorded(cell: Cell) -> None:
    desk = Desk(cell, load(policy="hexgen"))
    seat = await submit(desk, "untold")
    await completions(desk)
    await answer(cell, seat, "no usage")
    await completions(desk)
    unwanted = Desk(cell, load(policy="hexgen", keep_traces=0))
    await complete(cell, unwanted, "w", await submit(unwanted, "w"))
    assert (await cell.records.counts())["completed"] == 2
    assert await cell.traces.window(10) == []


async def test_the_window_is_bounded_and_a_record_that_cannot_be_read_is_left_out(cell: Cell) -> None:
    desk = Desk(cell, load(policy="hexgen", keep_traces=100))
    await complete(cell, desk, "w", await submit(desk, "w"))
    for _ in range(350):
        await cell.client.xadd(cell.keys.traces, {"record": b"no record"})
    await complete(cell, desk, "w2", await submit(desk, "w2"))
    assert await cell.client.xlen(cell.keys.traces) <= 200
    assert len(await cell.traces.window(1000)) == 1


async def test_decisions_take_effect_once_and_are_kept(cell: Cell) -> None:
    tuning = cell.tuning
    assert await tuning.parameters() == NONE
    assert await tuning.decide(0, {"action": "kept"}, {"hold": 1}) == 0
    assert (await tuning.parameters()).memory == {"hold": 1}
    assert await tuning.decide(0, {"action": "changed"}, None, "hexgen", {"alpha": 0.7}) == 1
    assert await tuning.decide(0, {"action": "late"}, None, "hexgen", {"alpha": 0.1}) == -1
    now = await cell.records.now_ms()
    found = await tuning.parameters()
    assert found == Parameters(1, "hexgen", {"alpha": 0.7}, found.since, None)
    assert now - 10_000 < found.since <= now
    history = await tuning.history(10)
    assert [told["action"] for _, told in history] == ["kept", "changed"]
    assert await tuning.follow(history[0][0], 0.01) == history[1:]
    await tuning.forget()
    assert await tuning.parameters() == NONE


async def test_a_coordinator_takes_what_is_for_its_policy_and_goes_back_to_its_own(cell: Cell) -> None:
    desk = Desk(cell, load(policy="hexgen", alpha=0.5))
    roster, own = Roster(desk), desk.policy

    async def took() -> Rules:
        await roster.look()
        return desk.policy

    assert await took() == own
    await cell.tuning.decide(0, {}, None, "flow", {"harm": 3.0})
    assert await took() == own
    await cell.tuning.decide(1, {}, None, "hexgen", {"alpha": 0.9})
    assert await took() == policy("hexgen", {"alpha": 0.9})
    assert desk.values == {"alpha": 0.9}
    await cell.tuning.decide(2, {}, None, "hexgen", {"alpha": 7.0})
    assert await took() == policy("hexgen", {"alpha": 0.9})
    await cell.tuning.forget()
    assert await took() == own


@pytest.mark.parametrize("field", ["values", "version", "memory"])
async def test_parameters_that_cannot_be_read_count_as_none(cell: Cell, field: str) -> None:
    await cell.tuning.decide(0, {}, None, "hexgen", {"alpha": 0.7})
    await cell.client.hset(cell.keys.parameters, field, "[garbage")
    assert await cell.tuning.parameters() == NONE
