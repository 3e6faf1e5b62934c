"""Prompt blocks an engine keeps for reuse: shared while held by running sequences, least recently used once idle.

Knows no time, no capacity and no sequences: `common.enginemodel` says what is held, and when to make room.
"""

from collections import OrderedDict
from collections.abc import Hashable
from typing import NamedTuple


class Block(NamedTuple):
    """A piece of a prompt. `key` names the whole prompt up to `end` (tokens from its start): equal keys, equal ends."""

    key: Hashable
    end: int


Prefix = tuple[Block, ...]
"""The leading blocks of a prompt, in order."""


class PrefixCache:
    """Blocks by key. A held block has its ancestors held too, as a sequence holds all leading blocks of its prompt."""

    __slots__ = ("_held", "_idle", "idle_tokens")

    def __init__(self) -> None:
        self._held: dict[Hashable, int] = {}
        self._idle: OrderedDict[Hashable, int] = OrderedDict()
        self.idle_tokens = 0

    def match(self, prefix: Prefix, below: int) -> tuple[int, int]:
        """How many leading tokens are here, in blocks that end before `below`, and how many are held by somebody."""
        cached = held = 0
        for key, end in prefix:
            if key in self._held:
                held = end
            elif key not in self._idle:
                break
            if end < below:
                cached = end
        return cached, held

    def hold(self, prefix: Prefix) -> None:
        """Hold all blocks, those still to be computed too: nobody else is admitted before they are."""
        for key, _ in prefix:
            if key in self._held:
                self._held[key] += 1
            else:
                self._held[key] = 1
                self.idle_tokens -= self._idle.pop(key, 0)

    def release(self, prefix: Prefix, computed: int) -> int:
        """Let go of all blocks. Returns the tokens nobody holds now.

        Those within the first `computed` tokens stay, idle. The tail goes first: without its head it is of no use.
        """
        freed = 0
        for at in range(len(prefix) - 1, -1, -1):
            key, end = prefix[at]
            self._held[key] -= 1
            if self._held[key] == 0:
                del self._held[key]
                tokens = end - (prefix[at - 1].end if at else 0)
                freed += tokens
                if end <= computed:
                    self._idle[key] = tokens
                    self.idle_tokens += tokens
        return freed

    def evict(self, tokens: int) -> None:
        """Drop idle blocks, least recently used first, until at least `tokens` are free or none is left."""
        while tokens > 0 and self._idle:
            _, gone = self._idle.popitem(last=False)
            self.idle_tokens -= gone
            tokens -= gone
