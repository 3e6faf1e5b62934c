"""One iteration model of an LLM engine: continuous batching, chunked prefill, KV room, prefix cache, recompute.

Pure: no clock, no waiting, no chance. The simulated engine adds waiting to it, the simulator a manual clock.

    iteration time = overhead + max(C, W) + min(C, W) / 2 + kappa * (KV tokens of the decoding sequences)
    C = (sum over prefilled chunks of tokens * (1 + context / 53000) + 2 * decoding sequences) / prefill rate
    W = time to read the weights; context = tokens before the middle of the chunk

Iterations that differ only in how far they are form a stretch; k of them take linear * k + square * k^2. A driver
calls `begin` (what runs now, and how long), waits, and calls `end`; `cut` shortens the stretch when somebody comes or
goes. So the cost is per event, not per token: in between every decoding sequence makes one token per iteration.
"""

import math

from common.enginebatch import ATTENTION_TOKENS, Batch, Sequence
from common.model import InstanceProfile
from common.prefixcache import Block, Prefix

__all__ = ["Block", "EngineModel", "Prefix", "Sequence"]

DECODE_WORK = 2
"""Work of one decoding sequence per iteration, in prefilled tokens."""


class EngineModel(Batch):
    """A batch of sequences, and the time its iterations take. `planned_s` is that of the stretch begun, else 0.

    A sequence added during a stretch starts with the next one at the earliest. One aborted frees its room at once;
    `cut` the stretch first, as all that is left of it is timed as if the sequence still ran. Tokens count as prefilled,
    and a prompt's KV as held, from the beginning of the stretch that computes them; tokens made count from its end.
    """

    def __init__(self, profile: InstanceProfile, *, prefix_cache: bool = True) -> None:
        super().__init__(
            kv_room=profile.kv_tokens,
            max_sequences=profile.max_batch,
            chunk=profile.chunk_tokens,
            prefix_cache=prefix_cache,
        )
        self.profile = profile
        self.planned_s = 0.0
        self._iterations = 0
        self._linear_s = 0.0
        self._square_s = 0.0
        self._chunk_square_s = profile.chunk_tokens**2 / (2 * ATTENTION_TOKENS) / profile.prefill_tokens_per_s

    def begin(self, max_s: float = math.inf) -> float:
        """Plan the next stretch, up to the first iteration that ends at `max_s` or later.

        Returns its duration in s; inf when idle. Raises ValueError when one has begun already.
        """
        if self._iterations:
            raise ValueError("a stretch has begun; end it first")
        if self.kv_tokens + len(self.decoding) > self.kv_room:
            self.preempt()
        work, iterations = self.prefill() if self.prefilling or self.waiting else (0.0, 1)
        decoding = len(self.decoding)
        if not work and not decoding:
            return math.inf
        if decoding and (iterations > 1 or not work):
            to_end = self.decoding[0][0] - self.iteration
            to_overflow = (self.kv_room - self.kv_tokens) // decoding
            iterations = min(iterations if work else to_end, to_end, to_overflow)
        self._price(work, decoding, iterations)
        return self.planned_s if self.planned_s <= max_s else self.cut(max_s)

    def _price(self, work: float, decoding: int, iterations: int) -> None:
        """Set the stretch: how many iterations, and their time. `work` is what the first one prefills."""
        profile = self.profile
        compute = (work + DECODE_WORK * decoding) / profile.prefill_tokens_per_s
        square = 0.0
        if compute >= profile.weights_s:
            first = profile.overhead_s + compute + 0.5 * profile.weights_s
            if work and iterations > 1:
                square = self._chunk_square_s
        else:
            first = profile.overhead_s + profile.weights_s + 0.5 * compute
            if work:
                iterations = 1  # later chunks have more before them: compute may outgrow the weights, at another price
        reads = 0.5 * profile.kv_s_per_token * decoding
        self._iterations = iterations
        self._linear_s = first - square + profile.kv_s_per_token * self.decoding_kv + reads
        self._square_s = square + reads
        self.planned_s = iterations * (self._linear_s + iterations * self._square_s)

    def cut(self, elapsed_s: float) -> float:
        """Shorten the stretch begun to the iterations (at least one) that start before `elapsed_s`. Returns its s."""
        iterations, linear, square = self._iterations, self._linear_s, self._square_s
        if iterations > 1 and elapsed_s < self.planned_s:
            elapsed = max(elapsed_s, 0.0)
            # The root of square * k^2 + linear * k = elapsed, in the form that holds for square = 0 too.
            root = 2 * elapsed / (linear + math.sqrt(linear * linear + 4 * square * elapsed))
            self._iterations = iterations = min(iterations, max(1, math.ceil(root)))
            self.planned_s = iterations * (linear + iterations * square)
        return self.planned_s

    def end(self) -> list[Sequence]:
        """Apply the stretch begun. Returns the sequences now complete. Raises ValueError when none has begun."""
        iterations = self._iterations
        if not iterations:
            raise ValueError("no stretch has begun")
        self._iterations = 0
        self.planned_s = 0.0
        if iterations > 1 and self.prefilling:
            self.progress(self.prefilling, (iterations - 1) * self.profile.chunk_tokens)
        return self.decode(iterations)

    def step(self) -> tuple[float, list[Sequence]]:
        """Run one iteration. Returns its duration in s and the sequences now complete. Raises ValueError when idle."""
        return self.begin(0.0), self.end()
