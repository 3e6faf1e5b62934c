"""The no-op engine: the whole answer at once, nothing held."""

from common.model import LlmCall, Sampling, Usage
from workers.engines.noop import NoopEngine
from workers.engines.protocol import Chunk, Engine, EngineCall, EngineLoad


async def test_the_noop_engine_answers_at_once() -> None:
    engine: Engine = NoopEngine(("default",))
    info = await engine.start()
    asked = EngineCall("a", LlmCall("p" * 2000, None, None, Sampling()), "flow/stage")
    chunks = [chunk async for chunk in engine.generate(asked)]
    assert chunks == [Chunk("ok", "stop", Usage(500, 1, 0))]
    assert (engine.load(), info.models) == (EngineLoad(0, 0, 0), ("default",))
    await engine.health()
    await engine.abort("a")
    await engine.close()
