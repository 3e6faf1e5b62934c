"""What is written in Redis is read back as it was, whatever it holds; what cannot be written is refused by name."""

from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common import wire
from common.errors import InvalidDocument
from common.events import AmendAsked, CancelAsked, Completed, Due, Evacuated, Failed, Lost, Outcome, Submitted
from common.model import (
    Claim,
    Head,
    InstanceLoad,
    InstanceProfile,
    LlmCall,
    Node,
    Push,
    RunningCall,
    Sampling,
    Slo,
    ToolCall,
    Usage,
)

texts = st.text(max_size=20)
naturals = st.integers(0, 1 << 53)
speeds = st.floats(0, 1e12, exclude_min=True)
numbers = st.floats(allow_nan=False, allow_infinity=False)
leaves = st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 64) - 1) | numbers | texts
values = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4), max_leaves=12
)
mappings = st.dictionaries(texts, values, max_size=4)
encodings = st.sampled_from(["json", "msgpack"])
words = st.from_regex(r"[a-z0-9_.@\[\]-]{1,20}", fullmatch=True)
"""Ids and node keys: no spaces in them."""

heads = st.builds(
    Head, tenant=texts, name=texts, definition=texts, inputs=mappings, slo=st.builds(Slo, naturals, naturals),
    encoding=encodings, stream=st.booleans(), on_deadline=st.sampled_from(["continue", "cancel"]),
)  # fmt: skip
nodes = st.builds(
    Node, status=texts, left=naturals, round=naturals, request=texts, phase=texts, attempt=naturals, error=texts,
    prompt_tokens=naturals, waiting_since=naturals, completed_at=naturals,
)  # fmt: skip
samplings = st.builds(
    Sampling, max_tokens=naturals, temperature=numbers, top_p=numbers, stop=st.lists(texts, max_size=3).map(tuple),
    seed=st.none() | naturals, json_schema=st.none() | mappings,
)  # fmt: skip
messages = st.lists(st.fixed_dictionaries({"role": texts, "content": texts}), max_size=3).map(tuple)
llm_calls = st.builds(
    LlmCall, prompt=st.none() | texts, messages=st.none() | messages, model=st.none() | texts, sampling=samplings
)
calls = llm_calls | st.builds(ToolCall, tool=texts, args=mappings)
usages = st.builds(Usage, naturals, naturals, naturals)
outcomes = st.builds(
    Outcome, output=values, instance=texts, queued_ms=naturals, run_ms=naturals, usage=usages, prompt_chars=naturals
)


@given(values)
def test_values_come_back(value: Any) -> None:
    assert wire.unpack(wire.pack(value)) == value


@given(values, encodings)
def test_what_users_are_told_comes_back(value: Any, encoding: str) -> None:
    assert wire.load(wire.dump(value, encoding), encoding) == value


def test_json_is_utf_8_without_escapes() -> None:
    assert wire.dump({"output": "Größe 🚀"}, "json") == '{"output":"Größe 🚀"}'.encode()


@pytest.mark.parametrize("encoding", ["json", "msgpack"])
def test_users_may_be_told_of_half_a_character(encoding: str) -> None:
    assert wire.load(wire.dump({"error": "no \ud800"}, encoding), encoding) == {"error": "no ?"}


@given(heads)
def test_heads_come_back(head: Head) -> None:
    assert wire.unpack_head(wire.pack_head(head)) == head


@given(heads)
def test_heads_come_back_from_a_later_version_too_and_from_one_that_knew_no_deadlines(head: Head) -> None:
    kept = wire.unpack(wire.pack_head(head))
    assert wire.unpack_head(wire.pack([*kept[:7], head.on_deadline, "later"])) == head
    assert wire.unpack_head(wire.pack(kept[:7])) == replace(head, on_deadline="continue")


@given(nodes)
def test_nodes_come_back(node: Node) -> None:
    assert wire.unpack_node(wire.pack_node(node)) == node


@given(outcomes)
def test_outcomes_come_back(outcome: Outcome) -> None:
    assert wire.unpack_outcome(wire.pack_outcome(outcome)) == outcome


@given(calls, texts, texts, texts, numbers, st.booleans(), encodings)
def test_a_push_arrives_as_a_claim(
    call: LlmCall | ToolCall, workflow: str, node: str, stage: str, timeout_s: float, stream: bool, encoding: str
) -> None:
    push = Push("r1", node, "a", -5, 7, 11, 90, 13, call, stage, timeout_s, stream)
    payload = wire.pack_payload(push, workflow, encoding)
    claim = wire.unpack_claim("r1", 3, payload, (10, 90, 20), b"12345678", (13, 5, 80, 15))
    rest = (timeout_s, stream, encoding, b"12345678", 13, 5, 80, 15)
    assert claim == Claim("r1", 3, 10, 90, 20, workflow, node, stage, call, *rest)


