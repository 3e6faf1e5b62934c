"""An engine that lives and makes no progress, on a real server: others do its work, and it comes back by itself."""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any

import pytest
from operations_bench import join

from common import clock
from common.backoff import keep
from common.profiles import PROFILES
from common.settings import load
from common.store.cell import Cell
from common.store.embedded import EmbeddedServer
from common.store.queues import Seat
from common.tasks import end
from coordinator.desk import Desk
from coordinator.loops.completions import completions
from coordinator.loops.intake import intake
from coordinator.loops.planner import Planner
from coordinator.loops.recoverer import promoter
from coordinator.loops.roster import Roster
from workers.engines.protocol import Chunk, EngineCall
from workers.engines.responders import Echo
from workers.engines.simulated import SimulatedEngine
from workers.lease import LeaseKeeper
from workers.observer import Observer
from workers.runner import Runner, run_until

STALL_S = 0.5
LEASE_MS = 60_000


class Time:
    """The clock an engine lives by; while it is stopped, nothing happens in there."""

    def __init__(self) -> None:
        self.runs = asyncio.Event()
        self.runs.set()
        self._stopped_at = 0.0

    def stop(self) -> None:
        self._stopped_at = self.now()
        self.runs.clear()

    def now(self) -> float:
        return clock.monotonic_s() if self.runs.is_set() else self._stopped_at

    async def sleep(self, seconds: float) -> None:
        await self.runs.wait()
        await clock.sleep(seconds)
        await self.runs.wait()


class Fragile(SimulatedEngine):
    """Its time stands still as long as it holds poison. `beside`: how many others there were each time that came."""

    def __init__(self, time: Time, beside: list[int]) -> None:
        super().__init__(
            PROFILES["a100"], responder=Echo(4), models=("m",), time_scale=10.0, now=time.now, sleep=time.sleep
        )
        self._time, self._beside = time, beside

    async def generate(self, call: EngineCall) -> AsyncGenerator[Chunk, None]:
        poison = "poison" in call.call.text()
        if poison:
            self._beside.append(self.load().running)
            self._time.stop()
        try:
            async with aclosing(super().generate(call)) as chunks:
                async for chunk in chunks:
                    yield chunk
        finally:
            if poison:
                self._time.runs.set()


class Bench:
    """What a coordinator does, under one policy, and instances that join it; each has its name for a label too."""

    def __init__(self, cell: Cell, url: str, namespace: str) -> None:
        self.cell, self._url, self._namespace = cell, url, namespace
        self.times: dict[str, Time] = {}
        self.engines: dict[str, Fragile] = {}
        self.beside: list[int] = []
        self.stop = asyncio.Event()
        self.grace_s = 0.0
        self.serving: list[asyncio.Task[None]] = []

    async def join(self, name: str) -> None:
        self.times[name] = time = Time()
        self.engines[name] = engine = Fragile(time, self.beside)
        info = await engine.start()
        epoch = await self.cell.instances.register(name, info.profile, ["m"], [name], info.features)
        seat = Seat(name, epoch, f"{name}/1")
        runner = Runner(self.cell, engine, Observer(engine, info), seat, LEASE_MS, STALL_S)
        gone: list[str] = []
        leases = LeaseKeeper(
            self._url, seat, self._namespace, LEASE_MS, on_gone=gone.append, on_seat_lost=lambda _: None
        )
        runner.attach(leases)
        leases.start()
        self.serving.append(asyncio.create_task(self._serve(runner, leases, engine)))

    async def _serve(self, runner: Runner, leases: LeaseKeeper, engine: SimulatedEngine) -> None:
        await run_until(runner, self.stop, self.grace_s)
        await leases.ended()
        await engine.close()

    async def submit(self, *names: str, **stage: Any) -> None:
        for name in names:
            stages = {"s": {"prompt": "say it", "retries": 0, **stage}}
            await self.cell.records.submit({"workflow": {"name": "one", "stages": stages}, "id": name, "slo_s": 60})

    async def status(self, workflow: str) -> str | None:
        return await self.cell.records.status(workflow)

    async def holds(self, instance: str, calls: int) -> bool:
        return self.engines[instance].load().running == calls

    async def shown(self, instance: str) -> str:
        return {str(one["instance"]): str(one["status"]) for one in await self.cell.instances.describe()}[instance]


