"""The filters that are ours, and the plain functions behind them. No environment here: text and JSON in and out.

Jinja2's own `join`, `replace`, `indent`, `round`, `sum` and `tojson` are replaced: they multiply sizes without a bound
or write HTML escapes. The others in use are named in `sandbox`.
"""

import json
import re
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from jinja2 import Undefined

from common.model import Json
from coordinator.language.errors import clipped, shown
from coordinator.language.values import MIB, JsonFault, to_json

LONGEST_TEXT = MIB

_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})[ \t]*([^\s`]*)[^\n]*$", re.MULTILINE)
_WIDEST_INDENT = 100
_encode = json.JSONEncoder(ensure_ascii=False).encode


class FilterError(Exception):
    """A filter or operator was given what it cannot work with; the message says what."""


def bounded(length: int) -> None:
    """Refuses a text that would grow past 1 MiB."""
    if length > LONGEST_TEXT:
        raise FilterError(f"the text is longer than {LONGEST_TEXT} characters")


def text_of(value: Any) -> str:
    """How a value reads in a text: a string as it is, all else as JSON (null, true, 1, ["a"])."""
    if isinstance(value, str | Undefined):
        return str(value)
    if value is None or isinstance(value, bool):
        return shown(value)
    return str(value) if type(value) is int else tojson(value)


def unwrapped(value: object) -> None:
    """Null for an inline `if` that has no `else`; raises for what is undefined or no value at all."""
    if not isinstance(value, Undefined):
        kind = "function" if callable(value) else type(value).__name__
        raise FilterError(f"a {kind} is not a value")
    str(value)


def tojson(value: Any, indent: int | None = None) -> str:
    """The value as JSON text, without HTML escapes; `indent` of 0 to 8 spreads it over lines."""
    if indent is not None and not 0 <= indent <= 8:
        raise FilterError("tojson: indent must be 0 to 8")
    try:
        plain = to_json(value, size=LONGEST_TEXT, other=unwrapped)
    except JsonFault as fault:
        raise FilterError(fault.message) from None
    return _encode(plain) if indent is None else json.dumps(plain, ensure_ascii=False, indent=indent)


def fromjson(text: Any) -> Json:
    """The value that a JSON text holds."""
    try:
        return to_json(json.loads(_text("fromjson", text), parse_constant=_no_constant))
    except json.JSONDecodeError as error:
        raise FilterError(f"fromjson: not JSON at line {error.lineno}, column {error.colno}: {error.msg}") from None
    except JsonFault as fault:
        raise FilterError(f"fromjson: {fault.message}") from None


def code_block(text: Any, language: Any = "") -> str:
    """The last fenced block of `language`, else the last one that names none, else the text itself, all stripped.

    A model that ran out of tokens leaves its last block open: it reaches to the end. Without a language any block
    will do.
    """
    answer = _text("code_block", text)
    wanted = _text("code_block", language).lower()
    best: tuple[bool, str] | None = None
    for found, body in _blocks(answer):
        if not wanted or found == wanted:
            best = (True, body)
        elif not found and not (best and best[0]):
            best = (False, body)
    return best[1] if best else answer.strip()


def join(value: Iterable[Any], separator: Any = "", attribute: None = None) -> str:
    """The elements as text, with `separator` between them."""
    if attribute is not None:
        raise FilterError("join: take the key with map(attribute=...) before it")
    parts: list[str] = []
    between = text_of(separator)
    length = 0
    for element in value:
        parts.append(text_of(element))
        length += len(parts[-1]) + len(between)
        bounded(length)
    return between.join(parts)


def replace(text: Any, old: Any, new: Any, count: int = -1) -> str:
    """The text with `old` replaced by `new`, the first `count` times only if given."""
    whole, before, after = (_text("replace", part) for part in (text, old, new))
    times = whole.count(before) if count < 0 else min(count, whole.count(before))
    bounded(len(whole) + times * max(0, len(after) - len(before)))
    return whole.replace(before, after, count)


def indent(text: Any, width: int | str = 4, first: bool = False, blank: bool = False) -> str:
    """The text with every line but the first (`first` adds it) moved right; empty lines stay unless `blank`."""
    if not isinstance(width, str) and not 0 <= width <= _WIDEST_INDENT:
        raise FilterError(f"indent: width must be 0 to {_WIDEST_INDENT}")
    margin = width if isinstance(width, str) else " " * width
    lines = _text("indent", text).split("\n")
    bounded(sum(map(len, lines)) + len(lines) * (len(margin) + 1))
    moved = [margin + line if blank or line else line for line in lines]
    return "\n".join(moved if first else [lines[0], *moved[1:]])


def rounded(value: float, precision: int = 0) -> float:
    """The number to `precision` (0 to 15) digits after the point, always a fraction as in Jinja2."""
    if not 0 <= precision <= 15:
        raise FilterError("round: precision must be 0 to 15")
    return round(float(value), precision)


def total(value: Iterable[Any], start: float = 0) -> float:
    """The sum of numbers."""
    for element in value:
        if not isinstance(element, int | float):
            raise FilterError(f"sum: adds numbers only, not a {type(element).__name__}")
        start += element
    return start


FILTERS: dict[str, Callable[..., Any]] = {
    "code_block": code_block,
    "fromjson": fromjson,
    "indent": indent,
    "join": join,
    "replace": replace,
    "round": rounded,
    "string": text_of,
    "sum": total,
    "tojson": tojson,
}


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise FilterError(f"{name}: needs text, not {clipped(text_of(value), 64)}")
    return value


def _no_constant(name: str) -> NoReturn:
    raise FilterError(f"fromjson: {name} is not a JSON number")


def _blocks(text: str) -> Iterable[tuple[str, str]]:
    """Language and body of each fenced block, in order."""
    fence, language, start = "", "", 0
    for line in _FENCE.finditer(text):
        if not fence:
            fence, language, start = line[1], line[2].lower(), line.end()
        elif line[1].startswith(fence) and line[0].strip() == line[1]:
            yield language, text[start : line.start()].strip()
            fence = ""
    if fence:
        yield language, text[start:].strip()
