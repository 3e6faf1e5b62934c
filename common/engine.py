"""One engine in memory: the engine model with its records, for whoever lives through it call by call.

The simulated engine gives it real time. Names of calls and prompt blocks are the user's; inside they are numbers.
"""

import math
from collections.abc import Hashable
from dataclasses import dataclass
from typing import NamedTuple

from common import enginebatch, enginemodel
from common.enginefit import Iteration
from common.enginerecords import NONE
from common.model import InstanceProfile

ADMIT_SHARE = 0.98
"""A sequence is admitted while its tokens and those held stay within this share of the KV room."""
BLOCKS_AT_HAND = 10_000


class Block(NamedTuple):
    """A piece of a prompt. `key` names the whole prompt up to `end` (tokens from its start): equal keys, equal ends."""

    key: Hashable
    end: int


Prefix = tuple[Block, ...]
"""The leading blocks of a prompt, in order."""


@dataclass(slots=True, eq=False)
class Sequence:
    """One call inside the engine. All counts in tokens; smaller `priority` first, equal ones in order of arrival.

    The fields from `cached_tokens` on are the engine's own. `cached_tokens` is set at the first admission; `generated`
    is current only while the sequence does not decode (`EngineModel.generated` always is).
    """

    id: str
    prompt_tokens: int
    output_tokens: int
    prefix: Prefix = ()
    priority: int = 0
    cached_tokens: int = 0
    generated: int = 0
    preemptions: int = 0
    arrived: int = 0
    admitted: int = 0
    position: int = 0
    last_iteration: int = 0
    leaf: int = NONE
    before: int = NONE
    after: int = NONE


@dataclass(slots=True, eq=False)
class _Block:
    """A block and its state in the cache."""

    key: Hashable
    end: int
    tokens: int
    parent: int
    held: int = 0
    idle: bool = False
    older: int = NONE
    newer: int = NONE


