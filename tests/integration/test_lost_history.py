"""A failover has lost the last steps: coordinators that remember them go on from what the new master knows."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from operations_bench import LEASE_MS, PROFILE, ROOM, dispatched, join, mail, push

from common.errors import AttemptFailed, Superseded, Unregistered
from common.events import Completed, Outcome
from common.settings import load
from common.store.cell import Cell
from common.store.inbox import Answer, Commit
from common.store.queues import Seat
from common.store.scripts import call_id
from common.wire import pack_node
from coordinator.desk import Desk
from coordinator.loops.completions import completions
from coordinator.loops.intake import intake

TWO = {
    "name": "two",
    "stages": {"a": {"prompt": "say a"}, "b": {"needs": ["a"], "prompt": "say {{ a.output }}"}},
    "output": "b.output",
}
BOTH = TWO | {"output": "a.output ~ ' / ' ~ b.output"}
THREE = {
    "name": "three",
    "stages": TWO["stages"] | {"c": {"needs": ["b"], "prompt": "say {{ b.output }}"}},
    "output": "a.output ~ b.output ~ c.output",
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


async def test_an_output_that_was_lost_is_not_remembered_as_the_one_given_instead(cell: Cell) -> None:
    seat = Seat("a", await cell.instances.register("a", PROFILE, ["default"], [], []), "a/1")
    first, second = (Desk(cell, load(policy="hexgen")) for _ in range(2))
    workflow = await cell.records.submit({"workflow": BOTH})
    await intake(first)
    await completions(first)
    past = await replicated(cell)
    await answer(cell, seat, "LOST")
    await completions(first)
    await fail_over(cell, past)
    await answer(cell, seat, "KEPT")
    await completions(second)
    await answer(cell, seat, "b of KEPT")
    await completions(first)
    result = await cell.records.result(workflow)
    assert result is not None
    assert result["output"] == "KEPT / b of KEPT"


@pytest.mark.parametrize("taken_by", ["this version", "an older one"])
async def test_an_output_is_fetched_once_where_it_is_known_who_took_it(
    cell: Cell, taken_by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seat = Seat("a", await cell.instances.register("a", PROFILE, ["default"], [], []), "a/1")
    first, second = (Desk(cell, load(policy="hexgen")) for _ in range(2))
    workflow = await cell.records.submit({"workflow": THREE})
    await intake(first)
    await completions(first)
    await answer(cell, seat, "a")
    await completions(first)
    if taken_by == "an older one":
        await forget_when(cell, workflow, first)
    await answer(cell, seat, "b")
    await completions(second)
    await answer(cell, seat, "c")
    fetched: list[str] = []
    outputs = cell.inbox.outputs

    async def fetch(name: str, nodes: Sequence[str]) -> dict[str, Outcome]:
        fetched.extend(nodes)
        return await outputs(name, nodes)

    monkeypatch.setattr(cell.inbox, "outputs", fetch)
    await completions(first)
    assert sorted(fetched) == (["b"] if taken_by == "this version" else ["a", "b"])
    result = await cell.records.result(workflow)
    assert result is not None
    assert result["output"] == "abc"


@pytest.mark.parametrize("instead", ["nothing", "other mail"])
async def test_a_step_that_answers_mail_that_was_lost_has_no_effect(
    cell: Cell, instead: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seat = Seat("a", await cell.instances.register("a", PROFILE, ["default"], [], []), "a/1")
    desk = Desk(cell, load(policy="hexgen"))
    workflow = await cell.records.submit({"workflow": BOTH})
    await intake(desk)
    await completions(desk)
    past, commit = await replicated(cell), cell.inbox.commit
    await answer(cell, seat, "LOST")

    async def commit_elsewhere(commits: Sequence[Commit]) -> list[Answer]:
        monkeypatch.undo()
        await fail_over(cell, past)
        if instead == "other mail":
            await answer(cell, seat, "KEPT")
        return await commit(commits)

    monkeypatch.setattr(cell.inbox, "commit", commit_elsewhere)
    await completions(desk)
    if instead == "nothing":
        await answer(cell, seat, "KEPT")
        await completions(desk)
    await answer(cell, seat, "b of KEPT")
    await completions(desk)
    result = await cell.records.result(workflow)
    assert result is not None
    assert result["output"] == "KEPT / b of KEPT"


async def test_a_claim_that_was_lost_has_not_the_token_of_the_one_made_instead(cell: Cell) -> None:
    seat = await dispatched(cell, push("r1", "s"))
    past = await replicated(cell)
    (lost,) = await cell.queues.claim(seat, "c1", LEASE_MS, ROOM)
    await fail_over(cell, past)
    while await cell.records.now_ms() <= lost.token:
        pass
    (held,) = await cell.queues.claim(seat, "c2", LEASE_MS, ROOM)
    assert await cell.queues.renew(seat, LEASE_MS, [("r1", lost.token)]) == ("ready", ["r1"])
    for late in (Outcome("LOST"), AttemptFailed("LOST")):
        assert await cell.queues.finish([("r1", lost.token, late)]) == [False]
    assert await cell.queues.finish([("r1", held.token, Outcome("KEPT"))]) == [True]
    assert await mail(cell) == [Completed("r1", "s", Outcome("KEPT"))]


async def test_an_incarnation_that_was_lost_is_not_taken_for_the_one_that_joined_instead(cell: Cell) -> None:
    await join(cell)
    past = await replicated(cell)
    lost = await join(cell)
    await fail_over(cell, past)
    with pytest.raises(Unregistered):  # so it registers again
        await cell.queues.claim(lost, "c1", LEASE_MS, ROOM)
    while await cell.records.now_ms() <= (lost.epoch or 0):
        pass
    await join(cell)
    with pytest.raises(Superseded):
        await cell.queues.renew(lost, LEASE_MS, [])


async def forget_when(cell: Cell, workflow: str, desk: Desk) -> None:
    """Stage `a`, in store and memory, as a version has written it that does not tell when it completed."""
    known = desk.at_hand(workflow)
    assert known is not None
    known.nodes["a"] = replace(known.nodes["a"], completed_at=0)
    await cell.client.hset(cell.keys.workflow(workflow), "n:a", pack_node(known.nodes["a"]))
