"""The inputs of a submission against what the definition declares."""

import math

import pytest

from coordinator.language.compiler import compile_definition
from coordinator.language.errors import InputError
from coordinator.language.inputs import validate_inputs


def declared(**inputs):
    return compile_definition({"name": "answer", "inputs": inputs, "stages": {"a": {"tool": "t"}}})


FLOW = declared(
    question={"type": "string"},
    evidence={"type": "string", "default": ""},
    limit={"type": "integer", "default": None},
)


def refusal(inputs, definition=FLOW) -> str:
    with pytest.raises(InputError) as caught:
        validate_inputs(definition, inputs)
    return str(caught.value)


def test_defaults_are_filled_in():
    assert validate_inputs(FLOW, {"question": "q"}) == {"question": "q", "evidence": "", "limit": None}
    assert validate_inputs(FLOW, {"limit": 3, "question": "q"}) == {"question": "q", "evidence": "", "limit": 3}
    assert validate_inputs(FLOW, {"question": "q", "limit": None})["limit"] is None
    assert validate_inputs(declared(), {}) == {}


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({}, "inputs.question: is missing; give a string"),
        ({"question": None}, "inputs.question: must be a string, not null"),
        ({"question": "q", "limit": "3"}, "inputs.limit: must be an integer, not '3'"),
        ({"question": "q", "evidence": None}, "inputs.evidence: must be a string, not null"),
        ({"question": "q", "qestion": 1}, "inputs.qestion: is no input of 'answer'; did you mean 'question'?"),
        ({"question": "q", "zzz": 1}, "inputs.zzz: is no input of 'answer'; there are: evidence, limit, question"),
        ([], "inputs: must be a mapping, not a list"),
        (None, "inputs: must be a mapping, not null"),
        ({"question": {"a": [math.nan]}}, "inputs.question.a.0: nan is not a JSON number"),
        ({"question": "\ud800"}, "inputs.question: holds half of a surrogate pair"),
        ({"question": "x" * (1 << 21)}, "inputs.question: the value is larger than 1048576 bytes"),
        ({1: 2}, "inputs: the key 1 is not text"),
    ],
)
def test_refusals_name_the_input(inputs, message):
    assert refusal(inputs).startswith(message)


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        ("string", ["", "a"], [1, None, [], {}, True]),
        ("number", [1, 1.5, -2], ["1", None, True]),
        ("integer", [0, -5], [1.0, "1", True]),
        ("boolean", [True, False], [0, 1, "true", None]),
        ("array", [[], [1, {}]], [{}, "a", None]),
        ("object", [{}, {"a": [1]}], [[], "a", None]),
        ("any", ["a", 1, None, True, [], {}], []),
    ],
)
def test_types(kind, good, bad):
    definition = declared(x={"type": kind})
    for value in good:
        assert validate_inputs(definition, {"x": value}) == {"x": value}
    article = "an" if kind[0] in "aio" else "a"
    for value in bad:
        assert refusal({"x": value}, definition).startswith(f"inputs.x: must be {article} {kind}, not ")


def test_the_result_is_a_copy():
    given = {"x": [1]}
    result = validate_inputs(declared(x={"type": "array"}), given)
    given["x"].append(2)
    assert result == {"x": [1]}
