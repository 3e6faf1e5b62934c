"""The real engine on the real small model. They share one engine, which takes half a minute to start."""

import asyncio
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from cores import MODEL, ROOT, children, cores

from common.enginefit import EngineFit, Iteration
from common.jsonschema_check import misfit
from common.model import LlmCall, Sampling, Usage
from workers.engines.protocol import Chunk, EngineCall, EngineError, EngineInfo, EngineLoad, Progress
from workers.engines.vllm_engine import VllmEngine

CONTEXT = 2048
IDLE = EngineLoad(running=0, unprefilled_tokens=0, kv_tokens=0)
STORY = "Once upon a time there was a database that"
PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.asyncio(loop_scope="module"),
    # What vLLM imports warns about its own; ours stay errors.
    pytest.mark.filterwarnings(r"ignore::DeprecationWarning:torch(\.|$)"),
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def started() -> AsyncIterator[tuple[VllmEngine, EngineInfo]]:
    engine = VllmEngine(("small", "smollm2"), ["--model", str(MODEL), "--max-model-len", str(CONTEXT)])
    info = await engine.start()
    yield engine, info
    await engine.close()


@pytest.fixture
def engine(started: tuple[VllmEngine, EngineInfo]) -> VllmEngine:
    return started[0]


def call(request_id: str, prompt: str | None, *, messages: tuple[dict[str, str], ...] | None = None,
         priority: int = 0, **sampling: object) -> EngineCall:  # fmt: skip
    asked = LlmCall(prompt, messages, "small", Sampling(**sampling))  # type: ignore[arg-type]
    return EngineCall(request_id, asked, "test/stage", priority)


async def answer(engine: VllmEngine, asked: EngineCall) -> tuple[str, Chunk]:
    """The whole text and the last chunk."""
    chunks = [chunk async for chunk in engine.generate(asked)]
    assert all(chunk.finish_reason is None and chunk.usage is None for chunk in chunks[:-1])
    return "".join(chunk.text for chunk in chunks), chunks[-1]


def usage(last: Chunk) -> Usage:
    assert last.usage is not None
    return last.usage


async def test_the_profile_is_that_of_the_engine_measured(started: tuple[VllmEngine, EngineInfo]) -> None:
    info = started[1]
    assert info.models == ("small", "smollm2")
    assert info.features == {"chat", "json_schema", "prefix_cache", "priority"}
    profile = info.profile
    assert (profile.context_tokens, profile.chunk_tokens) == (CONTEXT, 512)
    assert profile.kv_tokens > 10 * CONTEXT
    assert 50 < profile.prefill_tokens_per_s < 50_000
    assert 0.001 < profile.weights_s + profile.overhead_s < 5
    assert profile.kv_s_per_token >= 0


async def test_iterations_are_told_and_teach_the_speeds(started: tuple[VllmEngine, EngineInfo]) -> None:
    engine, info = started
    fit = EngineFit(info.profile)
    heard: list[Iteration] = []

    def hear(iteration: Iteration) -> None:
        heard.append(iteration)
        fit.observe(iteration)

    engine.listen(hear)
    prompts = [f"{at} " + "the cat sat on the mat and then " * 100 for at in range(4)]
    asked = [answer(engine, call(f"learn{at}", prompt, max_tokens=40)) for at, prompt in enumerate(prompts)]
    running = asyncio.gather(*asked)
    most: dict[str, Progress] = {}
    while not running.done():
        await asyncio.sleep(0.01)
        most |= engine.progress()
    last = [usage(end) for _, end in await running]
    assert {progress.prompt_tokens for progress in most.values()} == {one.prompt_tokens for one in last}
    assert max(progress.generated_tokens for progress in most.values()) > 10
    computed = sum(one.prompt_tokens - one.cached_tokens for one in last)
    assert sum(iteration.prompt_tokens for iteration in heard) == computed
    assert fit.iterations == len(heard) > 40
    assert 0.2 < fit.speeds.prefill_tokens_per_s / info.profile.prefill_tokens_per_s < 5
    assert 0.2 < fit.speeds.step_s / (info.profile.weights_s + info.profile.overhead_s) < 5
    assert engine.progress() == {}


async def test_a_plain_prompt_is_continued(engine: VllmEngine) -> None:
    text, last = await answer(engine, call("plain", "The capital of France is", max_tokens=6))
    assert "Paris" in text
    assert last.finish_reason == "length"
    assert usage(last) == Usage(prompt_tokens=5, output_tokens=6, cached_tokens=0)
    again, _ = await answer(engine, call("plain", "The capital of France is", max_tokens=6))
    assert again == text


