"""What the simulated engine answers, where it cuts, what it refuses and what it tells of itself."""

import asyncio
import math
from dataclasses import replace
from typing import Any, cast

import pytest
from simulated_bench import TEXT, Script, call, collect, engine_on

from common.engine import EngineModel, Sequence
from common.model import LlmCall, Sampling, Usage
from common.profiles import A100
from workers.engines.protocol import EngineCall, EngineError
from workers.engines.simulated import SimulatedEngine


class JumpClock:
    """A clock on which nobody waits: a sleep moves it on."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def now(self) -> float:
        return self.now_s

    async def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        await asyncio.sleep(0)


async def test_text_is_spread_over_the_tokens_and_the_last_chunk_tells_the_usage() -> None:
    clock = JumpClock()
    engine = engine_on(clock, {"a": (100, len(TEXT) // 2)})
    await engine.start()
    chunks = await collect(engine, call("a"))
    assert "".join(chunk.text for chunk in chunks) == TEXT
    assert [len(chunk.text) for chunk in chunks] == [2] * 22, "one iteration is longer than the stream interval"
    assert [chunk.finish_reason for chunk in chunks] == [None] * 21 + ["stop"]
    assert chunks[-1].usage == Usage(prompt_tokens=100, output_tokens=22, cached_tokens=0)
    await engine.close()


@pytest.mark.parametrize(
    ("sampling", "text", "tokens", "reason"),
    [
        ({"max_tokens": 11}, TEXT[:11], 11, "length"),
        ({"max_tokens": 44}, TEXT, 44, "stop"),
        ({"stop": ("order", " from")}, "select name", 11, "stop"),
        ({"stop": ("absent", "")}, TEXT, 44, "stop"),
        ({"stop": ("select",)}, "", 1, "stop"),
        ({"stop": (" from",), "max_tokens": 6}, "select", 6, "length"),
    ],
)
async def test_stop_and_max_tokens(sampling: dict[str, Any], text: str, tokens: int, reason: str) -> None:
    clock = JumpClock()
    engine = engine_on(clock, {"a": (10, len(TEXT))})
    await engine.start()
    chunks = await collect(engine, call("a", **sampling))
    assert "".join(chunk.text for chunk in chunks) == text
    assert chunks[-1].finish_reason == reason
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.output_tokens == tokens
    await engine.close()


async def test_output_ends_where_the_context_does() -> None:
    clock = JumpClock()
    engine = engine_on(clock, {"a": (90, 50)}, profile=replace(A100, context_tokens=100))
    await engine.start()
    chunks = await collect(engine, call("a"))
    last = chunks[-1]
    assert (last.finish_reason, last.usage) == ("length", Usage(90, 10, 0))
    await engine.close()


@pytest.mark.parametrize(("prefix_cache", "cached"), [(True, 512), (False, 0)])
async def test_a_prompt_seen_before_comes_from_the_prefix_cache(prefix_cache: bool, cached: int) -> None:
    clock = JumpClock()
    engine = engine_on(clock, {"a": (700, 2), "b": (700, 2), "c": (700, 2)}, prefix_cache=prefix_cache)
    await engine.start()
    shared = "s" * 2400
    got = []
    for name, prompt in (("a", shared + "a" * 400), ("b", shared + "b" * 400), ("c", "c" * 2800)):
        chunks = await collect(engine, call(name, prompt))
        got.append(cast(Usage, chunks[-1].usage).cached_tokens)
    assert got == [0, cached, 0]
    await engine.close()


async def test_what_it_cannot_serve_is_refused_in_a_sentence() -> None:
    clock = JumpClock()
    engine = engine_on(clock, {"a": (32_768, 1), "b": (10, 5)})
    with pytest.raises(EngineError, match="not running"):
        await collect(engine, call("b"))
    await engine.start()
    await engine.health()
    with pytest.raises(EngineError, match="the prompt has 32768 tokens; this engine takes 32767 at most") as refused:
        await collect(engine, call("a"))
    assert (refused.value.retryable, refused.value.prompt_tokens) == (False, 32768)
    asked = EngineCall("b", LlmCall("x", None, "gpt", Sampling()), "flow/stage")
    with pytest.raises(EngineError, match="model 'gpt' is not served here; served are llama"):
        await collect(engine, asked)
    stream = engine.generate(call("b"))
    await anext(stream)
    with pytest.raises(EngineError, match="request b is already running"):
        await collect(engine, call("b"))
    await engine.close()


@pytest.mark.parametrize("time_scale", [0.0, -1.0, math.inf, math.nan])
def test_a_time_scale_that_is_none_is_refused(time_scale: float) -> None:
    with pytest.raises(EngineError, match="time_scale"):
        engine_on(JumpClock(), {}, time_scale=time_scale)


async def test_a_broken_clock_fails_the_streams_and_the_health() -> None:
    async def broken(seconds: float) -> None:
        raise OSError(f"cannot wait {seconds > 0}")

    engine = SimulatedEngine(A100, responder=Script({"a": (10, 5)}), models=("llama",), sleep=broken)
    await engine.start()
    with pytest.raises(EngineError, match="the simulated engine failed: OSError: cannot wait True"):
        await collect(engine, call("a"))
    with pytest.raises(EngineError, match="cannot wait"):
        await engine.health()
    await engine.close()


async def test_the_profile_told_is_as_fast_as_it_looks_from_outside() -> None:
    engine = engine_on(JumpClock(), {}, time_scale=20.0)
    info = await engine.start()
    assert info.models == ("llama",)
    assert info.profile.weights_s == pytest.approx(A100.weights_s / 20)
    told, real = EngineModel(info.profile), EngineModel(A100)
    for model in (told, real):
        model.add(Sequence("a", 3000, 200))
    while (duration := real.begin()) < math.inf:
        assert told.begin() == pytest.approx(duration / 20)
        assert len(told.end()) == len(real.end())
    await engine.close()


async def test_it_runs_on_the_real_clock() -> None:
    engine = SimulatedEngine(
        A100,
        responder=Script({str(at): (500 * at, 10 * at) for at in range(1, 9)}),
        models=("llama",),
        time_scale=5000.0,
    )
    await engine.start()
    answers = await asyncio.gather(*(collect(engine, call(name)) for name in map(str, range(1, 9))))
    assert all("".join(chunk.text for chunk in chunks) == TEXT for chunks in answers)
    await engine.close()