@pytest.fixture(params=["flow", "hexgen"])
async def bench(
    server: EmbeddedServer, cell: Cell, namespace: str, request: pytest.FixtureRequest
) -> AsyncIterator[Bench]:
    """Under a policy that binds late, and one that does not."""
    desk = Desk(cell, load(policy=request.param, lease_s=LEASE_MS / 1000))

    async def reap() -> None:
        await cell.queues.reap(LEASE_MS, 3)
        await asyncio.sleep(0.05)

    turns: dict[str, Callable[[], Awaitable[None]]] = {
        "intake": lambda: intake(desk),
        "completions": lambda: completions(desk),
        "promoter": lambda: promoter(desk),
        "planner": Planner(desk),
        "roster": Roster(desk),
        "recoverer": reap,
    }
    await cell.queues.reap(LEASE_MS, 3)
    await cell.client.hset(cell.keys.server, "since", 0)
    loops = [asyncio.create_task(keep(name, turn)) for name, turn in turns.items()]
    made = Bench(cell, server.url, namespace)
    yield made
    made.stop.set()
    for time in made.times.values():
        time.runs.set()
    await asyncio.gather(*made.serving)
    await end(*loops)


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(30):
        while not await holds():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_what_stalls_on_one_instance_is_done_by_another_and_the_first_comes_back(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "hexgen")
    cell, names = bench.cell, ["w1", "w2", "w3"]

    async def all_completed() -> bool:
        return {await bench.status(name) for name in names} == {"completed"}

    async def a_is(status: str) -> bool:
        return await bench.shown("a") == status

    await bench.join("a")
    bench.times["a"].stop()
    await bench.submit(*names)
    await until(lambda: bench.holds("a", len(names)))
    await bench.engines["a"].health()  # it says that it is well
    await bench.join("b")
    await until(all_completed)  # each in its only attempt
    assert await a_is("stalled")
    assert all(name.startswith("probe-") for name in bench.engines["a"].progress())  # the others are aborted
    assert await cell.client.zcard(cell.keys.leases) == 0
    assert set((await cell.instances.backlogs()).values()) <= {0}
    assert await cell.instances.served() == {"b": 3}
    await bench.submit("w4", requires=["a"])
    bench.times["a"].runs.set()
    await until(lambda: a_is("ready"))
    names = ["w4"]
    await until(all_completed)
    assert await cell.instances.served() == {"a": 1, "b": 3}
    worker = [one.getMessage() for one in caplog.records if one.name == "hexgen.worker"]
    assert [line for line in worker if "progress" in line] == [
        "the engine has had work for 0.5 s and made no progress: it gets none until it answers a probe",
        "the engine answers again, after 0.5 s or more without progress; it gets work",
    ]


@pytest.mark.slow
async def test_what_stalls_every_engine_is_given_up_and_its_neighbours_are_not(bench: Bench) -> None:
    names = [f"w{number}" for number in range(8)]

    async def all_ended() -> bool:
        return {await bench.status(name) for name in (*names, "bad")} == {"completed", "failed"}

    await bench.join("a")
    bench.times["a"].stop()  # so that all are there when the poison comes
    await bench.submit(*names[:4])
    await bench.submit("bad", prompt="poison")
    await bench.submit(*names[4:])
    await until(lambda: bench.holds("a", 9))
    await bench.join("b")
    await until(all_ended)
    assert await bench.status("bad") == "failed"
    (letter,) = await bench.cell.dead.all()
    assert (letter.workflow, letter.reason) == ("bad", "its worker or engine was lost 3 times")
    assert len(bench.beside) == 3
    assert bench.beside[-1] == 0  # the last time it ran alone
    assert set((await bench.cell.instances.backlogs()).values()) <= {0}


async def test_a_drain_does_not_wait_for_an_engine_that_stalls(bench: Bench) -> None:
    bench.grace_s = 3600.0
    await bench.join("a")
    bench.times["a"].stop()
    await bench.submit("w1")
    await until(lambda: bench.holds("a", 1))
    bench.stop.set()
    async with asyncio.timeout(30):
        await asyncio.wait(bench.serving)
    assert await bench.shown("a") == "draining"

    async def nothing_is_held() -> bool:
        return bool(await bench.cell.client.zcard(bench.cell.keys.leases) == 0)

    await until(nothing_is_held)


async def test_a_stalled_instance_that_is_told_to_stop_or_falls_silent_does_not_come_back_as_ready(cell: Cell) -> None:
    seat = await join(cell)
    await cell.instances.evacuate("a", "stalled", seat.epoch)
    await cell.instances.evacuate("a", "lost")
    assert await cell.queues.renew(seat, LEASE_MS, []) == ("stalled", [])
    await cell.instances.evacuate("a", "draining", seat.epoch)
    for status in ("stalled", "ready"):
        await cell.instances.evacuate("a", status, seat.epoch)
        assert (await cell.instances.all())[0].status == "draining"
    await join(cell)
    assert (await cell.instances.all())[0].status == "ready"
