"""An engine without a GPU: the engine model under real time, with text from a responder.

Iterations end at absolute times (start of the busy period plus the model's durations), so that lateness never adds up:
it is caught up with. What an iteration takes is `common.enginemodel`'s to say; queues and leases are unknown here.
"""

import asyncio
import math
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace

from common import clock
from common.engine import Block, EngineModel, Prefix, Sequence
from common.enginefit import Iteration
from common.model import InstanceProfile, Sampling, Usage
from common.prefix import BLOCK_CHARS, HASH_BYTES, chain
from workers.engines.protocol import Chunk, EngineCall, EngineError, EngineInfo, EngineLoad, Progress
from workers.engines.responders import CHARS_PER_TOKEN, Answer, Responder, tokens_in

STREAM_INTERVAL_S = 0.02
"""Real time after which text is handed on: shorter iterations share a chunk."""
BLOCK_TOKENS = BLOCK_CHARS // CHARS_PER_TOKEN
"""Size of a block of the prefix cache."""
FEATURES = frozenset({"chat", "json_schema", "prefix_cache", "priority"})


@dataclass(slots=True, eq=False)
class _Stream:
    """One call on its way: what it will say, how many tokens of it are made, and how it ended."""

    sequence: Sequence
    text: str
    ending: str
    made: int = 0
    finish_reason: str | None = None
    error: str | None = None
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def advance(self, made: int, finish_reason: str | None = None) -> None:
        if made > self.made or finish_reason:
            self.made = made
            self.finish_reason = finish_reason
            self.changed.set()

    def fail(self, error: str) -> None:
        self.error = error
        self.changed.set()

    def text_from(self, start: int) -> str:
        """The text made so far, from that character on: all tokens are taken to be equally long."""
        return self.text[start : len(self.text) * self.made // self.sequence.output_tokens]

    def usage(self) -> Usage:
        return Usage(self.sequence.prompt_tokens, self.made, self.sequence.cached_tokens)


class SimulatedEngine:
    """Serves `models` as `profile` would, `time_scale` times as fast. `responder` writes the answers.

    `now` (s) and `sleep` are the clock it lives by.
    """

    def __init__(
        self,
        profile: InstanceProfile,
        *,
        responder: Responder,
        models: tuple[str, ...],
        time_scale: float = 1.0,
        prefix_cache: bool = True,
        now: Callable[[], float] = clock.monotonic_s,
        sleep: Callable[[float], Awaitable[None]] = clock.sleep,
    ) -> None:
        if not 0 < time_scale < math.inf:
            raise EngineError(f"time_scale has to be a number above 0, not {time_scale}", retryable=False)
        self._profile = profile
        self._responder = responder
        self._models = models
        self._features = FEATURES if prefix_cache else FEATURES - {"prefix_cache"}
        self._time_scale = time_scale
        self._now = now
        self._sleep = sleep
        self._model = EngineModel(profile, prefix_cache=prefix_cache)
        self._streams: dict[str, _Stream] = {}
        self._begun_at = 0.0
        self._busy = asyncio.Event()
        self._nap: asyncio.Future[None] | None = None
        self._loop: asyncio.Task[None] | None = None
        self._heard: Callable[[Iteration], None] | None = None
        self._failure = "the simulated engine is not running"

    async def start(self) -> EngineInfo:
        """Begin to serve. The profile told is the one seen from outside: `time_scale` times as fast."""
        self._loop = asyncio.create_task(self._run())
        return EngineInfo(self._models, _hastened(self._profile, self._time_scale), self._features, self._time_scale)

    async def generate(self, call: EngineCall) -> AsyncGenerator[Chunk, None]:
        """Stream the answer: a chunk after each stretch of iterations, or less often to a slow reader."""
        stream = self._open(call)
        sent = 0
        try:
            while True:
                await stream.changed.wait()
                stream.changed.clear()
                if stream.error is not None:
                    raise EngineError(stream.error)
                text = stream.text_from(sent)
                sent += len(text)
                if stream.finish_reason is not None:
                    yield Chunk(text, stream.finish_reason, stream.usage())
                    return
                yield Chunk(text)
        finally:
            self._drop(stream)

    async def abort(self, request_id: str) -> None:
        """End a stream with finish_reason "abort"; its room is free at once."""
        stream = self._streams.get(request_id)
        if stream is not None:
            made = self._model.generated(stream.sequence)
            self._drop(stream)
            stream.advance(made, "abort")

    def load(self) -> EngineLoad:
        """All that was taken, what the model lets wait included."""
        model = self._model
        return EngineLoad(len(self._streams), model.unprefilled_tokens, model.kv_tokens + model.waiting_tokens)

    def progress(self) -> Mapping[str, Progress]:
        """Where the model has each sequence."""
        return {name: self._progress(stream.sequence) for name, stream in self._streams.items()}

    def _progress(self, sequence: Sequence) -> Progress:
        made, unprefilled = self._model.generated(sequence), self._model.unprefilled(sequence)
        return Progress(sequence.prompt_tokens, made, unprefilled)

    def listen(self, heard: Callable[[Iteration], None]) -> None:
        """Stretches are told as they begin, with the time the model gives them."""
        self._heard = heard

    async def health(self) -> None:
        """Raises EngineError unless it is between `start` and `close`."""
        if self._loop is None or self._loop.done():
            raise EngineError(self._failure)

    async def close(self) -> None:
        """Stop; streams end as aborted."""
        if self._loop is not None:
            self._loop.cancel()
            await asyncio.gather(self._loop, return_exceptions=True)
        for request_id in list(self._streams):
            await self.abort(request_id)

    def _open(self, call: EngineCall) -> _Stream:
        if self._loop is None or self._loop.done():
            raise EngineError(self._failure)
        if call.request_id in self._streams:
            raise EngineError(f"request {call.request_id} is already running")
        if call.call.model is not None and call.call.model not in self._models:
            raise EngineError(f"model {call.call.model!r} is not served here; served are {', '.join(self._models)}")
        stream = self._prepare(call, self._responder.respond(call))
        self._stir()
        self._model.add(stream.sequence)
        self._streams[call.request_id] = stream
        return stream

    def _prepare(self, call: EngineCall, answer: Answer) -> _Stream:
        prompt = call.call.text()
        prompt_tokens = answer.prompt_tokens or tokens_in(prompt)
        room = min(self._profile.context_tokens, self._profile.kv_tokens) - prompt_tokens
        if room < 1:
            raise EngineError(
                f"the prompt has {prompt_tokens} tokens; this engine takes {prompt_tokens + room - 1} at most",
                retryable=False,
                prompt_tokens=prompt_tokens,
            )
        text, output_tokens, ending = _cut(answer, call.call.sampling, room)
        prefix = _blocks(prompt, prompt_tokens)
        return _Stream(Sequence(call.request_id, prompt_tokens, output_tokens, prefix, call.priority), text, ending)

    def _drop(self, stream: _Stream) -> None:
        request_id = stream.sequence.id
        if self._streams.get(request_id) is stream:
            self._stir()
            self._model.abort(request_id)
            del self._streams[request_id]

    def _stir(self) -> None:
        """Whoever comes or goes does so when the iteration now running ends: end the stretch there."""
        self._model.cut((self._now() - self._begun_at) * self._time_scale)
        self._busy.set()
        if self._nap is not None:
            self._nap.cancel()

    async def _run(self) -> None:
        try:
            while True:
                await self._busy.wait()
                self._begun_at = self._now()
                await self._serve()
                self._busy.clear()
        except Exception as error:
            self._failure = f"the simulated engine failed: {type(error).__name__}: {error}"
            for stream in self._streams.values():
                stream.fail(self._failure)

    async def _serve(self) -> None:
        """Run stretch after stretch until nothing is left to do."""
        while self._model.begin(STREAM_INTERVAL_S * self._time_scale) < math.inf:
            self._tell()
            await self._pass()
            self._begun_at += self._model.planned_s / self._time_scale
            for sequence in self._model.end():
                stream = self._streams.pop(sequence.id)
                stream.advance(sequence.output_tokens, stream.ending)
            for stream in self._streams.values():
                stream.advance(self._model.generated(stream.sequence))

    def _tell(self) -> None:
        if self._heard is not None:
            begun = self._model.begun()
            self._heard(replace(begun, seconds=begun.seconds / self._time_scale))

    async def _pass(self) -> None:
        """Wait for the end of the stretch, which may come nearer meanwhile."""
        late = True
        while (left := self._begun_at + self._model.planned_s / self._time_scale - self._now()) > 0:
            late = False
            self._nap = asyncio.ensure_future(self._sleep(left))
            try:
                await asyncio.wait((self._nap,))
                if not self._nap.cancelled():
                    self._nap.result()
            finally:
                self._nap.cancel()
                self._nap = None
        if late:
            await self._sleep(0)  # the readers' turn


def _hastened(profile: InstanceProfile, factor: float) -> InstanceProfile:
    return replace(
        profile,
        prefill_tokens_per_s=profile.prefill_tokens_per_s * factor,
        weights_s=profile.weights_s / factor,
        overhead_s=profile.overhead_s / factor,
        kv_s_per_token=profile.kv_s_per_token / factor,
    )


def _cut(answer: Answer, sampling: Sampling, room: int) -> tuple[str, int, str]:
    """The text, tokens and finish reason that remain of an answer under stop, max_tokens and the room for output."""
    text, tokens = answer.text, max(1, answer.output_tokens)
    ends = [at for stop in sampling.stop if stop and (at := text.find(stop)) >= 0]
    if ends:
        tokens = max(1, math.ceil(tokens * min(ends) / len(text)))
        text = text[: min(ends)]
    limit = max(1, min(sampling.max_tokens, room))
    if tokens > limit:
        return text[: len(text) * limit // tokens], limit, "length"
    return text, tokens, "stop"


def _blocks(prompt: str, prompt_tokens: int) -> Prefix:
    """The whole blocks of a prompt. A key stands for all text up to the block's end."""
    hashes = chain(prompt)
    blocks = min(len(hashes) // HASH_BYTES, prompt_tokens // BLOCK_TOKENS)
    return tuple(
        Block(hashes[at * HASH_BYTES : (at + 1) * HASH_BYTES], (at + 1) * BLOCK_TOKENS) for at in range(blocks)
    )
