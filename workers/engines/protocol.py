"""What every engine offers the runner. No Redis and no scheduling here: an engine turns one call into text."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Protocol

from common.errors import AttemptFailed
from common.model import InstanceProfile, LlmCall, Usage


class EngineError(AttemptFailed):
    """The engine could not serve a call."""


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """What a started engine serves: names it answers to, its speed and room, features (`json_schema` ...)."""

    models: tuple[str, ...]
    profile: InstanceProfile
    features: frozenset[str]


@dataclass(frozen=True, slots=True)
class EngineCall:
    """One request. `stage` ("workflow/stage") lets a simulated engine answer in kind; small priorities go first."""

    request_id: str
    call: LlmCall
    stage: str
    priority: int = 0


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of a stream. The last has a `finish_reason` ("stop", "length", "abort") and `usage` (totals)."""

    text: str
    finish_reason: str | None = None
    usage: Usage | None = None


@dataclass(frozen=True, slots=True)
class EngineLoad:
    """What the engine holds now: running sequences, prompt tokens not yet prefilled, KV tokens held."""

    running: int
    unprefilled_tokens: int
    kv_tokens: int


class Engine(Protocol):
    """An engine. `generate` may be cut short by closing the iterator or by `abort`; both free its room."""

    async def start(self) -> EngineInfo:
        """Load the model. Raises EngineError with a plain sentence."""

    def generate(self, call: EngineCall) -> AsyncGenerator[Chunk, None]:
        """Stream the answer; the last chunk carries the usage. Raises EngineError."""

    async def abort(self, request_id: str) -> None:
        """Stop a call: its stream ends with finish_reason "abort". Unknown ids are ignored."""

    def load(self) -> EngineLoad:
        """What it holds now; cheap, called before each claim."""

    async def health(self) -> None:
        """Return when the engine can serve; raise EngineError when it cannot."""

    async def close(self) -> None:
        """Free everything, child processes included."""
