"""Execution accuracy, by BIRD's rule."""

from dataclasses import replace

import pytest

from common.clock import monotonic_s
from hexgen_flow.text2sql.accuracy import execution_accuracy, is_correct
from hexgen_flow.text2sql.databases import materialise
from hexgen_flow.text2sql.dataset import Question
from workers.tools.registry import ToolError

ENDLESS = "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT COUNT(*) FROM r"
ASKED = Question(0, "bank", "Which regions?", "", "SELECT DISTINCT region FROM districts", "simple")


@pytest.fixture(scope="module")
def databases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return materialise(tmp_path_factory.mktemp("accuracy"))


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT DISTINCT region FROM districts",
        "SELECT region FROM districts",
        "SELECT region FROM districts GROUP BY region ORDER BY region DESC;",
    ],
)
def test_the_same_set_of_rows_is_right(databases: dict[str, str], sql: str) -> None:
    assert is_correct(ASKED, sql, databases)


@pytest.mark.parametrize(
    "sql",
    [
        None,
        "",
        "SELECT region FROM districts LIMIT 1",
        "SELECT DISTINCT region, 1 FROM districts",
        "SELECT DISTINCT UPPER(region) FROM districts",
        "SELECT nope FROM districts",
        "SELECT region FROM districts; SELECT 1",
        "DELETE FROM districts",
        "no SQL at all",
    ],
)
def test_anything_else_is_wrong(databases: dict[str, str], sql: str | None) -> None:
    assert not is_correct(ASKED, sql, databases)


def test_numbers_are_equal_by_value_and_not_by_type(databases: dict[str, str]) -> None:
    assert is_correct(replace(ASKED, sql="SELECT 3"), "SELECT 3.0", databases)
    assert not is_correct(replace(ASKED, sql="SELECT 3"), "SELECT '3'", databases)


def test_order_of_columns_counts(databases: dict[str, str]) -> None:
    assert not is_correct(replace(ASKED, sql="SELECT 1, 2"), "SELECT 2, 1", databases)


def test_large_results_are_compared_whole(databases: dict[str, str]) -> None:
    rows = "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < {})"
    numbers = rows + " SELECT n, 'padding padding' FROM r"
    asked = replace(ASKED, sql=numbers.format(40_000))
    assert is_correct(asked, numbers.format(40_000), databases)
    assert not is_correct(asked, numbers.format(39_999), databases)


@pytest.mark.parametrize(("gold", "sql"), [("SELECT 1", ENDLESS), (ENDLESS, "SELECT 1"), (ENDLESS, ENDLESS)])
def test_what_takes_too_long_is_wrong(databases: dict[str, str], gold: str, sql: str) -> None:
    started = monotonic_s()
    assert not is_correct(replace(ASKED, sql=gold), sql, databases, seconds=0.2)
    assert monotonic_s() - started < 2


def test_the_mean_is_the_share_that_is_right(databases: dict[str, str]) -> None:
    found = execution_accuracy([(ASKED, ASKED.sql), (ASKED, None), (ASKED, "SELECT 1"), (ASKED, ASKED.sql)], databases)
    assert found.correct == (True, False, False, True)
    assert found.mean == 0.5
    assert execution_accuracy([], databases).mean == 0.0


def test_an_unknown_database_is_named(databases: dict[str, str]) -> None:
    with pytest.raises(ToolError, match="no database is named 'shop'"):
        is_correct(replace(ASKED, database="shop"), "SELECT 1", databases)
