"""What was read and never settled: taken over one by one, given up when it has killed its readers, others going on."""

import logging
from collections.abc import Sequence
from typing import Any

import pytest

from common.errors import StoreUnavailable
from common.model import InstanceProfile
from common.settings import load
from common.store.cell import Cell
from common.store.inbox import Entry, Look
from common.store.keys import GROUP
from coordinator.desk import Desk
from coordinator.loops import intake as taking
from coordinator.loops.completions import completions
from coordinator.loops.intake import intake
from coordinator.loops.recoverer import recoverer
from coordinator.loops.takeover import DEATHS, _each, take_over

PROFILE = InstanceProfile("test", 1000.0, 0.03, 0.005, 1e-7, 1000)
ONE = {"name": "one", "stages": {"s": {"prompt": "say it"}}}
FAULT = "internal error: 3 coordinators died while they worked on it"


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)


@pytest.fixture
def desk(cell: Cell) -> Desk:
    return Desk(cell, load(policy="hexgen"))


async def submit(cell: Cell, *names: str) -> list[str]:
    return [await cell.records.submit({"workflow": ONE, "id": name, "tenant": "acme"}) for name in names]


async def leave(cell: Cell, stream: str, **reads: int) -> None:
    """All of this stream was read long ago; `reads` has how many times, by workflow, where that is not once."""
    for entry, fields in await cell.inbox.read(stream, "gone", 10):
        name = fields.get(b"workflow", b"").decode()
        count = reads.get(name, reads.get(entry, 1))
        await cell.client.xclaim(stream, GROUP, "gone", 0, [entry], idle=3_600_000, retrycount=count, justid=True)


async def counted(cell: Cell, stream: str) -> list[int]:
    """How many times each entry that is not settled was read."""
    return [stale.reads for stale in await cell.inbox.stale(stream, 0)]


async def test_what_a_dead_coordinator_has_left_is_done_by_another(cell: Cell, desk: Desk) -> None:
    await submit(cell, "w1", "w2")
    await leave(cell, cell.keys.submissions)
    await take_over(desk)
    assert await cell.records.live(10) == ["w1", "w2"]
    await cell.instances.register("a", PROFILE, ["default"], [], [])
    await leave(cell, cell.keys.completions, w1=DEATHS - 1)
    await take_over(desk)
    assert await cell.client.zcard(cell.keys.queue("a")) == 2
    for stream in (cell.keys.submissions, cell.keys.completions):
        assert await cell.client.xlen(stream) == 0
    assert await cell.dead.all() == []


async def test_one_that_cannot_be_taken_over_does_not_hold_up_those_behind_it(cell: Cell, desk: Desk) -> None:
    bad, good = await submit(cell, "bad", "good")
    await leave(cell, cell.keys.submissions)
    tried: list[str] = []

    async def work(desk: Desk, entry: Entry) -> None:
        tried.append(entry[0])
        if entry[0] == bad:
            raise TypeError("nobody has thought of this")

    await _each(desk, cell.keys.submissions, work, taking.give_up, False)
    assert tried == [bad, good]


async def test_a_submission_that_has_killed_its_readers_is_refused_alone(cell: Cell, desk: Desk) -> None:
    bad, _ = await submit(cell, "bad", "good")
    await leave(cell, cell.keys.submissions, **{bad: DEATHS})
    await take_over(desk)
    assert await cell.records.live(10) == ["good"]
    assert await cell.records.first(bad) == ("rejected", {"workflow": bad, "field": "", "error": FAULT})
    (letter,) = await cell.dead.all()
    assert (letter.workflow, letter.request, letter.reason, letter.owners) == (bad, "", FAULT, ("gone",))
    assert await counted(cell, cell.keys.submissions) == []


