"""A simulated engine on a clock of the test's own, and who answers it: shared by its tests. Not a test itself."""

from typing import Any, Protocol

from common.model import InstanceProfile, LlmCall, Sampling
from common.profiles import A100
from workers.engines.protocol import Chunk, Engine, EngineCall
from workers.engines.responders import Answer
from workers.engines.simulated import SimulatedEngine

TEXT = "select name from driver order by points desc"


class Clock(Protocol):
    """What the engine lives by."""

    def now(self) -> float: ...

    async def sleep(self, seconds: float) -> None: ...


class Script:
    """A responder: every request has its own prompt and output tokens, by id."""

    def __init__(self, lengths: dict[str, tuple[int, int]], text: str = TEXT) -> None:
        self.lengths = lengths
        self.text = text

    def respond(self, call: EngineCall) -> Answer:
        prompt_tokens, output_tokens = self.lengths[call.request_id]
        return Answer(self.text, output_tokens, prompt_tokens)


def call(name: str, prompt: str = "x", **sampling: Any) -> EngineCall:
    values: dict[str, Any] = {"max_tokens": 100_000, **sampling}
    return EngineCall(name, LlmCall(prompt, None, None, Sampling(**values)), "flow/stage")


def engine_on(
    clock: Clock,
    lengths: dict[str, tuple[int, int]],
    *,
    time_scale: float = 1.0,
    profile: InstanceProfile = A100,
    text: str = TEXT,
    prefix_cache: bool = True,
) -> SimulatedEngine:
    return SimulatedEngine(
        profile,
        responder=Script(lengths, text),
        models=("llama",),
        time_scale=time_scale,
        prefix_cache=prefix_cache,
        now=clock.now,
        sleep=clock.sleep,
    )


async def collect(engine: Engine, asked: EngineCall) -> list[Chunk]:
    return [chunk async for chunk in engine.generate(asked)]
