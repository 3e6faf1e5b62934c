"""What the functions of the engine model read and write: engines, their calls, prompt blocks and their caches.

Any object with these attributes will do: Python objects in the live engine, rows of numpy record arrays in the
simulator, which compiles the functions. So all of it is numbers; calls and blocks are named by number, -1 is none.
"""

from typing import Protocol, TypeVar

NONE = -1


class IdleLine(Protocol):
    """The idle blocks of a cache: their tokens, and both ends of the line they stand in."""

    idle_tokens: int
    oldest: int
    newest: int


class EngineRecord(IdleLine, Protocol):
    """One engine: what it is, as in `InstanceProfile`, and what it holds, see `common.enginebatch`. In tokens and s."""

    prefill_tokens_per_s: float
    weights_s: float
    overhead_s: float
    kv_s_per_token: float
    kv_room: int
    admit_tokens: int
    max_sequences: int
    chunk: int

    running: int
    kv_tokens: int
    decoding_kv: int
    unprefilled_tokens: int
    prefilled_tokens: int
    waiting_tokens: int
    iteration: int
    arrivals: int
    admissions: int
    prefilling: int
    first_waiting: int
    last_waiting: int
    joining_ids: list[int]
    joining_count: int
    decoding_ids: list[int]
    decoding_count: int

    iterations: int
    linear_s: float
    square_s: float
    planned_s: float


class CallRecord(Protocol):
    """One call inside an engine, in tokens. `leaf`: its last block; `before`, `after`: its place in the line."""

    prompt_tokens: int
    output_tokens: int
    priority: int
    leaf: int
    cached_tokens: int
    generated: int
    preemptions: int
    arrived: int
    admitted: int
    position: int
    last_iteration: int
    before: int
    after: int


class BlockRecord(Protocol):
    """A piece of a prompt: `end` in tokens from the prompt's start, `tokens` of its own, the block before it."""

    end: int
    tokens: int
    parent: int


class CacheRecord(Protocol):
    """A block in one engine: held by so many, or idle in the line between an older and a newer one."""

    held: int
    idle: bool
    older: int
    newer: int


R_co = TypeVar("R_co", covariant=True)


class Table(Protocol[R_co]):
    """Records by number."""

    def __getitem__(self, number: int, /) -> R_co: ...


Calls = Table[CallRecord]
Blocks = Table[BlockRecord]
Cache = Table[CacheRecord]
