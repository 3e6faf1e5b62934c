"""Prompt blocks an engine keeps for reuse: shared while held by running sequences, least recently used once idle.

A prompt is named by its last block, its leaf. A block that is here has all before it here: those held are held
together, and of idle ones the tail is always the older. Knows no time, no capacity and no sequences.
"""

from common.enginerecords import NONE, Blocks, Cache, IdleLine


def match(blocks: Blocks, cache: Cache, leaf: int, below: int) -> tuple[int, int]:
    """How many leading tokens are here, in blocks that end before `below`, and how many are held by somebody."""
    here = leaf
    while here != NONE and not cache[here].idle and cache[here].held == 0:
        here = blocks[here].parent
    held = here
    while held != NONE and cache[held].held == 0:
        held = blocks[held].parent
    while here != NONE and blocks[here].end >= below:
        here = blocks[here].parent
    return blocks[here].end if here != NONE else 0, blocks[held].end if held != NONE else 0


def hold(e: IdleLine, blocks: Blocks, cache: Cache, leaf: int) -> None:
    """Hold all blocks, those still to be computed too: nobody else is admitted before they are."""
    b = leaf
    while b != NONE:
        if cache[b].idle:
            _unlink(e, cache, b)
            e.idle_tokens -= blocks[b].tokens
        cache[b].held += 1
        b = blocks[b].parent


def let_go(e: IdleLine, blocks: Blocks, cache: Cache, leaf: int, computed: int) -> int:
    """Let go of all blocks. Returns the tokens nobody holds now.

    Those within the first `computed` tokens stay, idle. The tail goes first: without its head it is of no use.
    """
    freed = 0
    b = leaf
    while b != NONE:
        cache[b].held -= 1
        if cache[b].held == 0:
            freed += blocks[b].tokens
            if blocks[b].end <= computed:
                _link(e, cache, b)
                e.idle_tokens += blocks[b].tokens
        b = blocks[b].parent
    return freed


def evict(e: IdleLine, blocks: Blocks, cache: Cache, tokens: int) -> None:
    """Drop idle blocks, least recently used first, until at least `tokens` are free or none is left."""
    while tokens > 0 and e.oldest != NONE:
        b = e.oldest
        _unlink(e, cache, b)
        e.idle_tokens -= blocks[b].tokens
        tokens -= blocks[b].tokens


def _link(e: IdleLine, cache: Cache, b: int) -> None:
    """To the newer end of the line of idle blocks."""
    cache[b].idle = True
    cache[b].older, cache[b].newer = e.newest, NONE
    if e.newest != NONE:
        cache[e.newest].newer = b
    else:
        e.oldest = b
    e.newest = b


def _unlink(e: IdleLine, cache: Cache, b: int) -> None:
    """Out of the line of idle blocks."""
    older, newer = cache[b].older, cache[b].newer
    if older != NONE:
        cache[older].newer = newer
    else:
        e.oldest = newer
    if newer != NONE:
        cache[newer].older = older
    else:
        e.newest = older
    cache[b].idle = False
