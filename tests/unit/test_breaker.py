"""When an engine counts as stalled, and how it comes back, on a clock that counts the sleeps."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Mapping

import pytest

from common.enginefit import Iteration
from common.profiles import A100
from workers.breaker import LOOKS, Breaker
from workers.engines.protocol import Chunk, EngineCall, EngineError, EngineInfo, EngineLoad, Progress
from workers.observer import Observer

STALL_S = 64.0
ITERATION = Iteration(1, 1, 0, 0.01)


class Still:
    """An engine that holds `running` calls and tells what it is made to tell. Probes get the answers given, in turn."""

    def __init__(self, *answers: str | Exception | None) -> None:
        self.running = 1
        self.answers = list(answers)
        self.probes: list[EngineCall] = []
        self.closed = 0
        self.heard: Callable[[Iteration], None]

    async def start(self) -> EngineInfo:
        return EngineInfo(("m",), A100, frozenset())

    async def generate(self, call: EngineCall) -> AsyncGenerator[Chunk, None]:
        self.probes.append(call)
        answer = self.answers.pop(0)
        try:
            if isinstance(answer, Exception):
                raise answer
            if answer is None:
                await asyncio.Event().wait()
            yield Chunk("", answer)
        finally:
            self.closed += 1

    async def abort(self, request_id: str) -> None: ...

    def load(self) -> EngineLoad:
        return EngineLoad(self.running, 0, 0)

    def progress(self) -> Mapping[str, Progress]:
        return {}

    def listen(self, heard: Callable[[Iteration], None]) -> None:
        self.heard = heard

    async def health(self) -> None: ...

    async def close(self) -> None: ...


class Watched:
    """A breaker at work. `on_sleep` is called before each sleep and told how many there were before."""

    def __init__(self, engine: Still, monkeypatch: pytest.MonkeyPatch, stall_s: float = STALL_S) -> None:
        self.engine, self.stall_s = engine, stall_s
        self.observer = Observer(engine, EngineInfo(("m",), A100, frozenset()))
        self.sleeps: list[float] = []
        self.did: list[str] = []
        self.on_sleep: Callable[[int], None] = lambda _: None
        self._monkeypatch = monkeypatch

    async def run(self, sleeps: int) -> list[str]:
        """What it did before it slept for so many times and once more."""
        enough = asyncio.Event()

        async def sleep(seconds: float) -> None:
            if len(self.sleeps) == sleeps:
                enough.set()
                await asyncio.Event().wait()
            self.on_sleep(len(self.sleeps))
            self.sleeps.append(seconds)

        async def leave() -> None:
            self.did.append("leave")

        async def come_back() -> None:
            self.did.append("come back")

        self._monkeypatch.setattr("common.clock.sleep", sleep)
        running = asyncio.create_task(Breaker(self.engine, self.observer, self.stall_s, leave, come_back).run())
        async with asyncio.timeout(10):
            await asyncio.wait({running, asyncio.create_task(enough.wait())}, return_when=asyncio.FIRST_COMPLETED)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        return self.did


async def test_an_engine_with_work_and_no_progress_leaves_once_stall_s_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(Still(), monkeypatch)
    assert await watched.run(LOOKS) == []
    assert sum(watched.sleeps) == pytest.approx(STALL_S)
    watched.sleeps.clear()
    assert await watched.run(LOOKS + 1) == ["leave"]


async def test_an_engine_without_work_never_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(Still(), monkeypatch)
    watched.engine.running = 0
    assert await watched.run(20 * LOOKS) == []


@pytest.mark.parametrize("sign", ["iteration", "text"])
async def test_whatever_comes_out_of_it_is_progress(monkeypatch: pytest.MonkeyPatch, sign: str) -> None:
    """As a long prefill does: one iteration after the other, and no token."""
    watched = Watched(Still(), monkeypatch)

    def progress(slept: int) -> None:
        if slept % LOOKS == 0:
            watched.engine.heard(ITERATION) if sign == "iteration" else watched.observer.advanced()

    watched.on_sleep = progress
    assert await watched.run(20 * LOOKS) == []


async def test_calls_that_are_given_up_one_by_one_do_not_hide_it(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(Still(), monkeypatch)

    def come_and_go(slept: int) -> None:
        watched.engine.running = slept % 2

    watched.on_sleep = come_and_go
    assert await watched.run(2 * LOOKS) == []
    watched.sleeps.clear()
    assert await watched.run(2 * LOOKS + 2) == ["leave"]


async def test_probes_come_seldomer_until_one_is_answered(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "hexgen.worker")
    failures: list[str | Exception] = [EngineError("not now"), "abort", EngineError("not now"), RuntimeError("odd")] * 2
    engine = Still(*failures, "length")
    watched = Watched(engine, monkeypatch)
    watched.on_sleep = lambda slept: engine.heard(ITERATION) if slept > LOOKS + len(failures) else None
    did = await watched.run(LOOKS + 1 + len(failures) + 1 + LOOKS)
    assert did == ["leave", *["leave"] * len(failures), "come back"]
    assert watched.sleeps[LOOKS + 1 :][: len(failures) + 1] == [2, 4, 8, 16, 32, 64, 64, 64, 64]
    assert len({probe.request_id for probe in engine.probes}) == len(failures) + 1
    assert {probe.call.sampling.max_tokens for probe in engine.probes} == {1}
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]


async def test_a_probe_that_gets_no_answer_is_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Still(None, None, "stop")
    watched = Watched(engine, monkeypatch, stall_s=0.02)
    watched.on_sleep = lambda slept: engine.heard(ITERATION) if slept > LOOKS + 3 else None
    assert await watched.run(LOOKS + 1 + 3 + 1) == ["leave"] * 3 + ["come back"]
    assert engine.closed == 3
