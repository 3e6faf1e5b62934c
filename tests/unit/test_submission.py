"""Submissions: what is taken, what is refused and under which name; docs/schemas/submission.json says the same."""

import json
import re
from pathlib import Path
from typing import Any

import msgpack
import pytest
from hypothesis import find, given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator, ValidationError, validators

from common.errors import InvalidDocument
from common.submission import MAX_DOCUMENT_BYTES, Submission, read_submission

SCHEMA = json.loads((Path(__file__).resolve().parents[2] / "docs" / "schemas" / "submission.json").read_text("utf-8"))


def sent(document: Any) -> dict[bytes, bytes]:
    return {b"json": json.dumps(document).encode()}


def read(document: Any) -> Submission:
    return read_submission(sent(document))[0]


def refusal(fields: dict[bytes, bytes]) -> InvalidDocument:
    with pytest.raises(InvalidDocument) as caught:
        read_submission(fields)
    return caught.value


def test_the_least_document() -> None:
    found = read({"workflow": "text2sql"})
    assert (found.workflow, found.id, found.tenant, found.inputs, found.stream) == (
        "text2sql", None, "default", {}, False
    )  # fmt: skip
    assert (found.slo_s, found.deadline_at, found.on_deadline, found.cancel) == (None, None, "continue", None)


def test_a_whole_document_in_either_encoding() -> None:
    document = {
        "v": 1, "id": "order-17", "tenant": "acme", "workflow": {"name": "x"}, "inputs": {"a": [1, None]},
        "slo_s": 2.5, "on_deadline": "cancel", "stream": True,
    }  # fmt: skip
    one, encoding, same = read_submission(sent(document))
    assert (encoding, same) == ("json", document)
    two, encoding, same = read_submission({b"msgpack": msgpack.packb(document), b"traceparent": b"\xff"})
    assert (encoding, same) == ("msgpack", document)
    assert one == two
    assert (one.id, one.tenant, one.inputs, one.slo_s) == ("order-17", "acme", {"a": [1, None]}, 2.5)
    assert one.on_deadline == "cancel"


def test_a_cancellation() -> None:
    assert read({"cancel": "1700000000000-0"}).reason == "cancelled by request"
    assert read({"cancel": "order-17", "reason": "sold out"}).reason == "sold out"


def test_an_amendment() -> None:
    assert (read({"amend": "order-17", "slo_s": 5}).amend, read({"amend": "a", "slo_s": 5}).slo_s) == ("order-17", 5)
    assert read({"amend": "1700000000000-0", "deadline_at": 9, "slo_s": None}).deadline_at == 9


def test_whole_numbers_may_have_a_point() -> None:
    assert read({"v": 1.0, "workflow": "x", "deadline_at": 1.7e12}).deadline_at == 1_700_000_000_000


