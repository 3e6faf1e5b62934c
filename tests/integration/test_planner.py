"""The planner's loop on a real server: from the line to a worker's claim, with planners that die or disagree."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from operations_bench import LEASE_MS

from common import clock
from common.errors import AttemptFailed
from common.events import Outcome
from common.model import LINE, InstanceProfile
from common.policy.line import AHEAD
from common.settings import load
from common.store.cell import Cell
from common.store.embedded import EmbeddedServer
from common.store.line import MOST_SEEN
from common.store.queues import Room, Seat
from common.store.scripts import call_id
from common.tasks import end
from coordinator.desk import Desk
from coordinator.loops.completions import completions
from coordinator.loops.intake import BATCH, intake
from coordinator.loops.planner import UNSERVED_S, Planner
from coordinator.loops.roster import Roster

PROFILE = InstanceProfile("test", 10_000.0, 0.03, 0.005, 1e-7, 100_000)
ROOM = Room(8, 512, 50_000)


class Bench:
    """A coordinator of a policy, of which each loop is driven by hand or runs on."""

    def __init__(self, cell: Cell, policy: str = "flow") -> None:
        self.cell = cell
        self.desk = Desk(cell, load(policy=policy, lease_s=2))
        self.planner = Planner(self.desk)

    async def join(
        self, instance: str = "a", model: str = "m", profile: InstanceProfile = PROFILE, labels: Sequence[str] = ()
    ) -> Seat:
        epoch = await self.cell.instances.register(instance, profile, [model], labels, [])
        self.desk.refresh()
        return Seat(instance, epoch, f"{instance}/1")

    async def submit(self, *names: str, slo_s: float = 60, **stage: Any) -> None:
        for name in names:
            stages = {"s": {"prompt": "say it", **stage}}
            document = {"name": "one", "stages": stages, "output": "s.output"}
            await self.cell.records.submit({"workflow": document, "id": name, "slo_s": slo_s})
        for _ in range(0, len(names), BATCH):
            await intake(self.desk)
            await completions(self.desk)

    async def waiting(self, queue: str) -> int:
        if queue == LINE:
            return (await self.cell.records.counts())["in_line"]
        return int(await self.cell.client.zcard(self.cell.keys.queue(queue)))

    async def claim(self, seat: Seat) -> list[Any]:
        return await self.cell.queues.claim(seat, call_id(), LEASE_MS, ROOM)

    async def finish(self, *claims: Any) -> None:
        ended = [(claim.request, claim.token, Outcome("x", "a")) for claim in claims]
        assert all(await self.cell.queues.finish(ended))
        await completions(self.desk)


@asynccontextmanager
async def running(turn: Callable[[], Awaitable[None]]) -> AsyncIterator[None]:
    async def keep() -> None:
        while True:
            await turn()

    task = asyncio.create_task(keep())
    try:
        yield
    finally:
        await end(task)


@pytest.mark.parametrize("policy", ["flow", "ray"])
async def test_an_idle_worker_soon_has_what_was_pushed(
    cell: Cell, policy: str, record_property: Callable[[str, object], None]
) -> None:
    bench = Bench(cell, policy)
    seat = await bench.join()
    took = []
    async with running(bench.planner):
        for number in range(20):
            woken = asyncio.create_task(cell.queues.wait("a"))
            await bench.submit(f"w{number}")
            pushed = clock.monotonic_s()
            await woken
            (claim,) = await bench.claim(seat)
            took.append(clock.monotonic_s() - pushed)
            await bench.finish(claim)
            assert (await cell.records.status(f"w{number}")) == "completed"
    record_property("median ms from the push to the claim", sorted(took)[10] * 1000)
    assert set((await cell.instances.backlogs()).values()) == {0}


async def test_one_whose_record_is_damaged_while_it_waits_does_not_wait_for_ever(
    cell: Cell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coordinator.loops.planner.UNSERVED_S", 0.0)
    bench = Bench(cell)
    seat = await bench.join()
    await bench.submit("w1", "w2", prompt="word " * 1000)
    await bench.planner()
    (claim,) = await bench.claim(seat)
    ((waiting, _),) = (await cell.line.asked((await cell.line.survey(8)).line)).items()
    await cell.client.hset(cell.keys.request(waiting), "enqueued_at", "many")
    await bench.finish(claim)
    async with asyncio.timeout(20):
        while not await bench.waiting("a"):
            await bench.planner.plan()
            while await cell.client.xlen(cell.keys.completions):
                await completions(bench.desk)
    await bench.finish(*await bench.claim(seat))
    assert await cell.records.live(10) == []


async def test_what_has_no_room_waits_in_the_line_until_there_is(cell: Cell) -> None:
    bench = Bench(cell)
    seat = await bench.join()
    await bench.submit("w1", "w2", prompt="word " * 1000)
    await bench.planner()
    assert (await bench.waiting("a"), await bench.waiting(LINE)) == (1, 1)
    (claim,) = await bench.claim(seat)
    assert await bench.planner.plan() is False
    await bench.finish(claim)
    await bench.planner()  # the end of the first has called it
    assert (await bench.waiting("a"), await bench.waiting(LINE)) == (1, 0)


async def test_two_planners_place_each_request_once(cell: Cell, server: EmbeddedServer) -> None:
    async with Cell.opened(server.url, cell.keys.namespace) as second:
        one, other = Bench(cell), Bench(second)
        seats = [await one.join(name) for name in ("a", "b", "c")]
        names = [f"w{number}" for number in range(40)]
        await one.submit(*names)
        got: list[str] = []
        async with running(one.planner), running(other.planner):
            while len(got) < len(names):
                for seat in seats:
                    claims = await one.claim(seat)
                    got += [claim.workflow for claim in claims]
                    await one.finish(*claims) if claims else await asyncio.sleep(0)
        assert sorted(got) == sorted(names)
        assert await one.waiting(LINE) == 0
        assert set((await cell.instances.backlogs()).values()) == {0}


async def test_a_planner_that_dies_after_its_wake_is_replaced(cell: Cell) -> None:
    bench = Bench(cell)
    await bench.join()
    await bench.submit("w1")
    assert await cell.line.wait()  # another planner, which is killed now
    await bench.planner()
    assert await bench.waiting("a") == 1


async def test_a_request_that_nobody_can_take_any_more_is_told_to_wait(cell: Cell) -> None:
    bench = Bench(cell)
    await bench.join("a", "special")
    await bench.submit("w1", model="special")
    await cell.instances.evacuate("a", "draining")
    await cell.instances.remove("a")
    bench.desk.refresh()
    assert await bench.waiting(LINE) == 1
    started = clock.monotonic_s()
    while await bench.waiting(LINE):
        await bench.planner()
    assert clock.monotonic_s() - started >= UNSERVED_S
    await completions(bench.desk)
    told = await cell.records.look({"w1": "0"}, 0.1)
    assert [kind for _, _, kind, _ in told] == ["accepted", "stage_started", "waiting"]
    await bench.join("b", "special")
    await cell.client.zadd(cell.keys.delayed, {"w1 s": 0})
    await cell.queues.promote()
    await completions(bench.desk)
    await bench.planner()
    assert await bench.waiting("b") == 1


async def test_all_that_ask_for_what_nobody_has_are_told_however_many(cell: Cell) -> None:
    bench = Bench(cell)
    await bench.join("a", "special")
    await bench.submit(*(f"w{number}" for number in range(3 * AHEAD)), model="special")
    await cell.instances.evacuate("a", "draining")
    await bench.planner.plan()
    await clock.sleep(UNSERVED_S)
    await bench.planner()
    assert await bench.waiting(LINE) == 0


async def test_what_comes_back_to_the_line_asking_for_less_is_looked_at_anew(cell: Cell) -> None:
    bench = Bench(cell)
    await bench.join()
    await bench.submit("w1")
    (request,) = (await cell.line.survey(AHEAD)).line
    tokens = await cell.client.hget(cell.keys.request(request), "prompt_tokens")
    await cell.client.hset(cell.keys.request(request), "prompt_tokens", 1_000_000)
    await bench.planner.plan()
    assert await bench.waiting(LINE) == 1
    await cell.client.hset(cell.keys.request(request), "prompt_tokens", tokens)
    await bench.planner.plan()
    assert (await bench.waiting(LINE), await bench.waiting("a")) == (0, 1)


async def test_under_a_policy_that_binds_early_the_line_is_given_back(cell: Cell) -> None:
    late, early = Bench(cell, "flow"), Bench(cell, "hexgen")
    await late.join()
    await early.join()
    await late.submit("w1")
    assert await late.waiting(LINE) == 1
    await early.planner()  # it does not know yet whether others are there, who bind late
    assert await late.waiting(LINE) == 1
    await Roster(early.desk).meet()
    await early.planner()
    await completions(early.desk)
    assert (await late.waiting(LINE), await late.waiting("a")) == (0, 1)


async def test_while_policies_differ_the_line_is_left_to_those_that_bind_late(
    cell: Cell, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def at_once(seconds: float) -> None: ...

    monkeypatch.setattr("common.clock.sleep", at_once)
    late, early = Bench(cell, "flow"), Bench(cell, "hexgen")
    await late.join()
    await late.submit("w1")
    for bench in (late, early):
        await Roster(bench.desk).meet()
    await early.planner()
    assert await late.waiting(LINE) == 1
    assert await cell.line.wait()  # its call has not gone to one that does not plan
    await late.planner()
    assert (await late.waiting(LINE), await late.waiting("a")) == (0, 1)
    await late.submit("w2")
    await cell.coordinators.withdraw(late.desk.name, "flow")
    await Roster(early.desk).meet()
    await early.planner()
    await completions(early.desk)
    assert (await late.waiting(LINE), await late.waiting("a")) == (0, 2)


async def test_a_request_that_an_engine_found_too_long_goes_where_there_is_room(cell: Cell) -> None:
    bench = Bench(cell)
    fast = await bench.join("fast", profile=replace(PROFILE, context_tokens=2000))
    await bench.join("roomy", profile=replace(PROFILE, prefill_tokens_per_s=100.0))
    await bench.submit("w1", prompt="word " * 1000, retries=0)
    await bench.planner()
    (claim,) = await bench.claim(fast)
    too_long = AttemptFailed("too long", retryable=False, prompt_tokens=5000)
    assert await cell.queues.finish([(claim.request, claim.token, too_long)]) == [True]
    await completions(bench.desk)
    await bench.planner()
    assert (await bench.waiting("fast"), await bench.waiting("roomy")) == (0, 1)


@pytest.mark.parametrize("policy", ["flow", "ray"])
@pytest.mark.parametrize(
    ("only_a", "too_long"), [({"model": "one"}, False), ({"requires": ["roomy"]}, False), ({"model": "m"}, True)]
)
async def test_however_many_wait_for_one_instance_no_other_is_idle(
    cell: Cell, policy: str, only_a: dict[str, Any], too_long: bool
) -> None:
    bench = Bench(cell, policy)
    await bench.join("a", only_a.get("model", "m"), labels=["roomy"])
    await bench.join("b", profile=replace(PROFILE, context_tokens=300) if too_long else PROFILE)
    prompt = "word " * 400 if too_long else "say it"
    await bench.submit("many", "more", prompt=prompt, for_each="range(600) | list", **only_a)
    await bench.submit("last", model="m", slo_s=600)
    assert await bench.waiting(LINE) == 1201 > MOST_SEEN
    await bench.planner()
    assert (await bench.waiting("a") > 0, await bench.waiting("b")) == (True, 1)


@pytest.mark.parametrize("policy", ["flow", "ray"])
async def test_where_one_runs_alone_nothing_waits_behind_it_that_another_instance_can_take(
    cell: Cell, policy: str
) -> None:
    bench = Bench(cell, policy)
    alone = await bench.join("a", labels=["only"])
    await bench.submit("first", "poison", slo_s=50, requires=["only"])  # ahead of what comes later
    _, request = (await cell.line.survey(AHEAD)).line
    await cell.client.hset(cell.keys.request(request), "alone", 1)
    await bench.join("b", profile=replace(PROFILE, prefill_tokens_per_s=1000.0))
    await bench.submit("only", requires=["only"])
    await bench.submit(*(f"w{number}" for number in range(5)))
    await bench.planner()
    assert (await bench.waiting("a"), await bench.waiting("b"), await bench.waiting(LINE)) == (2, 5, 1)
    await bench.finish(*await bench.claim(alone))
    (claim,) = await cell.queues.claim(alone, call_id(), LEASE_MS, replace(ROOM, empty=True))
    await clock.sleep(UNSERVED_S)
    await bench.submit("w5")
    await bench.planner()
    assert await bench.waiting("a") == 0
    assert await bench.waiting(LINE) + await bench.waiting("b") == 7
    await bench.finish(claim)
    await bench.planner()
    assert "only" in [claim.workflow for claim in await bench.claim(alone)]