@given(
    st.builds(
        InstanceLoad, speeds, speeds, speeds, naturals, naturals, naturals, naturals, naturals, speeds,
        st.lists(st.builds(RunningCall, texts, *[naturals] * 6), max_size=3).map(tuple), naturals, numbers, naturals,
    )
)  # fmt: skip
def test_loads_come_back_from_a_later_version_too(load: InstanceLoad) -> None:
    assert wire.unpack_load(wire.pack_load(load)) == load
    later = wire.unpack(wire.pack_load(load))
    later |= {"fan_speed": 7, "running": [[*call, 7] for call in later["running"]]}
    assert wire.unpack_load(wire.pack(later)) == load


def test_a_load_whose_calls_are_no_numbers_is_refused_as_a_whole() -> None:
    load = InstanceLoad(1.0, 1.0, 0.0, 1, 1, 1, 0, 0, 0.0, (RunningCall("r", 1, 2, 3, 4, 5, 6),))
    strange = wire.unpack(wire.pack_load(load)) | {"running": [["r", "many", None, 3, 4, 5, 6]]}
    with pytest.raises((ValueError, TypeError)):
        wire.unpack_load(wire.pack(strange))


@given(st.builds(InstanceProfile, texts, numbers, numbers, numbers, numbers, naturals, naturals, naturals, naturals))
def test_profiles_come_back(profile: InstanceProfile) -> None:
    assert wire.unpack_profile(wire.pack_profile(profile)) == profile
    later = wire.unpack(wire.pack_profile(profile)) | {"fan_speed": 7}
    assert wire.unpack_profile(wire.pack(later)) == profile


@given(words, words, outcomes)
def test_completions_come_back(request: str, node: str, outcome: Outcome) -> None:
    message = f"completed {request} {node}".encode()
    assert wire.read_message(message, wire.pack_outcome(outcome)) == Completed(request, node, outcome)


@given(words, words, st.text(alphabet=st.characters(), max_size=30), st.booleans(), naturals)
def test_failures_come_back_whatever_they_say(
    request: str, node: str, error: str, retryable: bool, tokens: int
) -> None:
    message = f"failed {request} {node} ".encode() + wire.pack_failure(error, retryable, tokens)
    kept = error.encode("utf-8", "replace").decode()
    assert wire.read_message(message, None) == Failed(request, node, kept, retryable, tokens)


def test_a_failure_is_bounded() -> None:
    assert wire.unpack(wire.pack_failure("x" * 5000, False, 0)) == ["x" * 2000, False, 0]


def test_a_failure_may_quote_half_a_character() -> None:
    assert wire.unpack(wire.pack_failure("found \ud800", True, 0)) == ["found ?", True, 0]


@pytest.mark.parametrize(
    ("message", "event"),
    [
        (b"submitted", Submitted()),
        (b"lost r1 a.b@1 3", Lost("r1", "a.b@1", 3)),
        (b"evacuated r1 a[2]", Evacuated("r1", "a[2]")),
        (b"due - a", Due("a")),
        (b"cancel - - sold out, sorry", CancelAsked("sold out, sorry")),
        (b"cancel - - ", CancelAsked("")),
        (b"amend - - 1700000000000", AmendAsked(1_700_000_000_000)),
        (b"cancel - - \xff", CancelAsked("\ufffd")),
    ],
)
def test_messages(message: bytes, event: object) -> None:
    assert wire.read_message(message, None) == event


@pytest.mark.parametrize("message", [b"", b"hello r1 a more", b"cancelled - - x"])
def test_a_message_of_no_kind_we_know_is_not_taken_for_another(message: bytes) -> None:
    with pytest.raises(ValueError, match="no message begins with"):
        wire.read_message(message, None)


@given(values)
def test_what_comes_back_is_not_refused(value: Any) -> None:
    wire.check_json(value)


def nested(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels - 1):
        value = [value]
    return value


def test_thirty_two_levels_are_the_most() -> None:
    wire.check_json(nested(32))
    wire.check_json({"a": ["x", *nested(31)]})
    with pytest.raises(InvalidDocument, match="deeper than 32 levels"):
        wire.check_json(nested(33))


@pytest.mark.parametrize(
    ("value", "field", "words"),
    [
        (float("nan"), "", "is nan"),
        ({"a": [1, float("-inf")]}, "a.1", "is -inf"),
        ({"a": {"b": 1 << 64}}, "a.b", "beyond 64 bits"),
        ({"a": -(1 << 63) - 1}, "a", "beyond 64 bits"),
        ([b"x"], "0", "bytes"),
        ({"a": {1: 2}}, "a", "the key 1"),
        ({"a": {b"b": 2}}, "a", "keys must be text"),
        ({"a": "\udc00"}, "a", "surrogate"),
        ({"a": {"\ud800": 1}}, "a", "surrogate"),
        ((1, {2}), "1", "type set"),
    ],
)
def test_what_json_cannot_carry_is_refused_by_its_place(value: Any, field: str, words: str) -> None:
    with pytest.raises(InvalidDocument) as caught:
        wire.check_json(value)
    assert caught.value.field == field
    assert words in caught.value.message


@given(st.binary(max_size=200), encodings)
def test_any_bytes_are_read_or_refused(data: bytes, encoding: str) -> None:
    with suppress(InvalidDocument):
        wire.load(data, encoding)
