"""JSON values made plain: copied, checked and bounded in one pass. Knows nothing of definitions or templates."""

import json
import math
from collections.abc import Callable, ItemsView, Iterator, KeysView, Mapping, ValuesView
from typing import Any, NoReturn

from common.model import Json

MIB = 1 << 20
DEEPEST_DOCUMENT = 32
DEEPEST_VALUE = 100

_SMALLEST_INT, _LARGEST_INT = -(1 << 63), (1 << 64) - 1
_SEQUENCES = (list, tuple, range, Iterator, KeysView, ValuesView, ItemsView)


class JsonFault(Exception):
    """A value that JSON or the wire cannot carry, or a bound passed; `keys` lead to it."""

    def __init__(self, message: str, keys: tuple[object, ...] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.keys = keys


def to_json(
    value: object,
    *,
    size: int = 8 * MIB,
    depth: int = DEEPEST_VALUE,
    other: Callable[[object], Json] | None = None,
) -> Json:
    """A plain copy of `value`: sequences and iterators become lists, mappings dicts. Raises JsonFault.

    `size` bounds the characters and elements together, counted as often as a shared part appears; `other` may turn a
    value of any further type into JSON.
    """
    return _Copier(size, depth, other or _refuse).copy(value, 0)


def compact(value: Json) -> str:
    """The canonical JSON of `value`: keys sorted, no spaces."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def check_text(text: str) -> str:
    """`text`, if UTF-8 can carry it. Raises JsonFault for half of a surrogate pair."""
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise JsonFault("holds half of a surrogate pair, which UTF-8 cannot carry") from None
    return text


def _refuse(value: object) -> NoReturn:
    raise JsonFault(f"a {type(value).__name__} is not a JSON value; write it as text, in quotes")


class _Copier:
    __slots__ = ("_depth", "_left", "_other", "_size")

    def __init__(self, size: int, depth: int, other: Callable[[object], Json]) -> None:
        self._size = self._left = size
        self._depth = depth
        self._other = other

    def copy(self, value: Any, depth: int) -> Json:
        kind = type(value)
        if kind is str:
            self._spend(len(value))
            return check_text(value)
        self._spend(1)
        if value is None or kind is bool:
            return value
        if kind is int or kind is float:
            return _number(value)
        if isinstance(value, Mapping):
            return self._mapping(value, self._deeper(depth))
        if isinstance(value, _SEQUENCES):
            return self._sequence(value, self._deeper(depth))
        if isinstance(value, str):
            return self.copy(str.__str__(value), depth)
        return self._other(value)

    def _mapping(self, value: Mapping[Any, Any], depth: int) -> Json:
        result: dict[str, Json] = {}
        for key, element in value.items():
            if type(key) is not str:
                raise JsonFault(f"the key {key!r} is not text; write it in quotes")
            self._spend(len(check_text(key)))
            try:
                result[key] = self.copy(element, depth)
            except JsonFault as fault:
                fault.keys = (key, *fault.keys)
                raise
        return result

    def _sequence(self, value: Any, depth: int) -> Json:
        result: list[Json] = []
        for element in value:
            try:
                result.append(self.copy(element, depth))
            except JsonFault as fault:
                fault.keys = (len(result), *fault.keys)
                raise
        return result

    def _deeper(self, depth: int) -> int:
        if depth >= self._depth:
            raise JsonFault(f"is nested deeper than {self._depth} levels")
        return depth + 1

    def _spend(self, units: int) -> None:
        self._left -= units
        if self._left < 0:
            raise JsonFault(f"the value is larger than {self._size} bytes")


def _number(value: int | float) -> int | float:
    if isinstance(value, float):
        if not math.isfinite(value):
            raise JsonFault(f"{value} is not a JSON number")
    elif not _SMALLEST_INT <= value <= _LARGEST_INT:
        raise JsonFault("the integer does not fit 64 bits; write it as text")
    return value
