"""Responders: found by name, and the built-in echo, which also makes documents that fit a JSON schema."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema.validators import validator_for

from common.model import LlmCall, Sampling
from workers.engines.protocol import EngineCall, EngineError
from workers.engines.responders import Answer, load_responder, tokens_in
from workers.engines.schema_sample import sample


def call(prompt: str | None, *messages: str, schema: dict[str, Any] | None = None) -> EngineCall:
    parts = tuple({"role": "user", "content": message} for message in messages) or None
    return EngineCall("r", LlmCall(prompt, parts, None, Sampling(json_schema=schema)), "flow/stage")


@pytest.mark.parametrize(("text", "tokens"), [("", 1), ("a", 1), ("abcd", 1), ("abcde", 2), ("x" * 400, 100)])
def test_four_characters_are_a_token(text: str, tokens: int) -> None:
    assert tokens_in(text) == tokens


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        (call("first\nlast line\n"), Answer("last line", 3)),
        (call(None, "be brief", "one\ntwo"), Answer("two", 1)),
        (call("  \n"), Answer("", 1)),
    ],
)
def test_echo_says_the_last_line(asked: EngineCall, answer: Answer) -> None:
    assert load_responder("echo").respond(asked) == answer


def test_echo_takes_a_length() -> None:
    assert load_responder("echo:40").respond(call("hello")) == Answer("hello", 40)


@pytest.mark.parametrize("option", ["x", "0", "-1", "1.5"])
def test_echo_refuses_another_option(option: str) -> None:
    with pytest.raises(EngineError, match="echo takes a number of tokens, such as echo:40"):
        load_responder(f"echo:{option}")


def test_an_unknown_responder_is_told_the_known_ones() -> None:
    with pytest.raises(EngineError, match=r"no responder is named 'parrot'; known are .*echo"):
        load_responder("parrot:loud")


def test_echo_fits_the_schema() -> None:
    schema = {
        "type": "object",
        "properties": {"sql": {"type": "string"}, "rows": {"type": "array", "items": {"type": "integer"}}},
        "required": ["sql", "rows"],
    }
    answer = load_responder("echo").respond(call("hello", schema=schema))
    assert json.loads(answer.text) == {"sql": "", "rows": []}
    assert answer.output_tokens == tokens_in(answer.text)


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({}, None),
        ({"type": "boolean"}, False),
        ({"type": ["integer", "null"]}, 0),
        ({"enum": ["yes", "no"]}, "yes"),
        ({"const": None}, None),
        ({"type": "string", "minLength": 3}, "xxx"),
        ({"type": "integer", "minimum": 7, "multipleOf": 5}, 10),
        ({"type": "integer", "exclusiveMinimum": 7}, 8),
        ({"type": "integer", "maximum": -3}, -3),
        ({"type": "number", "minimum": 0.25, "maximum": 0.75}, 0.25),
        ({"minimum": 2}, 2),
        ({"prefixItems": [{"type": "integer"}], "items": {"type": "string"}, "minItems": 2}, [0, ""]),
        ({"required": ["a"], "properties": {"a": {"const": 1}, "b": {"const": 2}}}, {"a": 1}),
        ({"anyOf": [{"type": "integer"}, {"type": "string"}]}, 0),
        ({"allOf": [{"required": ["a"], "properties": {"a": {"const": 1}}}, {"required": ["b"]}]}, {"a": 1, "b": None}),
        ({"$ref": "#/$defs/a~1b", "$defs": {"a/b": {"type": "integer"}}}, 0),
    ],
)
def test_the_least_value_of_a_schema(schema: dict[str, Any], value: Any) -> None:
    assert sample(schema) == value
    assert validator_for(schema)(schema).is_valid(value)


TWICE = {"required": ["a", "b"], "properties": {"a": {"$ref": "#/$defs/n%d"}, "b": {"$ref": "#/$defs/n%d"}}}
DOUBLING = {
    "$ref": "#/$defs/n1",
    "$defs": {f"n{at}": json.loads(json.dumps(TWICE).replace("%d", str(at + 1))) for at in range(1, 15)} | {"n15": {}},
}
"""2 ** 14 leaves of two references each."""


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (
            {"type": "object", "required": ["a"], "properties": {"a": {"type": "string", "not": {"const": ""}}}},
            r"at \$\.a",
        ),
        ({"type": "integer", "minimum": 3, "maximum": 2}, "2"),
        ({"$ref": "#/$defs/missing"}, "leads nowhere"),
        ({"$ref": "https://example.org/schema"}, "leads nowhere"),
        (
            {"$ref": "#/$defs/n", "$defs": {"n": {"required": ["n"], "properties": {"n": {"$ref": "#/$defs/n"}}}}},
            "deep",
        ),
        ({"type": "string", "minLength": 1_000_000}, "values and characters"),
        ({"type": "array", "minItems": 1_000_000}, "values and characters"),
        ({"type": "array", "minItems": 1000, "items": {"const": "x" * 1000}}, "values and characters"),
        ({"type": "array", "minItems": 1000, "items": {"required": ["x" * 1000]}}, "values and characters"),
        (DOUBLING, "values and characters"),
        ({"type": "whatever"}, "is no JSON Schema"),
    ],
)
def test_where_none_is_found_it_says_so(schema: dict[str, Any], message: str) -> None:
    with pytest.raises(EngineError, match=message) as refused:
        sample(schema)
    assert not refused.value.retryable


def bounded(low: int, size: int, kind: str) -> dict[str, Any]:
    return {"type": kind, "minimum": low, "maximum": low + size}


LEAVES = st.one_of(
    st.builds(bounded, st.integers(-50, 50), st.integers(0, 50), st.sampled_from(["integer", "number"])),
    st.builds(lambda least, more: {"type": "string", "minLength": least, "maxLength": least + more},
              st.integers(0, 9), st.integers(0, 9)),
    st.sampled_from([{"type": "boolean"}, {"type": "null"}, {"enum": ["a", 1, None]}, {"const": {"k": [1]}}]),
)  # fmt: skip
SCHEMAS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.dictionaries(st.sampled_from("abcd"), inner, max_size=3).map(
            lambda members: {
                "type": "object",
                "properties": members,
                "required": sorted(members),
                "additionalProperties": False,
            }
        ),
        st.builds(lambda items, least: {"type": "array", "items": items, "minItems": least}, inner, st.integers(0, 3)),
        st.lists(inner, min_size=1, max_size=3).map(lambda choices: {"anyOf": choices}),
    ),
    max_leaves=8,
)


@settings(deadline=None, max_examples=60)
@given(schema=SCHEMAS)
def test_every_simple_schema_gets_a_value_that_fits(schema: dict[str, Any]) -> None:
    assert validator_for(schema)(schema).is_valid(sample(schema))