REFUSED: list[tuple[Any, str, str]] = [
    ({}, "workflow", "give either workflow"),
    ({"workflow": "x", "cancel": "y"}, "workflow", "not both"),
    ({"workflow": None, "cancel": None}, "workflow", "give either"),
    ({"workflow": True}, "workflow", "name of a workflow or a definition"),
    ({"workflow": "x", "inptus": {}}, "inptus", "did you mean 'inputs'?"),
    ({"workflow": "x", "zzz": 1}, "zzz", "there are: amend, cancel, deadline_at, id, inputs"),
    ({"workflw": "x", "slo_s": "soon"}, "workflw", "did you mean 'workflow'?"),
    ({"workflow": "x", "v": 2}, "v", "write 1"),
    ({"workflow": "x", "v": True}, "v", "must be an integer"),
    ({"workflow": "x", "id": ""}, "id", "1 to 128 letters"),
    ({"workflow": "x", "id": "a b"}, "id", "letters, digits"),
    ({"workflow": "x", "id": "a\n"}, "id", "letters, digits"),
    ({"workflow": "x", "id": "a:events"}, "id", "letters, digits"),
    ({"workflow": "x", "id": "é"}, "id", "letters, digits"),
    ({"workflow": "x", "id": "a" * 129}, "id", "1 to 128"),
    ({"workflow": "x", "id": "17-0"}, "id", "id of a stream entry"),
    ({"workflow": "x", "id": 17}, "id", "must be text"),
    ({"workflow": "x", "tenant": None}, "tenant", "must be text"),
    ({"workflow": "x", "tenant": "-"}, "tenant", "beginning with a letter or digit"),
    ({"workflow": "x", "inputs": None}, "inputs", "must be a mapping"),
    ({"workflow": "x", "slo_s": 0}, "slo_s", "above 0"),
    ({"workflow": "x", "slo_s": -1.5}, "slo_s", "above 0"),
    ({"workflow": "x", "slo_s": 604801}, "slo_s", "at most 604800"),
    ({"workflow": "x", "slo_s": True}, "slo_s", "must be a number"),
    ({"workflow": "x", "slo_s": float("nan")}, "slo_s", "is nan"),
    ({"workflow": "x", "deadline_at": 1.5}, "deadline_at", "must be an integer"),
    ({"workflow": "x", "deadline_at": 1 << 64}, "deadline_at", "beyond 64 bits"),
    ({"workflow": "x", "deadline_at": 5, "slo_s": 5}, "deadline_at", "not both"),
    ({"workflow": "x", "on_deadline": "stop"}, "on_deadline", "must be 'continue' or 'cancel'"),
    ({"workflow": "x", "on_deadline": None}, "on_deadline", "must be 'continue' or 'cancel'"),
    ({"workflow": "x", "on_deadline": ["cancel"]}, "on_deadline", "must be 'continue' or 'cancel'"),
    ({"workflow": "x", "stream": "yes"}, "stream", "true or false"),
    ({"cancel": "a/b"}, "cancel", "letters, digits"),
    ({"amend": "a/b", "slo_s": 5}, "amend", "letters, digits"),
    ({"amend": "a"}, "amend", "give slo_s or deadline_at"),
    ({"amend": "a", "slo_s": None, "deadline_at": None}, "amend", "give slo_s or deadline_at"),
    ({"amend": "a", "slo_s": 5, "deadline_at": 5}, "deadline_at", "not both"),
    ({"amend": "a", "slo_s": 5, "cancel": "a"}, "workflow", "not both"),
    ({"amend": "a", "slo_s": 5, "workflow": "x"}, "workflow", "not both"),
    ({"cancel": "a", "reason": "x" * 501}, "reason", "at most 500 characters"),
    ({"workflow": "x", "inputs": {"a": [{"b": float("inf")}]}}, "inputs.a.0.b", "is inf"),
    ([], "", "must be a mapping"),
    ("x", "", "must be a mapping"),
]
BEYOND_SCHEMAS = ("is nan", "is inf", "beyond 64 bits")


@pytest.mark.parametrize(("document", "field", "words"), REFUSED)
def test_a_refusal_names_field_and_cause(document: Any, field: str, words: str) -> None:
    error = refusal(sent(document))
    assert error.field == field
    assert words in error.message


def test_an_entry_has_one_document() -> None:
    assert "one document" in refusal({}).message
    assert "one document" in refusal({b"JSON": b"{}"}).message
    assert "one document" in refusal({b"json": b"{}", b"msgpack": b"\x80"}).message


def test_a_mebibyte_is_the_most() -> None:
    around = len(json.dumps({"workflow": ""}))
    fits = "x" * (MAX_DOCUMENT_BYTES - around)
    assert read({"workflow": fits}).workflow == fits
    assert "1048577 bytes; at most 1048576" in refusal(sent({"workflow": fits + "x"})).message


names = st.sampled_from([b"json", b"msgpack", b"json ", b"\xff"])


