"""Bookkeeping of the calls inside a real engine: what was submitted, what of it is prefilled, what KV it holds.

An engine tells only what it did in an iteration; what it was given and has not begun is known here. No engine library,
no Redis, no waiting: plain numbers in, `EngineLoad` out.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from common.enginefit import Iteration
from workers.engines.protocol import EngineLoad, Progress


@dataclass(slots=True)
class _Call:
    """One call. `to_prefill`: prompt tokens still counted as unprefilled, 0 once its first output came."""

    prompt_tokens: int
    to_prefill: int
    generated: int = 0


class InFlight:
    """Calls between submission and end. `kv_room` (tokens) turns the engine's KV share into tokens; 0 until known.

    Iterations are timed from report to report, the first of a busy period from its first call: `now` tells s. `load`
    may be called from any thread, all else from one.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self.kv_room = 0
        self._now = now
        self._last_s = 0.0
        self._listener: Callable[[Iteration], None] | None = None
        self._calls: dict[str, _Call] = {}
        self._to_prefill = 0
        """The sum of what is to be prefilled."""
        self._computed = 0
        """Of those, what the engine has computed."""
        self._kv_share = 0.0

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._calls

    def __iter__(self) -> Iterator[str]:
        return iter(self._calls)

    def submit(self, request_id: str, prompt_tokens: int) -> None:
        """A call was given to the engine; again with a better count once its prompt is tokenised."""
        if not self._calls:
            self._last_s = self._now()
        self._drop(request_id)
        self._calls[request_id] = _Call(prompt_tokens, prompt_tokens)
        self._to_prefill += prompt_tokens

    def made(self, request_id: str, generated: int, cached_tokens: int) -> None:
        """So many tokens of it are made: its prompt is computed, but for what the prefix cache had."""
        call = self._calls.get(request_id)
        if call is None:
            return
        call.generated = generated
        if call.to_prefill:
            self._computed = max(0, self._computed - (call.to_prefill - cached_tokens))
            self._drop(request_id)

    def end(self, request_id: str) -> None:
        """It left the engine. Unknown ids are ignored."""
        self._drop(request_id)
        self._calls.pop(request_id, None)

    def iteration(self, prompt_tokens: int, decoding: int, kv_share: float) -> None:
        """The engine ended an iteration that computed `prompt_tokens` and decoded `decoding` sequences."""
        kv_tokens = round(self._kv_share * self.kv_room)
        # Prompts are computed one after the other: what is computed of those not ready is before this chunk.
        context = self._computed + prompt_tokens / 2 if prompt_tokens else 0.0
        self._kv_share = kv_share
        self._computed = self._computed + prompt_tokens if self._to_prefill else 0
        now = self._now()
        seconds, self._last_s = now - self._last_s, now
        if self._listener is not None:
            self._listener(Iteration(prompt_tokens, decoding, kv_tokens, seconds, context))

    def listen(self, listener: Callable[[Iteration], None] | None) -> None:
        """Hand on iterations from now on (None: no more). The first is timed from here: call it as work begins."""
        self._listener = listener
        self._last_s = self._now()

    def load(self) -> EngineLoad:
        """What the engine holds: KV in use (shared prefixes once) and that of the prompts it still has to compute."""
        running = len(self._calls)
        if not running:
            return EngineLoad(running=0, unprefilled_tokens=0, kv_tokens=0)
        unprefilled = max(0, self._to_prefill - self._computed)
        return EngineLoad(running, unprefilled, round(self._kv_share * self.kv_room) + unprefilled)

    def progress(self) -> dict[str, Progress]:
        """How far each call is; what is computed of prompts not ready is taken to be of the first of them."""
        found = {}
        computed = self._computed
        for request_id, call in self._calls.items():
            of_this = min(computed, call.to_prefill)
            computed -= of_this
            found[request_id] = Progress(call.prompt_tokens, call.generated, call.to_prefill - of_this)
        return found

    def _drop(self, request_id: str) -> None:
        """Its prompt is no longer waited for."""
        call = self._calls.get(request_id)
        if call is None:
            return
        self._to_prefill -= call.to_prefill
        call.to_prefill = 0
        if not self._to_prefill:
            self._computed = 0  # what aborted calls had computed is forgotten when nobody is left to prefill
