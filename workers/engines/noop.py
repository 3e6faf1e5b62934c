"""An engine that answers at once and holds nothing: for measuring everything around it."""

from collections.abc import AsyncGenerator, Callable, Mapping

from common.enginefit import Iteration
from common.model import InstanceProfile, Usage
from workers.engines.protocol import Chunk, EngineCall, EngineInfo, EngineLoad, Progress
from workers.engines.responders import tokens_in

PROFILE = InstanceProfile(
    "noop",
    prefill_tokens_per_s=1e9,
    weights_s=1e-6,
    overhead_s=0.0,
    kv_s_per_token=0.0,
    kv_tokens=1 << 30,
    context_tokens=1 << 20,
    max_batch=256,
    chunk_tokens=1 << 20,
)
"""Next to nothing, but not 0, so that no estimate divides by it. A chunk takes any prompt."""
_NOTHING = EngineLoad(running=0, unprefilled_tokens=0, kv_tokens=0)


class NoopEngine:
    """Answers `text` to every call."""

    def __init__(self, models: tuple[str, ...], text: str = "ok") -> None:
        self._models = models
        self._text = text
        self._tokens = tokens_in(text)

    async def start(self) -> EngineInfo:
        return EngineInfo(self._models, PROFILE, frozenset({"chat"}))

    async def generate(self, call: EngineCall) -> AsyncGenerator[Chunk, None]:
        yield Chunk(self._text, "stop", Usage(tokens_in(call.call.text()), self._tokens))

    async def abort(self, request_id: str) -> None:
        """Nothing runs: an answer is whole as soon as it is asked for."""

    def load(self) -> EngineLoad:
        return _NOTHING

    def progress(self) -> Mapping[str, Progress]:
        return {}

    def listen(self, heard: Callable[[Iteration], None]) -> None:
        """It has no iterations."""

    async def health(self) -> None:
        """Always well."""

    async def close(self) -> None:
        """Holds nothing."""
