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

from common.enginebatch import ATTENTION_TOKENS, decode, next_end, preempt, prefill, progress
from common.enginerecords import NONE, Blocks, Cache, Calls, EngineRecord

DECODE_WORK = 2
"""Work of one decoding sequence per iteration, in prefilled tokens."""
TOKEN_TIME_S = 20.0
"""What the moving average of the time between two tokens remembers."""


def token_time(average_s: float, step_s: float, elapsed_s: float, remembered_s: float) -> float:
    """The moving average of the time between two tokens, after steps of step_s for elapsed_s: weighted by time, and
    rising at half speed.
    """
    weight = 1.0 - math.exp(-elapsed_s / remembered_s)
    if step_s > average_s:
        weight *= 0.5
    return average_s + weight * (step_s - average_s)


def begin(e: EngineRecord, calls: Calls, blocks: Blocks, cache: Cache, max_s: float) -> float:
    """Plan the next stretch, up to the first iteration that ends at `max_s` or later: its s, or inf when idle."""
    preempt(e, calls, blocks, cache)
    work, iterations = 0.0, 1
    if e.prefilling != NONE or e.first_waiting != NONE:
        work, iterations = prefill(e, calls, blocks, cache)
    count = e.decoding_count
    if work == 0.0 and count == 0:
        return math.inf
    if count > 0 and (iterations > 1 or work == 0.0):
        to_end = next_end(e, calls) - e.iteration
        to_overflow = (e.kv_room - e.kv_tokens) // count
        iterations = min(iterations if work > 0.0 else to_end, to_end, to_overflow)
    _price(e, work, iterations)
    return e.planned_s if e.planned_s <= max_s else cut(e, max_s)


def _price(e: EngineRecord, work: float, iterations: int) -> None:
    """Set the stretch: how many iterations, and their time. `work` is what the first one prefills."""
    compute = (work + DECODE_WORK * e.decoding_count) / e.prefill_tokens_per_s
    square = 0.0
    if compute >= e.weights_s:
        first = e.overhead_s + compute + 0.5 * e.weights_s
        if work > 0.0 and iterations > 1:
            square = e.chunk * e.chunk / (2 * ATTENTION_TOKENS) / e.prefill_tokens_per_s
    else:
        first = e.overhead_s + e.weights_s + 0.5 * compute
        if work > 0.0:
            iterations = 1  # later chunks have more before them: compute may outgrow the weights, at another price
    reads = 0.5 * e.kv_s_per_token * e.decoding_count
    e.iterations = iterations
    e.linear_s = first - square + e.kv_s_per_token * e.decoding_kv + reads
    e.square_s = square + reads
    e.planned_s = iterations * (e.linear_s + iterations * e.square_s)


def cut(e: EngineRecord, elapsed_s: float) -> float:
    """Shorten the stretch begun to the iterations (at least one) that start before `elapsed_s`. Returns its s."""
    if e.iterations > 1 and elapsed_s < e.planned_s:
        elapsed = max(elapsed_s, 0.0)
        # The root of square * k^2 + linear * k = elapsed, in the form that holds for square = 0 too.
        root = 2 * elapsed / (e.linear_s + math.sqrt(e.linear_s * e.linear_s + 4 * e.square_s * elapsed))
        e.iterations = min(e.iterations, max(1, math.ceil(root)))
        e.planned_s = e.iterations * (e.linear_s + e.iterations * e.square_s)
    return e.planned_s


def end(e: EngineRecord, calls: Calls, blocks: Blocks, cache: Cache, finished: list[int]) -> int:
    """Apply the stretch begun. Writes the calls that are complete into `finished`; returns how many."""
    iterations = e.iterations
    e.iterations = 0
    e.planned_s = 0.0
    if iterations > 1 and e.prefilling != NONE:
        progress(e, calls[e.prefilling], (iterations - 1) * e.chunk)
    return decode(e, calls, blocks, cache, iterations, finished)
