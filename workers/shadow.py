"""What an engine's prefix cache should hold, by the requests it was given: the engine itself does not tell.

The functions are the engine model's (`common.prefixcache`), over blocks of so many characters of a prompt
(`common.prefix`). Where the engine reports fewer cached tokens than were expected, it is believed. Knows no engine.
"""

from dataclasses import dataclass

from common.enginerecords import NONE
from common.prefix import BLOCK_CHARS, HASH_BYTES
from common.prefixcache import evict, hold, let_go, match

BELIEVED = 0.8
"""Reported cached tokens below this share of those expected are a miss: blocks have no exact length in tokens."""


@dataclass(slots=True, eq=False)
class _Block:
    """A block and its state. `used` counts the requests that had ended when it was last let go.

    computed: some request that had it has got its answer.
    """

    key: bytes
    end: int
    tokens: int
    parent: int
    held: int = 0
    idle: bool = False
    older: int = NONE
    newer: int = NONE
    used: int = 0
    computed: bool = False


@dataclass(frozen=True, slots=True)
class _Asked:
    """One request. `leaf`: its last block; `expected`: of the blocks found idle their end and when they were let go."""

    leaf: int
    cached_tokens: int
    expected: tuple[tuple[int, int], ...]


class PrefixShadow:
    """Blocks that requests hold, or that are idle, within `kv_room` tokens. `version` grows whenever they change."""

    def __init__(self, kv_room: int) -> None:
        self.idle_tokens = 0
        self.oldest = self.newest = NONE
        self.version = 0
        self._kv_room = kv_room
        self._blocks: dict[int, _Block] = {}
        self._numbers: dict[bytes, int] = {}
        self._asked: dict[str, _Asked] = {}
        self._named = self._ended = 0

    def blocks(self) -> bytes:
        """The hashes of the blocks, one after another."""
        return b"".join(block.key for block in self._blocks.values())

    def begin(self, request: str, prefix: bytes, prompt_tokens: int, characters: int) -> int:
        """A request goes to the engine; how many of its tokens should come from the cache."""
        leaf = self._leaf(prefix, prompt_tokens * BLOCK_CHARS / max(characters, 1))
        cached, _ = match(self._blocks, self._blocks, leaf, prompt_tokens)
        path = [self._blocks[b] for b in self._path(leaf)]
        expected = tuple((b.end, b.used) for b in reversed(path) if b.idle and b.end <= cached)
        hold(self, self._blocks, self._blocks, leaf)
        self._asked[request] = _Asked(leaf, cached, expected)
        return cached

    def end(self, request: str, cached_tokens: int | None) -> None:
        """It left the engine. None: it failed, and what of it was computed is not known."""
        asked = self._asked.pop(request, None)
        if asked is None:
            return
        if cached_tokens is not None and cached_tokens < BELIEVED * asked.cached_tokens:
            self._believe(asked, cached_tokens)
        self._ended += 1
        path = [self._blocks[b] for b in self._path(asked.leaf)]
        for block in path:
            block.used = self._ended
            block.computed = block.computed or cached_tokens is not None
        computed = max((block.end for block in path if block.computed), default=0)
        let_go(self, self._blocks, self._blocks, asked.leaf, computed)
        self._sweep()

    def make_room(self, kv_tokens: int) -> None:
        """The engine's calls hold so many tokens: what does not fit beside them is gone."""
        if self.idle_tokens + kv_tokens > self._kv_room:
            evict(self, self._blocks, self._blocks, self.idle_tokens + kv_tokens - self._kv_room)
            self._sweep()

    def _believe(self, asked: _Asked, cached_tokens: int) -> None:
        """The blocks beyond are computed again by now, but those let go before the first of them are gone as well."""
        missing = [used for end, used in asked.expected if end > cached_tokens]
        while missing and self.oldest != NONE and self._blocks[self.oldest].used <= missing[0]:
            evict(self, self._blocks, self._blocks, 1)

    def _leaf(self, prefix: bytes, tokens: float) -> int:
        parent, start = NONE, 0
        for at in range(0, len(prefix), HASH_BYTES):
            key = prefix[at : at + HASH_BYTES]
            if key not in self._numbers:
                self._named += 1
                self._numbers[key] = self._named
                end = start + max(1, round(tokens))
                self._blocks[self._named] = _Block(key, end, end - start, parent)
                self.version += 1
            parent = self._numbers[key]
            start = self._blocks[parent].end
        return parent

    def _path(self, leaf: int) -> list[int]:
        """From the last block to the first."""
        found = []
        while leaf != NONE:
            found.append(leaf)
            leaf = self._blocks[leaf].parent
        return found

    def _sweep(self) -> None:
        """Forget the blocks that are neither held nor idle."""
        gone = [number for number, block in self._blocks.items() if not block.held and not block.idle]
        for number in gone:
            del self._numbers[self._blocks.pop(number).key]
        self.version += bool(gone)
