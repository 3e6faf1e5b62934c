"""The simulated engine on a clock moved by hand: its times are the model's, and it gives back what it held."""

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest
from simulated_bench import TEXT, call, collect, engine_on

from common.engine import EngineModel, Sequence
from common.model import Usage
from common.profiles import A100
from workers.engines.protocol import Chunk, EngineError, EngineLoad

IDLE = EngineLoad(running=0, unprefilled_tokens=0, kv_tokens=0)


class ManualClock:
    """A clock that stands still until told. Every sleep ends `late_s` after its time."""

    def __init__(self, late_s: float = 0.0) -> None:
        self.now_s = 0.0
        self.late_s = late_s
        self.sleeps: list[float] = []
        self._sleepers: list[tuple[float, asyncio.Future[None]]] = []

    def now(self) -> float:
        return self.now_s

    async def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        woken = asyncio.get_running_loop().create_future()
        self._sleepers.append((self.now_s + seconds + self.late_s, woken))
        await woken

    async def settle(self) -> None:
        """Let everybody run until they wait for this clock, or for nothing that will come."""
        for _ in range(12):
            await asyncio.sleep(0)

    async def run(self, until: float = math.inf) -> None:
        """Move from sleeper to sleeper up to that time, or until nobody sleeps."""
        while True:
            await self.settle()
            self._sleepers = [entry for entry in self._sleepers if not entry[1].done()]
            due = min((at for at, _ in self._sleepers), default=math.inf)
            if due > until or due == math.inf:
                break
            self.now_s = max(self.now_s, due)
            for at, woken in self._sleepers:
                if at <= self.now_s:
                    woken.set_result(None)
        self.now_s = max(self.now_s, until) if until < math.inf else self.now_s


def model_times(lengths: dict[str, tuple[int, int]], arrivals_s: dict[str, float] | None = None) -> dict[str, float]:
    """When each ends by the model alone, in single steps. Who comes during an iteration starts after it."""
    arrivals = arrivals_s or {}
    left = sorted(lengths, key=lambda name: arrivals.get(name, 0.0))
    model, now_s = EngineModel(A100), 0.0
    ends: dict[str, float] = {}
    while left or model.running or model.waiting:
        while left and arrivals.get(left[0], 0.0) <= now_s:
            model.add(Sequence(left[0], *lengths[left.pop(0)]))
        duration, finished = model.step()
        now_s += duration
        ends |= {sequence.id: now_s for sequence in finished}
    return ends


LENGTHS = {"a": (306, 7), "b": (10_768, 696), "c": (6_897, 156), "d": (275, 5), "e": (1_169, 104)}


@pytest.mark.parametrize("time_scale", [1.0, 20.0])
async def test_each_call_ends_when_the_model_says(time_scale: float) -> None:
    clock = ManualClock()
    engine = engine_on(clock, LENGTHS, time_scale=time_scale)
    await engine.start()
    ends: dict[str, float] = {}

    async def ask(name: str) -> None:
        await collect(engine, call(name))
        ends[name] = clock.now_s * time_scale

    async with asyncio.TaskGroup() as group:
        for name in LENGTHS:
            group.create_task(ask(name))
        await clock.run()
    assert ends == pytest.approx(model_times(LENGTHS), rel=1e-9)
    assert engine.load() == IDLE
    await engine.close()


async def test_who_comes_during_a_stretch_starts_after_the_iteration() -> None:
    clock = ManualClock()
    arrivals = {"a": 0.0, "b": 3.21, "c": 5.017, "d": 30.003, "e": 31.0}
    lengths = LENGTHS | {"a": (306, 400)}
    engine = engine_on(clock, lengths, time_scale=50.0)
    await engine.start()
    ends: dict[str, float] = {}

    async def ask(name: str) -> None:
        await collect(engine, call(name))
        ends[name] = clock.now_s * 50

    async with asyncio.TaskGroup() as group:
        for name, at in arrivals.items():
            await clock.run(until=at / 50)
            group.create_task(ask(name))
        await clock.run()
    assert ends == pytest.approx(model_times(lengths, arrivals), rel=1e-9)
    await engine.close()


