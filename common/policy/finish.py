"""Finish-time dispatch (`flow`): where a request ends soonest, the delay it puts on the others counted in.

Plain functions over records, which the simulator compiles. `e` is an engine with what is started on it, `c` a call with
`expected_tokens` of its answer. Seconds everywhere.
"""

from typing import Protocol

from common.enginebatch import generated
from common.enginerecords import NONE, Blocks, CallRecord, EngineRecord, Table
from common.policy.cost import prefill_s

LEAST_LEFT = 0.15
"""Share of its expected answer that a call is always taken to have before it."""
MARGIN = 1.1
"""Prefill that waits is taken to last so many times as long as by itself: decoding goes on beside it."""
STEAL_BELOW = 0.6
"""An instance takes a request from another's queue if there it would take less than this share of the time."""


class Waiting(CallRecord, Protocol):
    """A call with what is expected of it."""

    expected_tokens: float


class Loaded(EngineRecord, Protocol):
    """An engine with the calls started on it and its moving average of the time between tokens."""

    started: int
    started_ids: list[int]
    token_s: float


class Marked(Protocol):
    """A block's mark: `prefilled_tokens` of the engine when it was last asked for; negative if never."""

    mark: int


def step_s(e: Loaded, more_kv: float) -> float:
    """Time between two tokens of a call that adds so much KV."""
    return max(e.overhead_s + e.weights_s + e.kv_s_per_token * (e.kv_tokens + more_kv), e.token_s)


def cached_tokens(e: EngineRecord, blocks: Blocks, cache: Table[Marked], c: CallRecord) -> int:
    """Leading tokens of a prompt that should still be in the engine's cache."""
    b = c.leaf
    while b != NONE:
        mark = cache[b].mark
        if mark >= 0 and e.prefilled_tokens - mark < e.kv_room - e.kv_tokens:
            return min(blocks[b].end, c.prompt_tokens - 1)
        b = blocks[b].parent
    return 0


def kv_time(e: Loaded, calls: Table[Waiting]) -> float:
    """KV room times seconds, in token seconds, that what is started will still take."""
    tau = step_s(e, 0.0)
    total = 0.0
    for at in range(e.started):
        c = calls[e.started_ids[at]]
        made = generated(e, c)
        left = max(c.expected_tokens - made, LEAST_LEFT * c.expected_tokens)
        unprefilled = max(c.prompt_tokens - c.position, 0)
        total += (c.prompt_tokens + made) * (unprefilled / e.prefill_tokens_per_s + left * tau)
    return total


def harm_s(e: EngineRecord, c: Waiting, cached: float) -> float:
    """Delay put on each sequence beside it: the prefill, and longer iterations."""
    decode = c.expected_tokens * (e.kv_s_per_token * c.prompt_tokens + 2.0 / e.prefill_tokens_per_s)
    return (c.prompt_tokens - cached) / e.prefill_tokens_per_s + decode


def finish_cost(
    e: Loaded, calls: Table[Waiting], c: Waiting, cached: float, queued_tokens: float, queued_kv_time: float
) -> float:
    """Time to the end of a call dispatched there, and twice the delay it puts on those there.

    queued_tokens, queued_kv_time: what waits there, in prompt tokens and token seconds of KV.
    """
    wait = MARGIN * (e.unprefilled_tokens + queued_tokens) / e.prefill_tokens_per_s
    if queued_tokens > 0.0 or e.kv_tokens + c.prompt_tokens > e.kv_room:
        wait = max(wait, (kv_time(e, calls) + queued_kv_time) / e.kv_room)
    own = prefill_s(e.prefill_tokens_per_s, c.prompt_tokens, cached) + c.expected_tokens * step_s(e, c.prompt_tokens)
    return wait + own + 2.0 * (e.started + 2) * harm_s(e, c, cached)


def steal_cost(e: Loaded, calls: Table[Waiting], c: Waiting, cached: float) -> float:
    """Time to the end of a call that is next there, and the delay it puts on those there."""
    wait = max(e.unprefilled_tokens / e.prefill_tokens_per_s, kv_time(e, calls) / e.kv_room)
    own = prefill_s(e.prefill_tokens_per_s, c.prompt_tokens, cached) + c.expected_tokens * step_s(e, c.prompt_tokens)
    return wait + own + 2.0 * e.started * harm_s(e, c, cached)