async def test_messages_go_through_the_chat_template(engine: VllmEngine) -> None:
    question = ({"role": "user", "content": "What is the capital of France? Answer with one word."},)
    text, last = await answer(engine, call("chat", None, messages=question, max_tokens=40))
    assert text.strip()
    assert usage(last).prompt_tokens > 25, "roles and the default system message are part of the prompt"
    assert "<|im_" not in text


async def test_a_stop_string_ends_the_text_before_it(engine: VllmEngine) -> None:
    text, last = await answer(engine, call("stop", "one, two, three, four,", stop=("six",), max_tokens=40))
    assert "five" in text
    assert "six" not in text
    assert last.finish_reason == "stop"


async def test_warm_sampling_varies(engine: VllmEngine) -> None:
    asked = [call(f"warm-{n}", STORY, temperature=1.0, top_p=0.9, max_tokens=12) for n in range(3)]
    texts = {text for text, _ in await asyncio.gather(*(answer(engine, one) for one in asked))}
    assert len(texts) > 1


async def test_a_seeded_call_in_several_chunks_leaves_the_core_alive(engine: VllmEngine) -> None:
    text, _ = await answer(engine, call("seed", "table " * 1200, temperature=1.0, seed=7, max_tokens=4))
    assert text
    await engine.health()


async def test_json_schema_output_parses_and_fits(engine: VllmEngine) -> None:
    text, last = await answer(engine, call("json", "A person as JSON: ", json_schema=PERSON, max_tokens=100))
    assert last.finish_reason == "stop"
    assert misfit(json.loads(text), PERSON) is None


async def test_a_schema_the_engine_cannot_read_fails_its_call_only(engine: VllmEngine) -> None:
    with pytest.raises(EngineError) as caught:
        await answer(engine, call("bad-schema", "A person: ", json_schema={"type": "no such type"}))
    assert not caught.value.retryable
    await engine.health()
    assert engine.load() == IDLE


async def test_a_repeated_prompt_comes_from_the_prefix_cache(engine: VllmEngine) -> None:
    schema = " ".join(f"column_{number} integer," for number in range(100))
    _, first = await answer(engine, call("fresh", schema + " first question", max_tokens=2))
    _, second = await answer(engine, call("cached", schema + " another question", max_tokens=2))
    assert usage(first).cached_tokens == 0
    assert usage(second).cached_tokens >= 0.6 * usage(second).prompt_tokens


async def test_a_prompt_that_fills_the_context_is_refused_with_numbers(engine: VllmEngine) -> None:
    with pytest.raises(EngineError, match=rf"the prompt has \d+ tokens; this engine takes {CONTEXT - 1} at most") as no:
        await answer(engine, call("long", "word " * 3 * CONTEXT))
    assert not no.value.retryable
    assert f"the prompt has {no.value.prompt_tokens} tokens" in str(no.value)
    assert engine.load() == IDLE


async def test_calls_run_together_and_the_load_returns_to_nothing(engine: VllmEngine) -> None:
    deadline = 1_900_000_000_000  # priorities are deadlines in ms
    asked = [call(f"many-{n}", f"{n} {STORY}", max_tokens=16 + n, priority=deadline - n) for n in range(8)]
    running = asyncio.gather(*(answer(engine, one) for one in asked))
    peak = IDLE
    while not running.done():
        await asyncio.sleep(0)
        peak = max(peak, engine.load(), key=lambda load: (load.running, load.unprefilled_tokens))
    answers = await running
    assert peak.running == 8
    assert peak.unprefilled_tokens >= 8 * 5
    assert peak.kv_tokens >= peak.unprefilled_tokens
    assert all(text and usage(last).output_tokens <= 16 + n for n, (text, last) in enumerate(answers))
    assert engine.load() == IDLE


async def test_the_load_of_a_long_prompt_falls_chunk_by_chunk(engine: VllmEngine) -> None:
    seen: set[int] = set()
    running = asyncio.create_task(answer(engine, call("chunks", "row " * 1500, max_tokens=2)))
    while not running.done():
        await asyncio.sleep(0)
        seen.add(engine.load().unprefilled_tokens)
    _, last = await running
    prompt = usage(last).prompt_tokens
    assert {prompt, prompt - 512, prompt - 1024} <= seen
    assert engine.load() == IDLE


