"""Who is in an engine: sequences that wait, prefill and decode, and the KV room they hold. Knows no durations.

KV of a prompt is reserved at admission. A token made gets its KV in the iteration after it; there the room may run out,
and the sequences admitted last are taken back, to be computed again later. `common.enginemodel` times the iterations.

The running ones hold `kv_tokens`, shared blocks counted once: at most one that is partly prefilled (`prefilling`, the
last admitted), those whose prefill the current iterations complete (`joining`), and those decoding.
`unprefilled_tokens` are of running and waiting ones; what the cache saves is known at admission.
"""

from common.enginerecords import NONE, Blocks, Cache, CallRecord, Calls, EngineRecord
from common.prefixcache import evict, hold, let_go, match

ATTENTION_TOKENS = 53_000
"""Tokens before a prefilled token at which attention doubles its work."""


def enqueue(e: EngineRecord, calls: Calls, q: int) -> None:
    """Let a call wait: smaller priority first, equal ones in order of arrival."""
    c = calls[q]
    e.waiting_tokens += c.prompt_tokens + c.generated
    e.unprefilled_tokens += c.prompt_tokens + c.generated
    before, after = e.last_waiting, NONE
    while before != NONE and _is_before(c, calls[before]):
        before, after = calls[before].before, before
    c.before, c.after = before, after
    if before != NONE:
        calls[before].after = q
    else:
        e.first_waiting = q
    if after != NONE:
        calls[after].before = q
    else:
        e.last_waiting = q


def _is_before(one: CallRecord, other: CallRecord) -> bool:
    if one.priority == other.priority:
        return one.arrived < other.arrived
    return one.priority < other.priority


def dequeue(e: EngineRecord, calls: Calls, q: int) -> None:
    """Take a call that waits out of the line. Its tokens stay unprefilled."""
    c = calls[q]
    if c.before != NONE:
        calls[c.before].after = c.after
    else:
        e.first_waiting = c.after
    if c.after != NONE:
        calls[c.after].before = c.before
    else:
        e.last_waiting = c.before
    e.waiting_tokens -= c.prompt_tokens + c.generated


def add(e: EngineRecord, calls: Calls, q: int) -> None:
    """Let a new call wait."""
    e.arrivals += 1
    calls[q].arrived = e.arrivals
    enqueue(e, calls, q)


def abort(e: EngineRecord, calls: Calls, blocks: Blocks, cache: Cache, q: int) -> None:
    """Forget a call that is in the engine, and free its room."""
    c = calls[q]
    if c.last_iteration:
        at = 0
        while e.decoding_ids[at] != q:
            at += 1
        leave_decoding(e, calls, blocks, cache, at)
        return
    if q == e.prefilling:
        stop_prefilling(e, calls, blocks, cache)
        return
    for at in range(e.joining_count):
        if e.joining_ids[at] == q:
            e.joining_count -= 1
            for i in range(at, e.joining_count):
                e.joining_ids[i] = e.joining_ids[i + 1]
            release(e, c, blocks, cache, c.position)
            return
    dequeue(e, calls, q)
    e.unprefilled_tokens -= c.prompt_tokens + c.generated


def admit(e: EngineRecord, calls: Calls, blocks: Blocks, cache: Cache) -> int:
    """Take the head of the waiting line if it fits; a lone one always does. NONE when it has to wait."""
    q = e.first_waiting
    if q == NONE or e.running >= e.max_sequences:
        return NONE
    c = calls[q]
    total = c.prompt_tokens + c.generated
    cached, held = match(blocks, cache, c.leaf, total)
    kv = e.kv_tokens + total - held
    if e.running > 0 and (kv > e.admit_tokens or kv + e.decoding_count > e.kv_room):
        return NONE
    dequeue(e, calls, q)
    hold(e, blocks, cache, c.leaf)
    c.position = cached
    if c.preemptions == 0:
        c.cached_tokens = cached
    e.admissions += 1
    c.admitted = e.admissions
    e.running += 1
    e.kv_tokens = kv
    e.unprefilled_tokens -= cached
    evict(e, blocks, cache, kv + e.idle_tokens - e.kv_room)
    return q


