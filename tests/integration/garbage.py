"""Garbage for the tests that send it: documents that are nearly right, and bytes that are none. Not a test itself."""

import copy
import json
import math
from collections.abc import Iterator
from typing import Any, TypeVar

import msgpack
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

T = TypeVar("T")
AT_ONCE = 5
"""Drawing is slow: less so where several are drawn at a time."""
Fields = dict[bytes, bytes]

BOMBS = [
    "{{ 'x' * 10 ** 9 }}", "{{ 9 ** 9 ** 9 }}", "{{ [0] * 10 ** 9 }}", "{{ '%999999999d' % 1 }}",
    "{{ '{:>999999999}'.format(1) }}", "{{ range(10 ** 9) | list }}", "{{ 'a' | indent(10 ** 9) }}",
    "{% for a in range(999) %}{% for b in range(999) %}{% for c in range(999) %}x{% endfor %}{% endfor %}{% endfor %}",
    "{% set x = 'xxxxxxxx' %}" + "{% set x = x ~ x %}" * 60 + "{{ x }}",
    "{% macro a() %}{{ a() }}{% endmacro %}{{ a() }}", "{% include '/etc/passwd' %}", "{{ ''.__class__.__mro__ }}",
    "{{ " + "(" * 3000 + "1" + ")" * 3000 + " }}", "{{ " + "-" * 5000 + "1 }}", "{{ a" + ".b" * 5000 + " }}",
    "{{ inputs | tojson | replace('', 'x' * 1000) }}", "{% if " + "not " * 5000 + "1 %}{% endif %}",
]  # fmt: skip
EXPRESSIONS = [
    "{{", "}}", "{{ inputs.a }}", "{{ a.output }}", "{{ 1 / 0 }}", "range(100000)", "range(1000) | list", "inputs.a",
    "a.output", "1 / 0", "true", "round < 2", "item", "previous", "output",
]  # fmt: skip
OPERANDS = ["inputs.x", "inputs.x[0]", "inputs.x.gone", "7", "'x'", "[1, 'b']", "range(9)", "none", "{'k': 1}", "0"]
OPERATORS = [" + ", " * ", " / ", " ~ ", " ** ", " < ", " in ", " and "]
FILTERS = [
    " | tojson",
    " | length",
    " | sum",
    " | join(', ')",
    " | fromjson",
    " | list",
    " | first",
    " | upper",
    " | int",
]
WORDS = ["", " ", "é", "\x00", "\ud800", "a b", "a:b", "a\n", "17-0", "x" * 5000, "all", "string", "any", "one"]
NUMBERS = [
    True, 0, 1, -1, 1000, 604_800, 1 << 31, 1 << 63, 1 << 64, -(1 << 63) - 1, 10**400, 0.0, 1e-300, 0.5, 1e308,
    float("nan"), float("inf"), float("-inf"),
]  # fmt: skip
KEYS = [
    "", "a", "b", "\ud800", "y" * 3000, "prompt", "messages", "tool", "args", "stages", "for_each", "repeat", "while",
    "when", "join", "quorum", "needs", "optional", "output", "inputs", "json_schema", "cancel", "workflow", "id", "v",
    "amend", "on_deadline", "deadline_at",
]  # fmt: skip
UNJSONLY = [b"\xff", msgpack.ExtType(5, b"x"), msgpack.Timestamp(1), {1: 2}, {b"k": 1}, (1 << 64) - 1]
"""What MessagePack can carry, and JSON not, or hardly."""

CALL: dict[str, Any] = {"prompt": "say {{ inputs.a }}", "max_tokens": 8, "stop": ["end"], "requires": [], "retries": 0}
DOCUMENTS: list[dict[str, Any]] = [
    {"workflow": "known", "inputs": {"a": "x"}, "slo_s": 30, "tenant": "acme", "v": 1},
    {"workflow": "known", "inputs": {"a": [1, {"b": None}]}, "id": "order-1", "stream": True, "on_deadline": "cancel"},
    {"cancel": "nobody", "reason": "sold out"},
    {"amend": "order-1", "slo_s": 5},
    {"workflow": {"name": "one", "inputs": {"a": {"type": "any", "default": 1}}, "stages": {"a": CALL}}},
    {"workflow": {"name": "chain", "output": "b.output",
                  "stages": {"a": {"prompt": "x"}, "b": {"needs": ["a"], "prompt": "{{ a.output }}"}}}, "slo_s": 5},
    {"workflow": {"name": "wide", "stages": {
        "a": {"for_each": [1, 2, 3], "join": {"quorum": 2}, "prompt": "{{ item }}"},
        "b": {"for_each": "range(3) | list", "join": "first_success", "prompt": "{{ index }}"}}}},
    {"workflow": {"name": "loop", "stages": {"a": {"repeat": {"while": "round < 2", "max": 3}, "optional": True,
                  "stages": {"x": {"messages": [{"role": "user", "content": "{{ round }}"}]}}, "output": "x.output"}}}},
    {"workflow": {"name": "tool", "stages": {"a": {"tool": "sql.execute", "args": {"sql": "{{ 1 }}", "n": [1]},
                  "when": "true", "timeout_s": 5, "expect": {"seconds": 1}}}}},
    {"workflow": {"name": "typed", "stages": {"a": {"prompt": "x", "json_schema": {"type": "array", "items": {}}}}}},
]  # fmt: skip


