"""The shadow of a prefix cache holds what the engine's holds."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.engine import Block, EngineModel, Sequence
from common.model import InstanceProfile
from common.prefix import BLOCK_CHARS, HASH_BYTES, chain
from workers.shadow import PrefixShadow

TOKENS = BLOCK_CHARS // 4
ROOM = 20 * TOKENS
SMALL = InstanceProfile("small", 5000.0, 0.01, 0.001, 1e-7, kv_tokens=ROOM, chunk_tokens=512)


def keys(prefix: bytes) -> list[bytes]:
    return [prefix[at : at + HASH_BYTES] for at in range(0, len(prefix), HASH_BYTES)]


def text_of(choice: list[int], tail: int) -> str:
    """Blocks by number, so that prompts share beginnings, and a rest of its own."""
    return "".join(chr(65 + block) * BLOCK_CHARS for block in choice) + f"{tail:08d}"


def asked(shadow: PrefixShadow, request: str, text: str) -> int:
    return shadow.begin(request, chain(text), len(text) // 4, len(text))


prompts = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=8), min_size=1, max_size=25)


@given(prompts)
@settings(max_examples=60)
def test_one_call_after_the_other_is_expected_what_the_engine_model_finds(choices: list[list[int]]) -> None:
    model, shadow = EngineModel(SMALL), PrefixShadow(ROOM)
    for number, choice in enumerate(choices):
        text = text_of(choice, number)
        blocks = tuple(Block(key, TOKENS * (at + 1)) for at, key in enumerate(keys(chain(text))))
        sequence = Sequence(str(number), len(text) // 4, 5, blocks)
        model.add(sequence)
        expected = asked(shadow, str(number), text)
        model.step()
        shadow.make_room(model.kv_tokens)
        assert expected == sequence.cached_tokens
        while model.running:
            model.step()
            shadow.make_room(model.kv_tokens + 1 if model.running else 0)
        shadow.end(str(number), sequence.cached_tokens)
        assert shadow.idle_tokens == model.idle_tokens


def test_what_runs_is_told_and_what_is_let_go_stays() -> None:
    shadow = PrefixShadow(ROOM)
    text = text_of([0, 1, 2], 1)
    assert asked(shadow, "a", text) == 0
    assert keys(shadow.blocks()) == keys(chain(text))
    before = shadow.version
    shadow.end("a", 0)
    assert keys(shadow.blocks()) == keys(chain(text))
    assert shadow.version == before
    assert asked(shadow, "b", text_of([0, 1, 0], 2)) == 2 * TOKENS
    assert shadow.version > before


def test_what_failed_was_perhaps_never_computed() -> None:
    shadow = PrefixShadow(ROOM)
    asked(shadow, "a", text_of([0, 1], 1))
    shadow.end("a", None)
    assert shadow.blocks() == b""
    assert asked(shadow, "b", text_of([0, 1], 1)) == 0
    shadow.end("never seen", 0)


def test_a_miss_tells_that_all_let_go_before_it_is_gone_too() -> None:
    shadow = PrefixShadow(ROOM)
    for request, block in (("a", 0), ("b", 1), ("c", 2)):
        asked(shadow, request, text_of([block], 1))
        shadow.end(request, 0)
    assert asked(shadow, "d", text_of([1], 2)) == TOKENS
    shadow.end("d", 0)  # the engine had nothing of b any more: a, which is older, is gone as well
    assert keys(shadow.blocks()) == [*keys(chain(text_of([1], 2))), *keys(chain(text_of([2], 1)))]


def test_a_report_that_is_about_what_was_expected_changes_nothing() -> None:
    shadow = PrefixShadow(ROOM)
    for request in ("a", "b"):
        asked(shadow, request, text_of([0, 1, 2], 1))
        shadow.end(request, 0 if request == "a" else round(0.85 * 3 * TOKENS))
    assert len(keys(shadow.blocks())) == 3


def test_what_does_not_fit_beside_the_running_calls_is_forgotten_oldest_first() -> None:
    shadow = PrefixShadow(ROOM)
    for request, block in (("a", 0), ("b", 1)):
        asked(shadow, request, text_of([block] * 4, 1))
        shadow.end(request, 0)
    shadow.make_room(ROOM - 5 * TOKENS)
    assert set(keys(shadow.blocks())) == {*keys(chain(text_of([0], 1))), *keys(chain(text_of([1] * 4, 1)))}
    shadow.make_room(ROOM)
    assert (shadow.blocks(), shadow.idle_tokens) == (b"", 0)


@pytest.mark.parametrize("seed", range(3))
def test_many_at_once_leave_no_trace_when_all_have_gone_and_the_room_is_taken(seed: int) -> None:
    chance, shadow = random.Random(seed), PrefixShadow(ROOM)
    running: list[str] = []
    for number in range(300):
        if running and chance.random() < 0.5:
            shadow.end(running.pop(chance.randrange(len(running))), chance.choice([None, 0, 500]))
        else:
            asked(shadow, str(number), text_of([chance.randrange(3) for _ in range(chance.randint(1, 6))], number))
            running.append(str(number))
        shadow.make_room(chance.randrange(ROOM))
    for request in running:
        shadow.end(request, 0)
    shadow.make_room(ROOM)
    assert (shadow.blocks(), shadow.idle_tokens) == (b"", 0)
