"""Who is in an engine: sequences that wait, prefill and decode, and the KV room they hold. Knows no durations.

KV of a prompt is reserved at admission. A token made gets its KV in the iteration after it; there the room may run out,
and the sequences admitted last are taken back, to be computed again later. `common.enginemodel` times the iterations.
"""

from collections import deque
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from common.prefixcache import Prefix, PrefixCache

ADMIT_SHARE = 0.98
"""A sequence is admitted while its tokens and those held stay within this share of the KV room."""
ATTENTION_TOKENS = 53_000
"""Tokens before a prefilled token at which attention doubles its work."""


@dataclass(slots=True, eq=False)
class Sequence:
    """One call inside the engine. All counts in tokens; smaller `priority` first, equal ones in order of arrival.

    The fields from `cached_tokens` on are the batch's own. `cached_tokens` is set at the first admission; `generated`
    is current only while the sequence does not decode (`Batch.generated` always is).
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


class Batch:
    """Sequences in an engine that holds `kv_room` tokens, runs `max_sequences`, prefills `chunk` tokens per iteration.

    The running ones hold `kv_tokens`, shared blocks counted once: at most one that is partly prefilled (the last
    admitted), those whose prefill the current iterations complete, and those decoding (a heap by the iteration that
    ends each). `unprefilled_tokens` are of running and waiting ones; what the cache saves is known at admission.
    `prefilled_tokens` and `iteration` count from the start of the engine.
    """

    def __init__(self, *, kv_room: int, max_sequences: int, chunk: int, prefix_cache: bool) -> None:
        self.running = 0
        self.kv_tokens = 0
        self.decoding_kv = 0
        self.unprefilled_tokens = 0
        self.prefilled_tokens = 0
        self.waiting_tokens = 0
        self.iteration = 0
        self.waiting: deque[Sequence] = deque()
        self.prefilling: Sequence | None = None
        self.joining: list[Sequence] = []
        self.decoding: list[tuple[int, int, Sequence]] = []
        self.cache = PrefixCache()
        self.kv_room = kv_room
        self._max_sequences = max_sequences
        self._chunk = chunk
        self._caching = prefix_cache
        self._sequences: dict[str, Sequence] = {}
        self._arrivals = 0
        self._admissions = 0
        self._admit_tokens = int(ADMIT_SHARE * kv_room)

    def generated(self, sequence: Sequence) -> int:
        """Tokens the sequence has made so far."""
        if sequence.last_iteration:
            return sequence.output_tokens - (sequence.last_iteration - self.iteration)
        return sequence.generated

    def add(self, sequence: Sequence) -> None:
        """Let a sequence wait. Raises ValueError for one that could never run."""
        prompt, output, room = sequence.prompt_tokens, sequence.output_tokens, self.kv_room
        if prompt < 1 or output < 1:
            raise ValueError(f"sequence {sequence.id!r} needs prompt and output tokens, it has {prompt} and {output}")
        if prompt + output > room:
            raise ValueError(f"sequence {sequence.id!r} needs {prompt + output} KV tokens; the engine has {room}")
        if sequence.id in self._sequences:
            raise ValueError(f"sequence {sequence.id!r} is already in the engine")
        if not self._caching:
            sequence.prefix = ()
        elif sequence.prefix and sequence.prefix[-1].end > prompt:
            raise ValueError(f"sequence {sequence.id!r} has a prefix longer than its prompt of {prompt} tokens")
        self._arrivals += 1
        sequence.arrived = self._arrivals
        self._sequences[sequence.id] = sequence
        self._enqueue(sequence)

    def abort(self, sequence_id: str) -> bool:
        """Forget a sequence and free its room at once; False for an unknown id."""
        sequence = self._sequences.pop(sequence_id, None)
        if sequence is None:
            return False
        if sequence.last_iteration:
            self._stop_decoding(sequence)
        elif sequence is self.prefilling:
            self._stop_prefilling(sequence)
        elif sequence in self.joining:
            self.joining.remove(sequence)
            self._release(sequence, sequence.position)
        else:
            self.waiting.remove(sequence)
            self.waiting_tokens -= sequence.prompt_tokens + sequence.generated
            self.unprefilled_tokens -= sequence.prompt_tokens + sequence.generated
        return True

    def prefill(self) -> tuple[float, int]:
        """Give a chunk to the sequence that prefills, then to newly admitted ones.

        Returns the work (see `common.enginemodel`; 0: nobody prefills), and how many iterations can be like this one.
        """
        room = self._chunk
        work = 0.0
        sequence = self.prefilling or self._admit()
        while sequence is not None:
            start = sequence.position
            left = sequence.prompt_tokens + sequence.generated - start
            tokens = left if left < room else room
            work += tokens + tokens * (2 * start + tokens) / (2 * ATTENTION_TOKENS)
            self.progress(sequence, tokens)
            room -= tokens
            if tokens < left:
                self.prefilling = sequence
                return work, 1 + (left - tokens - 1) // tokens if tokens == self._chunk else 1
            self.prefilling = None
            self.joining.append(sequence)
            sequence = self._admit() if room else None
        return work, 1

    def progress(self, sequence: Sequence, tokens: int) -> None:
        """Count tokens as prefilled."""
        sequence.position += tokens
        self.unprefilled_tokens -= tokens
        self.prefilled_tokens += tokens

    def decode(self, iterations: int) -> list[Sequence]:
        """Let decoding sequences make a token per iteration, those prefilled their first. Returns those complete."""
        self.iteration = iteration = self.iteration + iterations
        decoding = self.decoding
        made = iterations * len(decoding)
        self.kv_tokens += made
        self.decoding_kv += made
        if self.kv_tokens + self.cache.idle_tokens > self.kv_room:
            self._evict()
        if self.joining:
            for sequence in self.joining:
                sequence.last_iteration = iteration + sequence.output_tokens - sequence.generated - 1
                self.decoding_kv += sequence.position
                heappush(decoding, (sequence.last_iteration, sequence.admitted, sequence))
            self.joining.clear()
        finished = []
        while decoding and decoding[0][0] == iteration:
            sequence = heappop(decoding)[2]
            self._leave_decoding(sequence)
            del self._sequences[sequence.id]
            finished.append(sequence)
        return finished

    def preempt(self) -> None:
        """Take sequences back, the last admitted first, until every decoding one has room for a token."""
        while self.kv_tokens + len(self.decoding) > self.kv_room:
            sequence = self.prefilling
            if sequence is not None:
                self._stop_prefilling(sequence)
            else:
                sequence = max(self.decoding, key=lambda entry: entry[1])[2]
                self._stop_decoding(sequence)
            sequence.position = 0
            sequence.preemptions += 1
            self._enqueue(sequence)

    def _admit(self) -> Sequence | None:
        """Take the head of the waiting line if it fits; a lone one always does. None when it has to wait."""
        if not self.waiting or self.running >= self._max_sequences:
            return None
        head = self.waiting[0]
        total = head.prompt_tokens + head.generated
        cached, held = self.cache.match(head.prefix, total) if head.prefix else (0, 0)
        kv = self.kv_tokens + total - held
        if self.running and (kv > self._admit_tokens or kv + len(self.decoding) > self.kv_room):
            return None
        self.waiting.popleft()
        if head.prefix:
            self.cache.hold(head.prefix)
        head.position = cached
        if not head.preemptions:
            head.cached_tokens = cached
        self._admissions += 1
        head.admitted = self._admissions
        self.running += 1
        self.kv_tokens = kv
        self.waiting_tokens -= total
        self.unprefilled_tokens -= cached
        if kv + self.cache.idle_tokens > self.kv_room:
            self._evict()
        return head

    def _enqueue(self, sequence: Sequence) -> None:
        tokens = sequence.prompt_tokens + sequence.generated
        self.waiting_tokens += tokens
        self.unprefilled_tokens += tokens
        waiting = self.waiting
        rank = (sequence.priority, sequence.arrived)
        at = len(waiting)
        while at and rank < (waiting[at - 1].priority, waiting[at - 1].arrived):
            at -= 1
        waiting.insert(at, sequence)

    def _stop_prefilling(self, sequence: Sequence) -> None:
        self.prefilling = None
        total = sequence.prompt_tokens + sequence.generated
        self.unprefilled_tokens -= total - sequence.position
        self._release(sequence, total)

    def _stop_decoding(self, sequence: Sequence) -> None:
        self.decoding = [entry for entry in self.decoding if entry[2] is not sequence]
        heapify(self.decoding)
        self._leave_decoding(sequence)

    def _leave_decoding(self, sequence: Sequence) -> None:
        sequence.generated = self.generated(sequence)
        sequence.last_iteration = 0
        kv = sequence.prompt_tokens + sequence.generated - 1
        self.decoding_kv -= kv
        self._release(sequence, kv)

    def _release(self, sequence: Sequence, kv: int) -> None:
        """Give back `kv` tokens of a sequence, less what others hold of its prefix."""
        self.running -= 1
        prefix = sequence.prefix
        if prefix:
            kv += self.cache.release(prefix, sequence.position) - prefix[-1].end
        self.kv_tokens -= kv

    def _evict(self) -> None:
        self.cache.evict(self.kv_tokens + self.cache.idle_tokens - self.kv_room)