def nested(levels: int) -> Any:
    value: Any = []
    for level in range(levels):
        value = [value] if level % 2 else {"a": value}
    return value


deep = st.sampled_from([30, 33, 200]).map(nested)
ODD: list[Any] = [*EXPRESSIONS, *BOMBS, None, [], {}, [0] * 2000]
odd: st.SearchStrategy[Any] = st.one_of(
    st.sampled_from(NUMBERS), st.sampled_from(WORDS), st.sampled_from(ODD), st.sampled_from(DOCUMENTS), deep,
    st.text(max_size=8),
)  # fmt: skip
odder = odd | st.sampled_from(UNJSONLY)


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Each container in a value with each of its keys."""
    for key in list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield value, key
        yield from _places(value[key])


@st.composite
def mutated(draw: st.DrawFn, value: Any, odds: st.SearchStrategy[Any]) -> Any:
    """The value, changed in one to three places: a part is gone, another, elsewhere or has another name."""
    root = [copy.deepcopy(value)]
    for _ in range(draw(st.integers(1, 3))):
        places = list(_places(root))
        container, key = places[draw(st.integers(0, len(places) - 1))]
        how = draw(st.sampled_from(["replace", "replace", "drop", "rename", "copy"]))
        if how == "replace" or container is root:
            container[key] = copy.deepcopy(draw(odds))
        elif how == "drop":
            del container[key]
        elif how == "rename" and isinstance(container, dict):
            container[draw(st.sampled_from(KEYS))] = container.pop(key)
        else:
            other, at = places[draw(st.integers(0, len(places) - 1))]
            container[key] = copy.deepcopy(other[at])
    return root[0]


def packed(value: Any) -> bytes | None:
    """As MessagePack; None where even that cannot carry it."""
    try:
        data: bytes = msgpack.packb(value, unicode_errors="surrogatepass")
    except (OverflowError, ValueError, TypeError):
        return None
    return data


def _entry(value: Any, encoding: str) -> Fields:
    data = packed(value) if encoding == "msgpack" else None
    if data is not None:
        return {b"msgpack": data}
    return {b"json": json.dumps(value, default=repr, skipkeys=True).encode()}


@st.composite
def damaged(draw: st.DrawFn, whole: bytes) -> bytes:
    """Bytes of which some are lost, others or too many."""
    at = draw(st.integers(0, len(whole)))
    after = draw(st.sampled_from([0, 0, 1, 2, 1 << 30]))
    return whole[:at] + draw(st.binary(max_size=4)) + whole[at + after :]


expressions = st.tuples(
    st.sampled_from(OPERANDS), st.sampled_from(OPERATORS), st.sampled_from(OPERANDS), st.sampled_from(["", *FILTERS])
).map("".join) | st.sampled_from(OPERANDS)  # fmt: skip
templates = expressions.map("{{{{ {} }}}}".format) | expressions.map("{{{{ {} }}}}".format) | st.sampled_from(BOMBS)
written = st.fixed_dictionaries(
    {
        "name": st.just("written"), "inputs": st.just({"x": {"type": "any", "default": [1, "x"]}}),
        "stages": st.fixed_dictionaries({
            "a": st.fixed_dictionaries({"prompt": templates}),
            "b": st.fixed_dictionaries(
                {"needs": st.just(["a"]), "prompt": templates}, optional={"when": expressions, "for_each": expressions}
            ),
        }),
    }, optional={"output": expressions},
)  # fmt: skip
"""Definitions of a right shape, whose templates do what they like."""


@st.composite
def entries(draw: st.DrawFn) -> Fields:
    """What somebody may add to the stream of submissions."""
    document = draw(st.sampled_from(DOCUMENTS))
    how = draw(st.sampled_from(["document"] * 4 + ["written"] * 2 + ["anything", "damaged", "damaged", "bytes"]))
    encoding = draw(st.sampled_from(["json", "msgpack"]))
    if how == "bytes":
        names = st.sampled_from([b"json", b"msgpack", b"JSON", b"\xff", b""])
        return draw(st.dictionaries(names, st.binary(max_size=40), min_size=1, max_size=3))
    if how == "written":
        return _entry({"workflow": draw(written)}, encoding)
    if how == "anything":
        return _entry(draw(odder), encoding)
    if how == "damaged":
        ((name, data),) = _entry(document, encoding).items()
        return {name: draw(damaged(data))}
    return _entry(draw(mutated(document, odder if encoding == "msgpack" else odd)), encoding)


def drawn(strategy: st.SearchStrategy[T], count: int) -> list[T]:
    """So many of them, always the same."""
    found: list[T] = []

    @settings(
        max_examples=math.ceil(count / AT_ONCE), derandomize=True, database=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(st.lists(strategy, min_size=AT_ONCE, max_size=AT_ONCE))
    def collect(some: list[T]) -> None:
        found.extend(some)

    collect()
    return found[:count]