async def test_whoever_gives_up_a_workflow_reads_little_of_its_mail(
    cell: Cell, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be what was too much for the others."""
    await submit(cell, "bad")
    await intake(desk)
    await cell.client.rpush(cell.keys.mailbox("bad"), *(f"evacuated r{n} s" for n in range(9)))
    begin, mails = cell.inbox.begin, []

    async def begin_and_look(wanted: Sequence[tuple[str, int]], messages: int) -> list[Look]:
        looks = await begin(wanted, messages)
        mails.append([len(look.mail) for look in looks])
        return looks

    monkeypatch.setattr(cell.inbox, "begin", begin_and_look)
    await leave(cell, cell.keys.completions, bad=DEATHS)
    await take_over(desk)
    assert mails == [[1]]
    assert await cell.records.live(10) == []


async def test_a_workflow_that_has_killed_its_readers_fails_alone(cell: Cell, desk: Desk) -> None:
    await submit(cell, "bad", "good")
    await cell.instances.register("a", PROFILE, ["default"], [], [])
    await intake(desk)
    await completions(desk)
    for name in ("bad", "good"):
        await cell.client.xadd(cell.keys.completions, {"workflow": name})
    await leave(cell, cell.keys.completions, bad=DEATHS)
    await take_over(desk)
    result: Any = await cell.records.result("bad")
    assert (result["status"], result["stage"], result["error"]) == ("failed", "", FAULT)
    (letter,) = await cell.dead.all()
    assert (letter.workflow, letter.name, letter.tenant, letter.stage) == ("bad", "one", "acme", "")
    assert (letter.reason, letter.owners) == (FAULT, ("gone",))
    assert await cell.records.live(10) == ["good"]
    assert await cell.client.zcard(cell.keys.queue("a")) == 1
    assert await counted(cell, cell.keys.completions) == []


async def test_a_reader_that_is_alive_is_left_to_it(cell: Cell, desk: Desk) -> None:
    await submit(cell, "slow")
    await intake(desk)
    await leave(cell, cell.keys.completions, slow=DEATHS)
    await cell.coordinators.announce("gone", "hexgen", 60_000)
    await take_over(desk)
    assert await counted(cell, cell.keys.completions) == [DEATHS]
    assert await cell.records.live(10) == ["slow"]
    await cell.coordinators.withdraw("gone", "hexgen")
    await take_over(desk)
    assert await cell.records.live(10) == []


async def test_while_all_have_to_come_back_none_is_given_up(cell: Cell, desk: Desk) -> None:
    """The store was away: readers have not announced themselves again."""
    bad, _ = await submit(cell, "bad", "good")
    await leave(cell, cell.keys.submissions, **{bad: DEATHS})
    await cell.queues.reap(0, 3)
    await cell.client.hset(cell.keys.server, "run_id", "that which is gone")
    await recoverer(desk)
    assert await cell.records.live(10) == ["good"]
    assert await counted(cell, cell.keys.submissions) == [DEATHS]
    await cell.client.hset(cell.keys.server, "since", 0)
    await recoverer(desk)
    assert await counted(cell, cell.keys.submissions) == []
    assert await cell.records.first(bad) == ("rejected", {"workflow": bad, "field": "", "error": FAULT})


async def test_what_one_has_read_before_and_survived_is_not_given_up(cell: Cell, desk: Desk) -> None:
    """However often the store went away under it."""
    await submit(cell, "w1")
    for entry, _ in await cell.inbox.read(cell.keys.submissions, "gone", 10):
        await cell.client.xclaim(
            cell.keys.submissions, GROUP, desk.name, 0, [entry], idle=3_600_000, retrycount=DEATHS, justid=True
        )
    await cell.coordinators.announce(desk.name, "hexgen", 60_000)
    await take_over(desk)
    assert await cell.records.live(10) == ["w1"]


async def test_only_what_is_worked_on_counts(cell: Cell, desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """So a coordinator that dies on one entry gives no other one away that it has read."""
    await submit(cell, "w1", "w2", "w3")
    await leave(cell, cell.keys.submissions)
    take, seen = taking.take, []

    async def look_and_take(desk: Desk, entry: Entry) -> None:
        seen.append(await counted(cell, cell.keys.submissions))
        await take(desk, entry)

    monkeypatch.setattr(taking, "take", look_and_take)
    await take_over(desk)
    assert seen == [[2, 1, 1], [2, 1], [2]]


async def test_trouble_of_the_store_is_no_death(cell: Cell, desk: Desk) -> None:
    await submit(cell, "w")
    await intake(desk)
    await leave(cell, cell.keys.completions)
    await cell.client.config_set("maxmemory", 1)
    try:
        with pytest.raises(StoreUnavailable):
            await take_over(desk)
    finally:
        await cell.client.config_set("maxmemory", 0)
    (stale,) = await cell.inbox.stale(cell.keys.completions, desk.settings.lease_ms // 3)  # tried again at once
    assert (stale.reader, stale.reads) == ("gone", 1)


async def test_what_a_slow_coordinator_takes_over_from_itself_is_no_death(cell: Cell, desk: Desk) -> None:
    await submit(cell, "w")
    await cell.inbox.read(cell.keys.submissions, desk.name, 10)
    for _ in range(DEATHS):
        (stale,) = await cell.inbox.stale(cell.keys.submissions, 0)
        assert await cell.inbox.take_over(cell.keys.submissions, desk.name, 0, stale) is not None
    assert await counted(cell, cell.keys.submissions) == [1]


async def test_what_another_has_settled_or_taken_meanwhile_is_left_alone(cell: Cell, desk: Desk) -> None:
    await submit(cell, "w")
    stream = cell.keys.submissions
    await leave(cell, stream)
    (stale,) = await cell.inbox.stale(stream, 60_000)
    assert await cell.inbox.take_over(stream, "first", 60_000, stale) is not None
    assert await cell.inbox.take_over(stream, "second", 60_000, stale) is None
    await taking.take(desk, (stale.entry, {b"json": b"{}"}))
    await cell.inbox.forgive(stream, stale, 0)
    assert await cell.inbox.take_over(stream, "second", 0, stale) is None
    assert await counted(cell, stream) == []
