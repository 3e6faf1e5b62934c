"""What a worker knows of its engine: how fast it is, what runs in it, what its prefix cache should hold.

Made of what the engine tells of its iterations and the runner of its requests. No Redis here, and no decisions.
"""

from collections.abc import Callable

from common import clock
from common.enginefit import EngineFit, Iteration, TokenTime
from common.model import Claim, InstanceLoad, LlmCall, RunningCall, Usage
from workers.engines.protocol import Engine, EngineInfo, Progress
from workers.idle import IdlePrefill
from workers.shadow import PrefixShadow


class Observer:
    """Listens to one engine for as long as it lives. `on_iteration` is called after each has been heard of."""

    def __init__(self, engine: Engine, info: EngineInfo) -> None:
        self.profile = info.profile
        self.idle = IdlePrefill()
        self.requests = 0
        self.advances = 0
        """Signs of progress so far: iterations and pieces of answers."""
        self.on_iteration: Callable[[], None] = _nothing
        self._engine = engine
        self._fit = EngineFit(info.profile)
        self._token_time = TokenTime(info.pace)
        self._shadow = PrefixShadow(info.profile.kv_tokens) if "prefix_cache" in info.features else None
        self._claims: dict[str, Claim] = {}
        engine.listen(self._heard)

    @property
    def busy(self) -> bool:
        """Whether anything runs."""
        return bool(self._claims)

    def started(self, claim: Claim) -> None:
        """A request goes to the engine."""
        self.requests += 1
        waited_s = (claim.claimed_at - claim.enqueued_at) / 1000
        self.idle.starts(claim.prompt_tokens, waited_s, clock.monotonic_s())
        self._claims[claim.request] = claim
        if self._shadow is not None:
            characters = claim.call.characters()
            self._shadow.begin(claim.request, claim.prefix, claim.prompt_tokens, characters)

    def ended(self, claim: Claim, usage: Usage | None) -> None:
        """It has left the engine; None: without an answer."""
        self._claims.pop(claim.request, None)
        if self._shadow is not None:
            self._shadow.end(claim.request, None if usage is None else usage.cached_tokens)
        if not self._claims:
            self.idle.is_empty(clock.monotonic_s())

    def advanced(self) -> None:
        """A piece of an answer has come out of the engine."""
        self.advances += 1

    def found_nothing(self, kv_room: int) -> None:
        """A look at the queue with so much KV to spare gave nothing."""
        self.idle.found_nothing(kv_room, clock.monotonic_s())

    @property
    def idle_prefill(self) -> float:
        """See `InstanceLoad`."""
        return self.idle.share(clock.monotonic_s())

    def load(self) -> InstanceLoad:
        """All that is known, as it is published."""
        held, speeds, profile = self._engine.load(), self._fit.speeds, self.profile
        if self._shadow is not None:
            self._shadow.make_room(held.kv_tokens)
        return InstanceLoad(
            *speeds,
            kv_room=profile.kv_tokens,
            chunk_tokens=profile.chunk_tokens,
            max_batch=profile.max_batch,
            kv_tokens=held.kv_tokens,
            unprefilled_tokens=held.unprefilled_tokens,
            token_s=self._token_time.seconds,
            running=self._running(),
            iterations=self._fit.iterations,
            idle_prefill=self.idle_prefill,
            cache_version=self._shadow.version if self._shadow is not None else 0,
        )

    def cache(self) -> bytes:
        """The hashes of the blocks in the prefix cache, see `common.prefix`."""
        return self._shadow.blocks() if self._shadow is not None else b""

    def _running(self) -> tuple[RunningCall, ...]:
        progress = self._engine.progress()
        return tuple(_running(claim, progress.get(name)) for name, claim in self._claims.items())

    def _heard(self, iteration: Iteration) -> None:
        self.advances += 1
        self._fit.observe(iteration)
        self._token_time.observe(iteration)
        self.idle.iterates(iteration.prompt_tokens > 0, clock.monotonic_s())
        self.on_iteration()


def _running(claim: Claim, progress: Progress | None) -> RunningCall:
    """None: the engine has not taken it yet, or it is just leaving."""
    at = progress or Progress(claim.prompt_tokens, 0, claim.prompt_tokens)
    expected = claim.expected_tokens or (claim.call.sampling.max_tokens if isinstance(claim.call, LlmCall) else 0)
    return RunningCall(
        request=claim.request,
        prompt_tokens=at.prompt_tokens,
        generated_tokens=at.generated_tokens,
        unprefilled_tokens=at.unprefilled_tokens,
        expected_tokens=expected,
        key_ms=claim.key_ms,
        slo_ms=claim.slo_ms,
    )


def _nothing() -> None: ...
