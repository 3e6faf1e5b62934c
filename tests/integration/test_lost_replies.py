"""Operations whose reply is lost are sent again: the second time they do nothing."""

from collections.abc import Sequence
from typing import Any

import pytest
from operations_bench import LEASE_MS, ROOM, accept, commit, dispatched, mail, push, queued, submitted

from common.errors import AttemptFailed
from common.events import Completed, Failed, Outcome
from common.store.cell import Cell
from common.store.inbox import End
from common.store.queues import Room
from common.store.records import pages
from common.store.scripts import Call, Scripts


@pytest.fixture
def lossy(cell: Cell, monkeypatch: pytest.MonkeyPatch) -> Cell:
    """The store over a line on which the first reply to everything is lost."""
    send = Scripts._send

    async def sent_twice(scripts: Scripts, calls: Sequence[Call]) -> list[Any]:
        await send(scripts, calls)
        return await send(scripts, calls)

    monkeypatch.setattr(Scripts, "_send", sent_twice)
    return cell


async def test_a_step_takes_effect_once_and_its_coordinator_is_told_so(lossy: Cell) -> None:
    await accept(lossy)
    pushes = [push("r1", "s", "tools")]
    assert await commit(lossy, 0, 1, pushes=pushes, events=[("stage_started", {})]) == 1
    assert await queued(lossy, "tools") == ["r1"]
    assert await lossy.client.xlen(lossy.keys.events("w1")) == 2
    assert await commit(lossy, 0, 0, pushes=pushes) == 0  # another's step, from the version before
    assert await commit(lossy, 1, 0, drops=["r1"], end=End("completed", {"output": "done"}, 5_000)) == 1
    assert (await lossy.records.counts())["completed"] == 1


async def test_a_submission_is_answered_once(lossy: Cell) -> None:
    taken, refused = await submitted(lossy), await submitted(lossy)
    answers = [lossy.keys.events(entry) for entry in (taken, refused)]
    for is_there in (True, False):  # then its submitter's time to look is over: nothing is told anew
        assert await accept(lossy, entry=taken) == "same"
        await lossy.inbox.refuse(refused, "json", {"error": "a bug"}, 60_000, "a bug")
        assert [await lossy.client.xlen(events) for events in answers] == [is_there, is_there]
        await lossy.client.delete(*answers)
    assert await lossy.client.xlen(lossy.keys.events("w1")) == len(await mail(lossy)) == 1
    assert (await lossy.records.counts())["rejected"] == len(await lossy.dead.all()) == 1


@pytest.mark.parametrize("outcome", [Outcome("x", "a"), AttemptFailed("no luck")])
async def test_what_ended_counts_once_and_leaves_no_more_behind(lossy: Cell, outcome: Outcome | AttemptFailed) -> None:
    seat = await dispatched(lossy, push("r1", "s"), push("r2", "t"))
    (claim,) = await lossy.queues.claim(seat, "c1", LEASE_MS, Room(1, 10_000, 10_000))
    assert await lossy.queues.finish([("r1", claim.token, outcome), ("r2", claim.token, outcome)]) == [False, False]
    expected = Completed("r1", "s", outcome) if isinstance(outcome, Outcome) else Failed("r1", "s", "no luck", True)
    assert await mail(lossy) == [expected]
    assert await lossy.instances.served() == ({"a": 1} if isinstance(outcome, Outcome) else {})
    assert await lossy.client.keys(f"{lossy.keys.prefix}answer:*") == []


async def test_what_a_holder_hands_in_that_was_overtaken_has_no_effect(lossy: Cell) -> None:
    seat = await dispatched(lossy, push("r1", "s"))
    (claim,) = await lossy.queues.claim(seat, "c1", LEASE_MS, ROOM)
    await lossy.queues.finish([("r1", claim.token, Outcome("x"))])
    late = [("r1", claim.token + 1, Outcome("y")), ("r1", claim.token, AttemptFailed("died"))]
    assert await lossy.queues.finish(late) == [False, False]
    assert await lossy.inbox.outputs("w1", ["s"]) == {"s": Outcome("x")}


async def test_figures_are_learned_once(lossy: Cell) -> None:
    for count in (1.0, 2.0):
        (page,) = pages({"tool/w/s/": (1.0, 3.0)})
        await lossy.records.learn(page, 1_000_000_000, 100)
        assert (await lossy.records.learned())["tool/w/s/"] == pytest.approx((count, 3 * count))


async def test_a_decision_of_the_tuner_is_its_own(lossy: Cell) -> None:
    tuning = lossy.tuning
    assert await tuning.decide(0, {"action": "kept"}, None) == 0
    assert await tuning.decide(0, {"action": "changed"}, None, "hexgen", {"alpha": 0.7}) == 1
    assert await tuning.decide(0, {"action": "late"}, None, "hexgen", {"alpha": 0.1}) == -1
    assert [told["action"] for _, told in await tuning.history(10)] == ["kept", "changed"]
    assert (await tuning.parameters()).values == {"alpha": 0.7}


async def test_tickets_are_given_to_whoever_asks_again(lossy: Cell) -> None:
    await dispatched(lossy, *(push(f"r{i}", f"s{i}", "tools") for i in range(3)))
    assert len(await lossy.queues.to_relay(0, 60_000)) == 3
    assert await lossy.queues.to_relay(3, 60_000) == []