@given(st.dictionaries(names, st.binary(max_size=300), max_size=3))
def test_any_entry_is_read_or_refused(fields: dict[bytes, bytes]) -> None:
    try:
        submission, encoding, _ = read_submission(fields)
    except InvalidDocument:
        return
    assert encoding.encode() in fields
    assert [submission.workflow, submission.cancel, submission.amend].count(None) == 2


# -- the schema says the same


def _ecma_pattern(validator: Any, pattern: str, instance: Any, schema: Any) -> Any:
    """Patterns mean what ECMA-262 says: to Python `$` also fits before a line end."""
    if isinstance(instance, str) and not re.search(re.sub(r"\$$", r"\\Z", pattern), instance):
        yield ValidationError(f"{instance!r} does not match {pattern!r}")


VALIDATOR = validators.extend(Draft202012Validator, {"pattern": _ecma_pattern})(SCHEMA)

leaves = (
    st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 64) - 1) | st.text(max_size=5)
    | st.floats(allow_nan=False, allow_infinity=False)
)  # fmt: skip
anything = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
identifiers = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,9}", fullmatch=True)
fitting: dict[str, st.SearchStrategy[Any]] = {
    "v": st.sampled_from([1, 1.0]),
    "id": identifiers | st.none(),
    "tenant": identifiers,
    "inputs": st.dictionaries(st.text(max_size=5), anything, max_size=2),
    "stream": st.booleans(),
    "on_deadline": st.sampled_from(["continue", "cancel"]),
    "reason": st.sampled_from(["", "x" * 500, "🚀" * 500]),
}
times: dict[str, st.SearchStrategy[Any]] = {
    "slo_s": st.sampled_from([1, 1e-300, 2.5, 604800, None]),
    "deadline_at": st.sampled_from([0, -1, 1.0, 1 << 63, 1e300, None]),
}
asked: dict[str, st.SearchStrategy[Any]] = {
    "workflow": st.text(max_size=5) | st.dictionaries(st.text(max_size=3), anything, max_size=2) | st.none(),
    "cancel": identifiers | st.from_regex(r"[0-9]{1,13}-[0-9]{1,3}", fullmatch=True) | st.none(),
    "amend": identifiers | st.none(),
}
odd = st.sampled_from(
    [0, 1, 1.5, -1, 604800.5, True, "1", "", "a\n", "a:b", "a" * 128, "a" * 129, "17-0", "é", "x" * 501, [], {}]
)


@st.composite
def documents(draw: st.DrawFn) -> dict[str, Any]:
    """A document that fits, or nearly: something is asked, with a time or not; now and then there is an odd value."""
    chosen = draw(st.lists(st.sampled_from(sorted(asked)), max_size=2)) or ["workflow"]
    chosen += draw(st.lists(st.sampled_from(sorted(times)), max_size=2))
    found = {name: draw((asked | times)[name]) for name in chosen}
    found |= draw(st.fixed_dictionaries({}, optional=fitting))
    for name in draw(st.lists(st.sampled_from([*SCHEMA["properties"], "inptus"]), max_size=1)):
        found[name] = draw(odd | anything)
    return found


def is_taken(document: dict[str, Any]) -> bool:
    try:
        read(document)
    except InvalidDocument:
        return False
    return True


@given(documents())
def test_what_is_taken_is_what_the_schema_allows(document: dict[str, Any]) -> None:
    assert is_taken(document) == VALIDATOR.is_valid(document)


@pytest.mark.parametrize("document", [document for document, _, words in REFUSED if words not in BEYOND_SCHEMAS])
def test_what_is_refused_is_what_the_schema_forbids(document: Any) -> None:
    assert not VALIDATOR.is_valid(document)


@pytest.mark.parametrize("taken", [True, False])
def test_the_documents_tried_are_of_both_kinds(taken: bool) -> None:
    found = find(documents(), lambda document: len(document) > 2 and is_taken(document) is taken)
    assert VALIDATOR.is_valid(found) is taken
