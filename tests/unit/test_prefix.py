"""Hashes of what prompts have in common at their start."""

import pytest

from common.prefix import BLOCK_CHARS, HASH_BYTES, chain, shared_blocks


def _held(*texts: str) -> set[bytes]:
    chains = map(chain, texts)
    return {hashes[at : at + HASH_BYTES] for hashes in chains for at in range(0, len(hashes), HASH_BYTES)}


def test_only_full_blocks_are_hashed() -> None:
    assert chain("") == chain("x" * (BLOCK_CHARS - 1)) == b""
    assert len(chain("x" * BLOCK_CHARS)) == HASH_BYTES
    assert len(chain("x" * (3 * BLOCK_CHARS + 5))) == 3 * HASH_BYTES


def test_a_longer_prompt_begins_with_the_chain_of_the_one_it_continues() -> None:
    start = "".join(map(str, range(3 * BLOCK_CHARS)))[: 3 * BLOCK_CHARS]
    assert chain(start + "y" * 5000).startswith(chain(start))
    assert shared_blocks(chain(start + "y" * 5000), _held(start)) == 3


@pytest.mark.parametrize("changed", [0, BLOCK_CHARS, 2 * BLOCK_CHARS + 17])
def test_a_change_ends_what_is_shared_at_its_block(changed: int) -> None:
    held = "ä" * (4 * BLOCK_CHARS)
    other = held[:changed] + "b" + held[changed + 1 :]
    assert shared_blocks(chain(other), _held(held)) == changed // BLOCK_CHARS


def test_equal_blocks_in_other_places_are_not_shared() -> None:
    first, second = "a" * BLOCK_CHARS, "b" * BLOCK_CHARS
    assert shared_blocks(chain(second + first), _held(first + second)) == 0
    assert len(_held(first * 4)) == 4


def test_any_text_has_a_chain() -> None:
    assert len(chain("\ud800\0" * BLOCK_CHARS)) == 2 * HASH_BYTES
    assert shared_blocks(b"", _held("a" * BLOCK_CHARS)) == 0
