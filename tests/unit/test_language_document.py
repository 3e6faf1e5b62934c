"""Text to document: YAML and JSON, their types, their bounds, and what is refused."""

import pytest

from coordinator.language.document import document_digest, parse_document
from coordinator.language.errors import DefinitionError


def refusal(text: str) -> str:
    with pytest.raises(DefinitionError) as caught:
        parse_document(text)
    return str(caught.value)


def test_yaml_and_json_give_the_same_document():
    assert parse_document("a: 1\nb: [x, {c: null}]\n") == parse_document('{"a": 1, "b": ["x", {"c": null}]}')


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("no", "no"),
        ("on", "on"),
        ("Yes", "Yes"),
        ("true", True),
        ("FALSE", False),
        ("2024-01-31", "2024-01-31"),
        ("12:30:45", "12:30:45"),
        ("1_000", "1_000"),
        ("0x1f", "0x1f"),
        ("010", 10),
        ("-7", -7),
        ("1e3", 1000.0),
        (".5", 0.5),
        (".nan", ".nan"),
        ("~", None),
        ("", None),
        ("'1'", "1"),
        ("a + b", "a + b"),
    ],
)
def test_plain_yaml_words_have_the_types_of_the_core_schema(written, value):
    result = parse_document(f"key: {written}")["key"]
    assert result == value
    assert type(result) is type(value)


def test_a_yaml_mapping_may_begin_with_a_brace():
    assert parse_document("{name: answer, stages: {}}") == {"name": "answer", "stages": {}}


def test_aliases_share_values_but_a_merge_key_is_a_key_like_any_other():
    assert parse_document("a: &x [1]\nb: *x\n<<: {c: 2}") == {"a": [1], "b": [1], "<<": {"c": 2}}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: 2\na: 3\n", "document: the key 'a' is given twice, again at line 3"),
        ('{"a": {"b": 1, "b": 2}}', "document: the key 'b' is given twice in one mapping"),
        ("a: [", "document: is not valid YAML at line 2, column 1: did not find expected node content"),
        ('{"a": 1', "document: is not valid JSON at line 1, column 8: Expecting ',' delimiter"),
        ('{"a": NaN}', "document: NaN is not a JSON number"),
        ("a: 1e999", "a: inf is not a JSON number"),
        ("1: a", "document: the key 1 is not text; write it in quotes"),
        ("a: {true: b}", "a: the key True is not text; write it in quotes"),
        ("a: 99999999999999999999", "a: the integer does not fit 64 bits; write it as text"),
        (
            "a: !!python/object/apply:os.system [ls]",
            "document: uses a tag, which JSON does not have; leave it out, at line 1",
        ),
        ("a: 1\nb: !!binary aGk=", "document: uses a tag, which JSON does not have; leave it out, at line 2"),
        ('{"a": "\\ud800"}', "a: holds half of a surrogate pair, which UTF-8 cannot carry"),
        ("\ud800", "document: holds half of a surrogate pair, which UTF-8 cannot carry"),
        ("- a\n- b", "document: must be a mapping with name, stages and what the language allows beside"),
        ("", "document: must be a mapping with name, stages and what the language allows beside"),
        ("a: 1\n---\nb: 2", "document: is not valid YAML at line 2, column 1: but found another document"),
        ("? [a]\n: b", "document: is not valid YAML at line 1, column 3: found unhashable key"),
    ],
)
def test_refusals_name_place_and_cause(text, message):
    assert refusal(text) == message


def test_size_is_bounded():
    assert refusal("a: " + "x" * (1 << 20)) == "document: is 1048579 bytes long; at most 1048576 are allowed"
    # Multiplied by aliases: short as text, long as JSON.
    assert refusal("a: &a " + "x" * 600_000 + "\nb: *a\n") == "b: the value is larger than 1048576 bytes"
    assert "holds more than 100000 values" in refusal("a: [" + "1," * 100_000 + "]")


def test_depth_is_bounded_in_yaml_and_json():
    def nested_json(depth):
        return '{"a":' * depth + "1" + "}" * depth

    def nested_yaml(depth):
        return "".join("  " * level + "a:\n" for level in range(depth)) + "  " * depth + "1\n"

    assert parse_document(nested_json(32)) == parse_document(nested_yaml(32))
    assert refusal(nested_json(33)).endswith(": is nested deeper than 32 levels")
    assert refusal(nested_yaml(33)) == "document: is nested deeper than 32 levels, at line 33"
    assert refusal("{" * 300_000).startswith("document: is not valid JSON at line 1, column 2")
    assert "nested" in refusal('{"a":' * 100_000)
    assert "nesting" in refusal("a: " + "[" * 300_000)


def test_alias_bombs_and_circles_are_refused():
    bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
        f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12)
    )
    assert "larger than 1048576 bytes" in refusal(bomb)
    assert "nested deeper than 32 levels" in refusal("a: &a [*a]")


def test_the_digest_ignores_the_order_of_keys_only():
    one = parse_document("name: a\nstages: {x: {tool: t}}")
    two = parse_document('{"stages": {"x": {"tool": "t"}}, "name": "a"}')
    assert document_digest(one) == document_digest(two)
    assert document_digest(one) != document_digest({**one, "name": "b"})
    # The SHA-256 of the UTF-8 bytes {"a":"é"}.
    assert document_digest({"a": "é"}) == "b3a092a6af48807fa9482b2ee140105575daa26d5b24b3c0e60a7e2dee6683b1"
