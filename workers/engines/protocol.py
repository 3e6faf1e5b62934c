"""What every engine offers the runner. No Redis and no scheduling here: an engine turns one call into text."""

from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from common.enginefit import Iteration
from common.errors import AttemptFailed
from common.model import InstanceProfile, LlmCall, Usage


class EngineError(AttemptFailed):
    """The engine could not serve a call."""


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """What a started engine serves: names it answers to, its speed and room, features (`json_schema` ...).

    pace: how many times faster than real time it lives; what is remembered of it is forgotten so much sooner.
    """

    models: tuple[str, ...]
    profile: InstanceProfile
    features: frozenset[str]
    pace: float = 1.0


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


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a call is: tokens of its prompt, those made, and those (of both) still to be prefilled."""

    prompt_tokens: int
    generated_tokens: int
    unprefilled_tokens: int


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

    def progress(self) -> Mapping[str, Progress]:
        """How far each call in it is, by request."""

    def listen(self, heard: Callable[[Iteration], None]) -> None:
        """Tell `heard` of each iteration, once what it prefills no longer counts as unprefilled. In the event loop."""

    async def health(self) -> None:
        """Return when the engine can serve; raise EngineError when it cannot."""

    async def close(self) -> None:
        """Free everything, child processes included."""
