"""Bookkeeping of the calls inside a real engine: what was submitted, what of it is prefilled, what KV it holds.

An engine tells only what it did in an iteration; what it was given and has not begun is known here. No engine library,
no Redis, no waiting: plain numbers in, `EngineLoad` out.
"""

from collections.abc import Callable, Iterator

from workers.engines.fit import Iteration
from workers.engines.protocol import EngineLoad


class InFlight:
    """Calls between submission and end. `kv_room` (tokens) turns the engine's KV share into tokens; 0 until known.

    `load` may be called from any thread, all else from one.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self.kv_room = 0
        self._now = now
        self._calls: dict[str, int] = {}
        """Prompt tokens still counted as unprefilled, by request: 0 once its first output came."""
        self._to_prefill = 0
        """Their sum."""
        self._computed = 0
        """Of those, what the engine has computed."""
        self._kv_share = 0.0
        self._last_s = 0.0
        self._listener: Callable[[Iteration], None] | None = None

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._calls

    def __iter__(self) -> Iterator[str]:
        return iter(self._calls)

    def submit(self, request_id: str, prompt_tokens: int) -> None:
        """A call was given to the engine; again with a better count once its prompt is tokenised."""
        self._to_prefill += prompt_tokens - self._calls.get(request_id, 0)
        self._calls[request_id] = prompt_tokens

    def prefilled(self, request_id: str, cached_tokens: int) -> None:
        """An output of it came, so its prompt is computed, but for what the prefix cache had."""
        prompt_tokens = self._calls.get(request_id, 0)
        if prompt_tokens:
            self._calls[request_id] = 0
            self._computed = max(0, self._computed - (prompt_tokens - cached_tokens))
            self._drop(prompt_tokens)

    def end(self, request_id: str) -> None:
        """It left the engine. Unknown ids are ignored."""
        self._drop(self._calls.pop(request_id, 0))

    def iteration(self, prompt_tokens: int, decoding: int, kv_share: float) -> None:
        """The engine ended an iteration that computed `prompt_tokens` and decoded `decoding` sequences."""
        now = self._now()
        if self._listener is not None:
            kv_tokens = round(self._kv_share * self.kv_room)
            self._listener(Iteration(prompt_tokens, decoding, kv_tokens, now - self._last_s))
        self._last_s = now
        self._kv_share = kv_share
        self._computed = self._computed + prompt_tokens if self._to_prefill else 0

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

    def _drop(self, prompt_tokens: int) -> None:
        self._to_prefill -= prompt_tokens
        if not self._to_prefill:
            self._computed = 0  # what aborted calls had computed is forgotten when nobody is left to prefill
