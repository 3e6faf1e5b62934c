"""Node keys and places: what a key says is what it was made from."""

import pytest
from core_bench import definition
from hypothesis import given
from hypothesis import strategies as st

from coordinator.places import find, place, segments, stage_place

TREE = definition(
    """
    stages:
      plain: {prompt: p}
      outer:
        for_each: [1]
        repeat: {while: true, max: 9}
        stages:
          inner: {for_each: [1], prompt: p}
          again: {repeat: {while: true, max: 9}, stages: {leaf: {prompt: p}}}
    """
)
OUTER, INNER, AGAIN, LEAF = (TREE.stages[path] for path in ("outer", "outer.inner", "outer.again", "outer.again.leaf"))
numbers = st.integers(0, 999)


@given(numbers, numbers, numbers, numbers)
def test_a_key_leads_back_to_its_place(copy, round, inner, again):
    outer = place(None, OUTER, copy, round)
    leaf = place(place(outer, AGAIN, None, again), LEAF)
    for made, key in (
        (outer, f"outer[{copy}]@{round}"),
        (place(outer, INNER, inner), f"outer[{copy}]@{round}.inner[{inner}]"),
        (leaf, f"outer[{copy}]@{round}.again@{again}.leaf"),
    ):
        assert made.key == key
        found = find(TREE, key)
        assert (found.key, found.copy_key, found.stage_key) == (made.key, made.copy_key, made.stage_key)
        assert (found.spec, found.index, found.round) == (made.spec, made.index, made.round)
        assert (found.parent is None) == (made.parent is None)


def test_the_keys_of_a_stage_its_copies_and_their_rounds():
    at = place(None, OUTER, 2, 1)
    assert (at.stage_key, at.copy_key, at.key, at.scope) == ("outer", "outer[2]", "outer[2]@1", "outer[2]@1.")
    plain = place(None, TREE.stages["plain"])
    assert (plain.stage_key, plain.copy_key, plain.key, plain.round) == ("plain", "plain", "plain", None)


def test_the_place_of_a_stage_as_a_whole_has_neither_copy_nor_round():
    at = stage_place(place(None, OUTER, 0, 3), AGAIN)
    assert (at.key, at.index, at.round) == ("outer[0]@3.again", None, None)


def test_the_first_round_is_round_0():
    assert place(None, OUTER, 0).key == "outer[0]@0"


def test_parts_of_a_key():
    assert segments("a[2]@1.b") == (("a", 2, 1), ("b", None, None))


@pytest.mark.parametrize("key", ["", "a.", "a[x]", "a@", "a b", "a[1][2]"])
def test_what_is_no_key_is_refused(key):
    with pytest.raises(ValueError, match="is no node key"):
        segments(key)


def test_a_stage_that_does_not_exist_is_not_found():
    with pytest.raises(KeyError):
        find(TREE, "outer[0]@0.other")