class EngineModel:
    """A batch of sequences, and the time its iterations take. `planned_s` is that of the stretch begun, else 0.

    A sequence added during a stretch starts with the next one at the earliest. One aborted frees its room at once;
    `cut` the stretch first, as all that is left of it is timed as if the sequence still ran. Tokens count as prefilled,
    and a prompt's KV as held, from the beginning of the stretch that computes them; tokens made count from its end.
    """

    def __init__(self, profile: InstanceProfile, *, prefix_cache: bool = True) -> None:
        self.profile = profile
        self.prefill_tokens_per_s = profile.prefill_tokens_per_s
        self.weights_s = profile.weights_s
        self.overhead_s = profile.overhead_s
        self.kv_s_per_token = profile.kv_s_per_token
        self.kv_room = profile.kv_tokens
        self.admit_tokens = int(ADMIT_SHARE * profile.kv_tokens)
        self.max_sequences = profile.max_batch
        self.chunk = profile.chunk_tokens
        self.running = self.kv_tokens = self.decoding_kv = self.unprefilled_tokens = self.prefilled_tokens = 0
        self.waiting_tokens = self.idle_tokens = self.iteration = self.arrivals = self.admissions = 0
        self.prefilling = self.first_waiting = self.last_waiting = self.oldest = self.newest = NONE
        self.joining_ids, self.joining_count = [NONE] * profile.max_batch, 0
        self.decoding_ids, self.decoding_count = [NONE] * profile.max_batch, 0
        self.iterations = 0
        self.planned_s = self.linear_s = self.square_s = 0.0
        self._caching = prefix_cache
        self._finished = [NONE] * profile.max_batch
        self._calls: dict[int, Sequence] = {}
        self._numbers: dict[str, int] = {}
        self._blocks: dict[int, _Block] = {}
        self._block_numbers: dict[Hashable, int] = {}
        self._named = 0
        self._prefilled_before = 0
        self._going_on: tuple[int, int] = (NONE, 0)

    @property
    def waiting(self) -> list[Sequence]:
        """The sequences not admitted, in their order."""
        found = []
        q = self.first_waiting
        while q != NONE:
            found.append(self._calls[q])
            q = self._calls[q].after
        return found

    @property
    def decoding(self) -> list[Sequence]:
        """The sequences that decode, in order of admission."""
        return [self._calls[q] for q in self.decoding_ids[: self.decoding_count]]

    def generated(self, sequence: Sequence) -> int:
        """Tokens the sequence has made so far."""
        return enginebatch.generated(self, sequence)

    def add(self, sequence: Sequence) -> None:
        """Let a sequence wait. Raises ValueError for one that could never run."""
        prompt, output, room = sequence.prompt_tokens, sequence.output_tokens, self.kv_room
        if prompt < 1 or output < 1:
            raise ValueError(f"sequence {sequence.id!r} needs prompt and output tokens, it has {prompt} and {output}")
        if prompt + output > room:
            raise ValueError(f"sequence {sequence.id!r} needs {prompt + output} KV tokens; the engine has {room}")
        if sequence.id in self._numbers:
            raise ValueError(f"sequence {sequence.id!r} is already in the engine")
        if not self._caching:
            sequence.prefix = ()
        elif sequence.prefix and sequence.prefix[-1].end > prompt:
            raise ValueError(f"sequence {sequence.id!r} has a prefix longer than its prompt of {prompt} tokens")
        sequence.leaf = self._leaf(sequence.prefix)
        self._named += 1
        self._numbers[sequence.id] = self._named
        self._calls[self._named] = sequence
        enginebatch.add(self, self._calls, self._named)

    def abort(self, sequence_id: str) -> bool:
        """Forget a sequence and free its room at once; False for an unknown id."""
        q = self._numbers.pop(sequence_id, None)
        if q is None:
            return False
        enginebatch.abort(self, self._calls, self._blocks, self._blocks, q)
        del self._calls[q]
        return True

    def begin(self, max_s: float = math.inf) -> float:
        """Plan the next stretch, up to the first iteration that ends at `max_s` or later.

        Returns its duration in s; inf when idle. Raises ValueError when one has begun already.
        """
        if self.iterations:
            raise ValueError("a stretch has begun; end it first")
        self._prefilled_before = self.prefilled_tokens
        self._going_on = (
            (self.prefilling, self._calls[self.prefilling].position) if self.prefilling != NONE else (NONE, 0)
        )
        return enginemodel.begin(self, self._calls, self._blocks, self._blocks, max_s)

    def begun(self) -> Iteration:
        """The mean iteration of the stretch just begun, with its time."""
        count = self.iterations
        first = self.prefilled_tokens - self._prefilled_before
        return Iteration(
            prompt_tokens=first,  # those that follow in the stretch prefill as much
            decoding=self.decoding_count,
            kv_tokens=self.decoding_kv + self.decoding_count * (count + 1) / 2,
            seconds=self.planned_s / count,
            context_tokens=(self._first_context() / first + (count - 1) * first / 2) if first else 0.0,
            count=count,
        )

    def _first_context(self) -> float:
        """Over the tokens that the first iteration prefills, the sum of those before the middle of their chunk."""
        total = 0.0
        for q in (*self.joining_ids[: self.joining_count], *([self.prefilling] if self.prefilling != NONE else ())):
            c = self._calls[q]
            start = self._going_on[1] if q == self._going_on[0] else c.cached_tokens
            total += (c.position - start) * (c.position + start) / 2
        return total

    def unprefilled(self, sequence: Sequence) -> int:
        """Tokens that a sequence still has to prefill; what the cache saves is known at its admission."""
        if sequence.last_iteration:
            return 0
        return sequence.prompt_tokens + sequence.generated - sequence.position

    def cut(self, elapsed_s: float) -> float:
        """Shorten the stretch begun to the iterations (at least one) that start before `elapsed_s`. Returns its s."""
        return enginemodel.cut(self, elapsed_s)

    def end(self) -> list[Sequence]:
        """Apply the stretch begun. Returns the sequences now complete. Raises ValueError when none has begun."""
        if not self.iterations:
            raise ValueError("no stretch has begun")
        count = enginemodel.end(self, self._calls, self._blocks, self._blocks, self._finished)
        done = [self._calls.pop(q) for q in self._finished[:count]]
        for sequence in done:
            del self._numbers[sequence.id]
        return done

    def step(self) -> tuple[float, list[Sequence]]:
        """Run one iteration. Returns its duration in s and the sequences now complete. Raises ValueError when idle."""
        return self.begin(0.0), self.end()

    def _leaf(self, prefix: Prefix) -> int:
        """The number of a prompt's last block, after all its blocks have one."""
        if len(self._block_numbers) > BLOCKS_AT_HAND:
            self._forget_blocks()
        parent, start = NONE, 0
        for key, end in prefix:
            if key not in self._block_numbers:
                self._named += 1
                self._block_numbers[key] = self._named
                self._blocks[self._named] = _Block(key, end, end - start, parent)
            parent, start = self._block_numbers[key], end
        return parent

    def _forget_blocks(self) -> None:
        """Forget the blocks that are not in the cache and that nobody waits to hold."""
        wanted = set()
        for sequence in self._calls.values():
            b = sequence.leaf
            while b != NONE and b not in wanted:
                wanted.add(b)
                b = self._blocks[b].parent
        kept = {b: block for b, block in self._blocks.items() if block.held or block.idle or b in wanted}
        # Those before a kept one are kept too: what is here has all before it here.
        self._blocks = kept
        self._block_numbers = {block.key: b for b, block in kept.items()}
