"""Database values as JSON, and rows compared whatever their order."""

import datetime
import json
import uuid
from decimal import Decimal

import pytest

from workers.tools.sql_values import same_rows, to_json


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        (True, True),
        (7, 7),
        (1.5, 1.5),
        (Decimal("2.50"), 2.5),
        (Decimal("42"), 42),
        (Decimal("4E+1"), 40),
        (Decimal("98765432109876543210"), "98765432109876543210"),
        (Decimal("NaN"), "NaN"),
        (float("inf"), "inf"),
        (1 << 70, str(1 << 70)),
        (b"\x00\xff", "00ff"),
        (memoryview(b"a"), "61"),
        (datetime.date(2024, 2, 29), "2024-02-29"),
        (datetime.datetime(2024, 2, 29, 12, 30, tzinfo=datetime.UTC), "2024-02-29T12:30:00+00:00"),
        (datetime.timedelta(hours=1), "1:00:00"),
        (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        ([Decimal("1.5"), None], [1.5, None]),
        ({"a": b"\x01"}, {"a": "01"}),
    ],
)
def test_every_value_becomes_json(value: object, expected: object) -> None:
    found = to_json(value)
    assert found == expected
    assert type(found) is type(expected)
    json.dumps(found, allow_nan=False)


def test_rows_are_the_same_in_any_order_and_nearly_equal_floats_too() -> None:
    assert same_rows([[1, "a"], [2, "b"]]) == same_rows([[2, "b"], [1, "a"]])
    assert same_rows([[0.1 + 0.2]]) == same_rows([[0.3]])
    assert same_rows([[3]]) == same_rows([[3.0]])
    assert same_rows([[[1, {"a": 2}]]]) == same_rows([[[1, {"a": 2}]]])


def test_counts_columns_and_types_make_rows_differ() -> None:
    assert same_rows([[1], [1]]) != same_rows([[1]])
    assert same_rows([[1, 2]]) != same_rows([[2, 1]])
    assert same_rows([["1"]]) != same_rows([[1]])
    assert same_rows([[None]]) != same_rows([])
