"""JSON Schemas of tenants: what cannot be checked within bounds is refused, and what is checked ends within them."""

import json
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common import jsonschema_check
from common.jsonschema_check import misfit, schema_fault
from coordinator.language.compiler import MOST_SCHEMA_MAPPINGS, compile_definition
from coordinator.language.errors import DefinitionError
from workers.answer import parsed
from workers.engines.protocol import EngineError
from workers.engines.schema_sample import sample

BACKTRACKING = {"type": "string", "const": "x" * 64, "pattern": "^(x+)+y$"}


def doubling(keyword: str, levels: int) -> dict[str, Any]:
    """Of small size; followed through it is 2 ** levels long."""
    names = [{"$ref": f"#/$defs/n{at}"} for at in range(levels + 1)]
    defs = {f"n{at}": {keyword: [names[at + 1], names[at + 1]]} for at in range(levels)}
    return {"allOf": [names[0]], "$defs": {**defs, f"n{levels}": {"type": "string"}}}


@pytest.mark.parametrize(
    ("schema", "fault"),
    [
        (BACKTRACKING, "holds pattern, which is not supported: a regular expression can take for ever"),
        ({"not": {"items": [BACKTRACKING]}}, "holds pattern, which is not supported"),
        ({"$ref": "#/somewhere", "somewhere": BACKTRACKING}, "holds pattern, which is not supported"),
        ({"additionalProperties": False, "patternProperties": {"^(x+)+y$": {}}}, "holds patternProperties, which"),
        (
            {"unevaluatedProperties": False},
            "holds unevaluatedProperties, which is not supported: its work has no bound",
        ),
        ({"unevaluatedItems": False}, "holds unevaluatedItems, which"),
        ({"minLength": 10_000_000_000}, "holds minLength of 10000000000; at most 1048576 are allowed"),
        ({"properties": {"a": {"minItems": 1e10}}}, "holds minItems of 10000000000.0; at most"),
        ({"items": {"$schema": "http://json-schema.org/draft-07/schema#"}}, r"holds \$schema inside"),
        ({"type": 3}, "is no JSON Schema: 3 is not"),
    ],
)
def test_what_has_no_bound_is_refused_where_it_is_submitted(schema: dict[str, Any], fault: str) -> None:
    document = {"name": "w", "stages": {"a": {"prompt": "p", "json_schema": schema}}}
    with pytest.raises(DefinitionError, match=f"stages.a.json_schema: {fault}"):
        compile_definition(document)
    with pytest.raises(EngineError, match=fault):
        sample(schema)


@pytest.mark.parametrize("schema", [BACKTRACKING, {"patternProperties": {"^(x+)+y$": {}}}])
def test_a_worker_does_not_try_what_an_older_coordinator_has_let_through(schema: dict[str, Any]) -> None:
    with pytest.raises(EngineError, match="which is not supported") as refused:
        parsed(json.dumps("x" * 64), schema)
    assert not refused.value.retryable


def test_what_only_has_the_name_of_a_keyword_is_allowed() -> None:
    schema = {"properties": {"pattern": {"type": "string"}, "minLength": {"type": "integer"}}, "required": ["pattern"]}
    assert schema_fault(schema) is None
    assert misfit({"pattern": "x", "minLength": 1 << 30}, schema) is None


def test_the_schemas_of_a_definition_are_bounded_together() -> None:
    half = {"anyOf": [{"type": "string"}] * (MOST_SCHEMA_MAPPINGS // 2)}
    stages = {name: {"prompt": "p", "json_schema": half} for name in "ab"}
    with pytest.raises(DefinitionError, match=r"stages\.b.json_schema: a definition has at most 4000 mappings"):
        compile_definition({"name": "w", "stages": stages})


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (doubling("allOf", 30), "x"),
        (doubling("anyOf", 30), 1),
        (doubling("oneOf", 30), 1),
        ({"$schema": "http://json-schema.org/draft-07/schema#", **doubling("allOf", 30)}, "x"),
        ({"anyOf": [{"enum": list(range(10_000))}] * 20}, [[0] * 100_000]),
        ({"uniqueItems": True}, [{"n": at} for at in range(5_000)]),
        ({"$ref": "#"}, "x"),
        ({"allOf": [{"$ref": "#"}, {"$ref": "#"}], "$schema": "http://json-schema.org/draft-07/schema#"}, "x"),
    ],
)
def test_a_check_that_takes_too_much_ends_in_a_sentence(schema: dict[str, Any], value: Any) -> None:
    assert schema_fault(schema) is None
    with pytest.raises(
        ValueError, match=r"json_schema cannot be applied: (with this answer it takes|maximum recursion)"
    ):
        misfit(value, schema)


def test_ordinary_work_is_enough() -> None:
    row = {"type": "object", "required": ["id", "name"], "additionalProperties": False, "properties": {
        "id": {"type": "integer", "minimum": 0}, "name": {"type": "string", "minLength": 1},
        "kind": {"enum": ["a", "b"]},
    }}  # fmt: skip
    schema = {
        "type": "object",
        "properties": {"rows": {"type": "array", "items": {"$ref": "#/$defs/row"}}},
        "$defs": {"row": row},
    }
    rows = [{"id": at, "name": f"the name of {at}", "kind": "a"} for at in range(3_000)]
    assert misfit({"rows": rows}, schema) is None
    assert (
        misfit({"rows": [*rows, {"id": -1, "name": ""}]}, schema) == "$.rows[3000].id: -1 is less than the minimum of 0"
    )
    assert misfit([f"text {at}" for at in range(10_000)], {"uniqueItems": True}) is None
    assert misfit(list(range(10_000)), {"uniqueItems": True}) is None


NAMES = [{"$ref": f"#/$defs/n{at}"} for at in range(8)]
PARTS = st.recursive(
    st.sampled_from([*NAMES, {}, {"type": "array"}, {"type": "object"}, {"uniqueItems": True}, {"const": [1, 2]}]),
    lambda inner: st.one_of(
        st.tuples(st.sampled_from(["allOf", "anyOf", "oneOf"]), st.lists(inner, min_size=1, max_size=3)),
        st.tuples(st.sampled_from(["not", "items", "contains", "additionalProperties", "propertyNames", "if"]), inner),
    ).map(lambda pair: dict([pair])),
    max_leaves=6,
)  # fmt: skip
VALUES = st.recursive(
    st.sampled_from([1, "x", None]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=30,
)  # fmt: skip
CALLS_PER_STEP = 300
STEPS = 300


@settings(max_examples=150, deadline=None)
@given(st.lists(PARTS, min_size=8, max_size=8), VALUES)
def test_every_check_ends_within_its_steps(defs: list[dict[str, Any]], value: Any) -> None:
    schema = {"allOf": [NAMES[0]], "$defs": {f"n{at}": part for at, part in enumerate(defs)}}
    assert schema_fault(schema) is None
    calls = 0

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event == "call"

    before, jsonschema_check.MOST_STEPS = jsonschema_check.MOST_STEPS, STEPS
    sys.setprofile(count)
    try:
        misfit(value, schema)
    except ValueError:
        pass
    finally:
        sys.setprofile(None)
        jsonschema_check.MOST_STEPS = before
    assert calls < CALLS_PER_STEP * STEPS