def prefill(e: EngineRecord, calls: Calls, blocks: Blocks, cache: Cache) -> tuple[float, int]:
    """Give a chunk to the sequence that prefills, then to newly admitted ones.

    Returns the work (see `common.enginemodel`; 0: nobody prefills), and how many iterations can be like this one.
    """
    room = e.chunk
    work = 0.0
    q = e.prefilling if e.prefilling != NONE else admit(e, calls, blocks, cache)
    while q != NONE:
        c = calls[q]
        start = c.position
        left = c.prompt_tokens + c.generated - start
        tokens = min(left, room)
        work += tokens + tokens * (2 * start + tokens) / (2 * ATTENTION_TOKENS)
        progress(e, c, tokens)
        room -= tokens
        if tokens < left:
            e.prefilling = q
            return work, 1 + (left - tokens - 1) // tokens if tokens == e.chunk else 1
        e.prefilling = NONE
        e.joining_ids[e.joining_count] = q
        e.joining_count += 1
        q = admit(e, calls, blocks, cache) if room > 0 else NONE
    return work, 1


def progress(e: EngineRecord, c: CallRecord, tokens: int) -> None:
    """Count tokens as prefilled."""
    c.position += tokens
    e.unprefilled_tokens -= tokens
    e.prefilled_tokens += tokens


def decode(e: EngineRecord, calls: Calls, blocks: Blocks, cache: Cache, iterations: int, finished: list[int]) -> int:
    """Let decoding sequences make a token per iteration, those prefilled their first.

    Writes the calls that are complete into `finished`, in order of admission; returns how many.
    """
    e.iteration += iterations
    e.kv_tokens += iterations * e.decoding_count
    e.decoding_kv += iterations * e.decoding_count
    evict(e, blocks, cache, e.kv_tokens + e.idle_tokens - e.kv_room)
    for at in range(e.joining_count):
        q = e.joining_ids[at]
        c = calls[q]
        c.last_iteration = e.iteration + c.output_tokens - c.generated - 1
        e.decoding_kv += c.position
        e.decoding_ids[e.decoding_count] = q
        e.decoding_count += 1
    e.joining_count = 0
    count = 0
    at = 0
    while at < e.decoding_count:
        q = e.decoding_ids[at]
        if calls[q].last_iteration == e.iteration:
            leave_decoding(e, calls, blocks, cache, at)
            finished[count] = q
            count += 1
        else:
            at += 1
    return count


def next_end(e: EngineRecord, calls: Calls) -> int:
    """The iteration that ends the first of the decoding sequences; there must be one."""
    first = calls[e.decoding_ids[0]].last_iteration
    for at in range(1, e.decoding_count):
        first = min(first, calls[e.decoding_ids[at]].last_iteration)
    return first


def preempt(e: EngineRecord, calls: Calls, blocks: Blocks, cache: Cache) -> None:
    """Take sequences back, the last admitted first, until every decoding one has room for a token."""
    while e.kv_tokens + e.decoding_count > e.kv_room:
        if e.prefilling != NONE:
            q = stop_prefilling(e, calls, blocks, cache)
        else:
            q = leave_decoding(e, calls, blocks, cache, e.decoding_count - 1)
        calls[q].position = 0
        calls[q].preemptions += 1
        enqueue(e, calls, q)


def stop_prefilling(e: EngineRecord, calls: Calls, blocks: Blocks, cache: Cache) -> int:
    """Take the sequence that prefills out; returns it."""
    q = e.prefilling
    e.prefilling = NONE
    c = calls[q]
    total = c.prompt_tokens + c.generated
    e.unprefilled_tokens -= total - c.position
    release(e, c, blocks, cache, total)
    return q


def leave_decoding(e: EngineRecord, calls: Calls, blocks: Blocks, cache: Cache, at: int) -> int:
    """Take the sequence at that place of the decoding ones out; returns it. They stay in order of admission."""
    q = e.decoding_ids[at]
    e.decoding_count -= 1
    for i in range(at, e.decoding_count):
        e.decoding_ids[i] = e.decoding_ids[i + 1]
    c = calls[q]
    c.generated = generated(e, c)
    c.last_iteration = 0
    kv = c.prompt_tokens + c.generated - 1
    e.decoding_kv -= kv
    release(e, c, blocks, cache, kv)
    return q


def generated(e: EngineRecord, c: CallRecord) -> int:
    """Tokens a call has made so far."""
    if c.last_iteration:
        return c.output_tokens - (c.last_iteration - e.iteration)
    return c.generated


def release(e: EngineRecord, c: CallRecord, blocks: Blocks, cache: Cache, kv: int) -> None:
    """Give back `kv` tokens of a sequence, less what others hold of its prefix."""
    e.running -= 1
    if c.leaf != NONE:
        kv += let_go(e, blocks, cache, c.leaf, c.position) - blocks[c.leaf].end
    e.kv_tokens -= kv