async def test_late_wake_ups_do_not_add_up() -> None:
    clock = ManualClock(late_s=0.004)
    engine = engine_on(clock, {"a": (100, 1000)})
    await engine.start()
    asked = asyncio.create_task(collect(engine, call("a")))
    await clock.run()
    await asked
    ideal_s = model_times({"a": (100, 1000)})["a"]
    assert len(clock.sleeps) > 500
    assert ideal_s <= clock.now_s <= ideal_s + 0.0041, "one lateness, not hundreds"
    await engine.close()


async def test_after_a_long_stall_it_catches_up_without_sleeping() -> None:
    clock = ManualClock()
    engine = engine_on(clock, {"a": (100, 200)})
    await engine.start()
    asked = asyncio.create_task(collect(engine, call("a")))
    await clock.run(until=1.0)
    clock.now_s = 1000.0
    before = len(clock.sleeps)
    await clock.run()
    await asked
    assert clock.now_s == 1000.0
    assert set(clock.sleeps[before:]) == {0}
    await engine.close()


async def test_an_idle_engine_does_not_poll() -> None:
    clock = ManualClock()
    engine = engine_on(clock, {"a": (10, 1), "b": (10, 1)})
    await engine.start()
    await clock.run(until=100.0)
    assert clock.sleeps == []
    for name in ("a", "b"):
        asked = asyncio.create_task(collect(engine, call(name)))
        start_s = clock.now_s
        await clock.run()
        await asked
        assert clock.now_s - start_s == pytest.approx(model_times({name: (10, 1)})[name])
    before = len(clock.sleeps)
    await clock.run(until=1000.0)
    assert len(clock.sleeps) == before
    await engine.close()


async def test_fast_iterations_share_a_chunk_and_a_slow_reader_misses_nothing() -> None:
    clock = ManualClock()
    engine = engine_on(clock, {"a": (100, 440)}, time_scale=20.0)
    await engine.start()
    stream = engine.generate(call("a"))
    first = asyncio.ensure_future(anext(stream))
    await clock.run(until=0.01)
    assert (await first).text == ""
    await clock.run(until=0.4)
    second = await anext(stream)
    assert len(second.text) == pytest.approx(0.4 * 20 / 0.0356 / 10, abs=2)
    rest = asyncio.ensure_future(collect_rest(stream))
    await clock.run()
    chunks = await rest
    assert first.result().text + second.text + "".join(chunk.text for chunk in chunks) == TEXT
    assert len(chunks) < 45
    await engine.close()


async def collect_rest(stream: AsyncIterator[Chunk]) -> list[Chunk]:
    return [chunk async for chunk in stream]


# --- leaving early


async def test_abort_frees_the_room_and_ends_the_stream() -> None:
    clock = ManualClock()
    engine = engine_on(clock, LENGTHS)
    await engine.start()
    asked = {name: asyncio.create_task(collect(engine, call(name))) for name in ("a", "b")}
    await clock.run(until=0.6)
    held = engine.load()
    await engine.abort("b")
    left = engine.load()
    assert (held.running, held.kv_tokens - left.kv_tokens) == (2, 10_768)
    assert (left.running, left.unprefilled_tokens) == (1, 0)
    last = (await asked["b"])[-1]
    assert (last.finish_reason, last.usage) == ("abort", Usage(10_768, 0, 0))
    await clock.run()
    assert (await asked["a"])[-1].finish_reason == "stop"
    await engine.abort("unknown")
    assert engine.load() == IDLE
    await engine.close()


async def test_closing_the_iterator_frees_the_room_at_once() -> None:
    clock = ManualClock()
    engine = engine_on(clock, {"a": (100, 50), "b": (100, 50)})
    await engine.start()
    async with aclosing(engine.generate(call("a"))) as stream:  # type: ignore[type-var]
        first = asyncio.ensure_future(anext(stream))
        await clock.run(until=0.2)
        await first
        assert engine.load().kv_tokens >= 100
    assert engine.load() == IDLE
    cancelled = asyncio.create_task(collect(engine, call("b")))
    await clock.settle()
    assert engine.load().running == 1
    cancelled.cancel()
    await asyncio.wait([cancelled])
    assert engine.load() == IDLE
    await engine.close()


async def test_close_ends_streams_as_aborted() -> None:
    clock = ManualClock()
    engine = engine_on(clock, {"a": (100, 50)})
    await engine.start()
    asked = asyncio.create_task(collect(engine, call("a")))
    await clock.run(until=0.5)
    await engine.close()
    assert (await asked)[-1].finish_reason == "abort"
    with pytest.raises(EngineError, match="not running"):
        await engine.health()