async def test_abort_ends_the_stream_and_frees_its_room(engine: VllmEngine) -> None:
    stream = engine.generate(call("abort", STORY, max_tokens=1000))
    await anext(stream)
    assert engine.load().running == 1
    with pytest.raises(EngineError, match="already running"):
        await answer(engine, call("abort", STORY))
    await engine.abort("abort")
    await engine.abort("nobody")
    rest = [chunk async for chunk in stream]
    assert rest[-1].finish_reason == "abort"
    assert 0 < usage(rest[-1]).output_tokens < 1000
    assert engine.load() == IDLE


async def test_abort_reaches_a_call_that_has_not_begun(engine: VllmEngine) -> None:
    running = asyncio.create_task(answer(engine, call("early", STORY, max_tokens=1000)))
    await asyncio.sleep(0)
    await engine.abort("early")
    _, last = await running
    assert last.finish_reason == "abort"
    assert engine.load() == IDLE


async def test_closing_the_stream_or_cancelling_its_task_stops_the_call(engine: VllmEngine) -> None:
    stream = engine.generate(call("closed", STORY, max_tokens=1000))
    await anext(stream)
    await stream.aclose()
    task = asyncio.create_task(answer(engine, call("cancelled", STORY, max_tokens=1000)))
    while engine.load().kv_tokens == 0:  # noqa: ASYNC110  no signal tells of it
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert engine.load() == IDLE
    # What was stopped holds nothing in the core either: the next iteration's report is of this call alone.
    stream = engine.generate(call("after", STORY, max_tokens=3))
    await anext(stream)
    assert engine.load().running == 1
    assert engine.load().kv_tokens < 500
    await stream.aclose()


async def test_another_model_is_refused(engine: VllmEngine) -> None:
    other = EngineCall("other", LlmCall("hello", None, "gpt-9", Sampling()), "test/stage")
    with pytest.raises(EngineError, match="model 'gpt-9' is not served here; served are small, smollm2"):
        await answer(engine, other)


async def test_engine_arguments_are_vllms_own() -> None:
    for arguments, told in [
        (["--no-such-flag"], "unrecognized arguments: --no-such-flag"),
        (["--max-model-len", "many"], "argument --max-model-len"),
        (["--data-parallel-size", "2"], "start one worker per replica"),
        (["--model", str(MODEL), "--max-model-len", "9999999"], "max_model_len .9999999. is greater"),
    ]:
        with pytest.raises(EngineError, match=told):
            await VllmEngine((), arguments).start()


VICTIM = """
import asyncio, sys
from common.model import LlmCall, Sampling
from workers.engines.protocol import EngineCall
from workers.engines.vllm_engine import VllmEngine

async def main():
    engine = VllmEngine(("small",), ["--model", sys.argv[1], "--max-model-len", "512"])
    await engine.start()
    call = LlmCall("Once upon a time", None, "small", Sampling(max_tokens=400))
    async for chunk in engine.generate(EngineCall("endless", call, "test/stage")):
        print("running", flush=True)

if __name__ == "__main__":
    asyncio.run(main())
"""


async def test_the_core_dies_with_a_killed_worker(tmp_path: Path) -> None:
    script = tmp_path / "victim.py"
    script.write_text(VICTIM)
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, script, MODEL]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as victim:  # noqa: ASYNC220
        assert victim.stdout is not None
        assert await asyncio.to_thread(victim.stdout.readline) == "running\n"
        descendants = {pid: os.pidfd_open(pid) for pid in children(victim.pid)}
        assert set(cores(victim.pid)) & descendants.keys()
        victim.send_signal(signal.SIGKILL)
        try:
            for pid, watched in descendants.items():
                assert await asyncio.to_thread(ended, watched, 20), f"process {pid} outlived its worker"
        finally:
            for watched in descendants.values():
                os.close(watched)


def ended(descriptor: int, timeout_s: float) -> bool:
    """Whether the process behind a pidfd has ended within the time."""
    return bool(select.select([descriptor], [], [], timeout_s)[0])


async def test_a_dead_core_fails_its_calls_and_the_health_check(engine: VllmEngine) -> None:
    """The last test: it kills the engine that the others used."""
    stream = engine.generate(call("doomed", STORY, max_tokens=1000))
    await anext(stream)
    (core,) = cores(os.getpid())
    os.kill(core, signal.SIGKILL)
    with pytest.raises(EngineError, match="vLLM failed") as caught:
        async for _ in stream:
            pass
    assert caught.value.retryable
    with pytest.raises(EngineError, match="vLLM failed"):
        await engine.health()
