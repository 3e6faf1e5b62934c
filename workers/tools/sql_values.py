"""Turns what a database driver returns into JSON values, and rows into comparable ones. Knows no database."""

import math
from collections import Counter
from collections.abc import Hashable, Iterable
from decimal import Decimal
from typing import Any

from common.model import Json

_DIGITS = 6
_WORD = range(-(1 << 63), 1 << 63)


def to_json(value: Any) -> Json:
    """A database value as JSON: bytes as hex, dates as ISO 8601, numbers beyond 64 bits or infinite as text."""
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int | float | Decimal):
        return _number(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).hex()
    if isinstance(value, dict):
        return {str(key): to_json(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(inner) for inner in value]
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _number(value: int | float | Decimal) -> Json:
    if not math.isfinite(value):
        return str(value)
    if isinstance(value, Decimal):
        # A sum of integers is an integer, whatever type the driver wraps it in.
        value = int(value) if value.as_tuple().exponent >= 0 else float(value)  # type: ignore[operator]
    return value if isinstance(value, float) or value in _WORD else str(value)


def same_rows(rows: Iterable[Iterable[Json]]) -> frozenset[tuple[Hashable, int]]:
    """A key that is equal for equal multisets of rows, whatever their order; floats count as equal to six decimals."""
    return frozenset(Counter(_comparable(list(row)) for row in rows).items())


def _comparable(value: Json) -> Hashable:
    if isinstance(value, list):
        return tuple(_comparable(inner) for inner in value)
    if isinstance(value, dict):
        return tuple(sorted((key, repr(_comparable(inner))) for key, inner in value.items()))
    scalar: Hashable = round(value, _DIGITS) if isinstance(value, float) else value
    return scalar
