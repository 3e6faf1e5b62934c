"""What a coordinator's log tells on-call people: one line for each thing that went wrong, with its ids."""

import logging

import pytest
from operations_bench import LEASE_MS, ROOM, commit, dispatched, join, push

from common.errors import AttemptFailed
from common.events import Outcome
from common.settings import load
from common.store.cell import Cell
from common.store.client import connect_sync
from common.store.offers import Offer
from common.store.queues import Room
from coordinator.desk import Desk
from coordinator.loops.completions import completions
from coordinator.loops.intake import intake
from coordinator.loops.recoverer import recoverer
from coordinator.loops.roster import Roster

ONE = {"name": "one", "stages": {"a": {"prompt": "say it", "retries": 0}}}


class Log:
    """New lines of the log, as (level, message)."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self._caplog = caplog

    def new(self, *loggers: str) -> list[tuple[str, str]]:
        found = [(one.levelname, one.getMessage()) for one in self._caplog.records if one.name in loggers]
        self._caplog.clear()
        return found


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> Log:
    caplog.set_level(logging.DEBUG, "hexgen")
    return Log(caplog)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    async def at_once(seconds: float) -> None: ...

    monkeypatch.setattr("common.clock.sleep", at_once)


async def test_a_workflow_that_failed_has_one_line_and_others_have_none_above_debug(cell: Cell, log: Log) -> None:
    desk = Desk(cell, load(policy="hexgen"))
    seat = await join(cell)
    for name in ("good", "bad"):
        await cell.records.submit({"workflow": ONE, "id": name, "tenant": "acme"})
    await intake(desk)
    await completions(desk)
    (good, bad) = await cell.queues.claim(seat, "c1", LEASE_MS, Room(2, 1000, 1000))
    if good.workflow != "good":
        good, bad = bad, good
    error = AttemptFailed("the engine said:\nno " + "really " * 100)
    await cell.queues.finish([(good.request, good.token, Outcome("it", "a")), (bad.request, bad.token, error)])
    await completions(desk)
    told = log.new("hexgen.coordinator", "hexgen.intake", "hexgen.completions")
    (level, line), *more = [(level, line) for level, line in told if level != "DEBUG"]
    assert not more
    assert level == "WARNING"
    assert line.startswith("workflow bad failed: one of acme, stage a: the engine said:")
    assert len(line) < 400
    assert [line.partition(":")[0] for level, line in told if level == "DEBUG"] == [
        "workflow good accepted", "workflow bad accepted", "workflow good completed"
    ]  # fmt: skip


async def test_a_lease_that_ran_out_and_a_dead_letter_are_told_with_their_ids(
    cell: Cell, log: Log, quick: None
) -> None:
    desk = Desk(cell, load(policy="hexgen", lease_losses=2))
    seat = await dispatched(cell, push("r1", "s"))
    await cell.queues.reap(0, 2)
    await cell.client.hset(cell.keys.server, "since", 0)
    for turn in range(2):
        await cell.queues.claim(seat, f"c{turn}", 0, ROOM)
        await recoverer(desk)
        if not turn:
            await commit(cell, 1, 1, pushes=[push("r1", "s")])
    lines = log.new("hexgen.coordinator")
    assert (
        "WARNING",
        "request r1 of workflow w1, stage s: the lease of a/p1 ran out, loss 1 of 2; it is routed anew",
    ) in lines
    assert (
        "WARNING",
        "request r1 of workflow w1, stage s: the lease of a/p1 ran out, loss 2 of 2; it is a dead letter",
    ) in lines


async def test_what_becomes_of_an_instance_is_told_once_per_change(cell: Cell, log: Log) -> None:
    watching = Roster(Desk(cell, load(policy="hexgen")))

    async def told() -> list[tuple[str, str]]:
        await watching.look()
        first = log.new("hexgen.coordinator")
        await watching.look()
        assert log.new("hexgen.coordinator") == []
        return first

    assert await told() == [("INFO", "there are: no instances")]
    seat = await join(cell)
    assert await told() == [("INFO", "instance a has joined; it is ready")]
    await cell.instances.evacuate("a", "lost")  # with an empty queue
    assert await told() == [
        ("WARNING", "instance a is lost: nothing was heard of it for a lease, so what it has queued is routed anew")
    ]
    await cell.queues.renew(seat, LEASE_MS, [])
    assert await told() == [("INFO", "instance a is back")]
    await cell.instances.evacuate("a", "stalled", seat.epoch)
    assert await told() == [
        ("WARNING", "instance a is stalled: its engine makes no progress, so what it had is routed anew")
    ]
    await cell.instances.evacuate("a", "ready", seat.epoch)
    assert await told() == [("INFO", "instance a is back")]
    for status, level in (("stalled", "WARNING"), ("draining", "INFO")):
        await cell.instances.evacuate("a", status, seat.epoch)
        ((first, _),) = await told()
        assert first == level
        for _ in range(2):  # its process has died
            await cell.instances.evacuate("a", "lost")
        assert [shown["status"] for shown in await cell.instances.describe()] == ["lost"]
        ((_, told_of),) = await told()
        assert told_of.startswith("instance a is lost: nothing was heard of it for a lease")
        await cell.queues.renew(seat, LEASE_MS, [])
        ((again, told_of),) = await told()
        assert (again, told_of.startswith(f"instance a is {status}")) == (level, True)
    seat = await join(cell)
    assert await told() == [("INFO", "instance a has been started again; it is ready")]
    await cell.instances.evacuate("a", "draining", seat.epoch)
    assert await told() == [("INFO", "instance a is draining")]
    await cell.instances.remove("a", seat.epoch)
    assert await told() == [("INFO", "instance a has left: it is not registered any more")]


async def test_a_tool_worker_that_is_silent_is_not_said_to_have_left(cell: Cell, log: Log) -> None:
    watching = Roster(Desk(cell, load(policy="hexgen")))
    with connect_sync(cell.url) as connection:
        killed, leaving = (Offer(connection, cell.keys, *offer) for offer in (("a", ["t"], 0), ("b", ["t"], 60_000)))
        for offer in (killed, leaving):
            offer.renew()
        await watching.look()
        log.new()
        leaving.withdraw()
        await cell.offers.forget_silent()
    silent = "is silent: nothing was heard of it for a lease, so what it ran is taken back when its leases run out"
    left = "has left: it is not registered any more"
    for expected in ([("WARNING", f"tool worker a {silent}"), ("INFO", f"tool worker b {left}")], []):
        await watching.look()
        assert log.new("hexgen.coordinator") == expected


async def test_coordinators_of_different_policies_warn_of_each_other_once(cell: Cell, log: Log) -> None:
    one, other = Desk(cell, load(policy="flow")), Desk(cell, load(policy="hexgen"))
    here, there = Roster(one), Roster(other)
    await here.meet()
    assert log.new("hexgen.coordinator") == []
    differ = "policies differ: this coordinator, {}, has {}, but {} has {}; give all of a cell the same"
    for _ in range(2):
        await there.meet()
        await here.meet()
    assert log.new("hexgen.coordinator") == [
        ("WARNING", differ.format(other.name, "hexgen", one.name, "flow")),
        ("WARNING", differ.format(one.name, "flow", other.name, "hexgen")),
    ]
    assert (one.others, other.others) == ({other.name: "hexgen"}, {one.name: "flow"})
    await cell.coordinators.withdraw(one.name, "flow")
    for _ in range(2):
        await there.meet()
    assert log.new("hexgen.coordinator") == [("INFO", "policies differ no more: all coordinators have hexgen")]
    assert other.others == {}


async def test_a_coordinator_that_is_silent_does_not_count(cell: Cell) -> None:
    await cell.coordinators.announce("dead", "flow", 0)
    assert await cell.coordinators.announce("alive", "hexgen", 60_000) == {"alive": "hexgen"}
    assert await cell.coordinators.all() == {"alive": "hexgen"}


async def test_a_coordinator_that_starts_tells_who_is_there_in_one_line(cell: Cell, log: Log) -> None:
    for number in range(14):
        await join(cell, f"i{number:02d}")
    await cell.instances.evacuate("i00", "lost")
    await Roster(Desk(cell, load(policy="hexgen"))).look()
    ((_, line),) = log.new("hexgen.coordinator")
    assert line.startswith("there are: instance i00 (lost), instance i01 (ready), ")
    assert line.endswith(" and 4 more")
