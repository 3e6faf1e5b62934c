"""`sql.execute` on real SQLite files: answers, errors as answers, limits, and fences that hold without the guard."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from common.clock import monotonic_s
from workers.tools.registry import ToolContext, ToolError
from workers.tools.sql import execute
from workers.tools.sql_run import Limits, connect, resolve, run_query

ENDLESS = "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT COUNT(*) FROM r"


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    path = tmp_path / "a shop #1, 50%.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(
            """
            CREATE TABLE items (id INTEGER PRIMARY KEY, name TEXT, price REAL, picture BLOB);
            INSERT INTO items VALUES (1, 'tea', 2.5, x'00ff'), (2, '100% "wool"', NULL, NULL), (3, 'ink', 4, NULL);
            """
        )
        connection.execute("INSERT INTO items (id, name) VALUES (4, CAST(x'ff' AS TEXT))")
        connection.commit()
    return path


@pytest.fixture
def context(shop: Path) -> ToolContext:
    return ToolContext({"shop": f"sqlite:///{shop}"}, timeout_s=5.0)


def ask(context: ToolContext, sql: str, **more: object) -> dict[str, object]:
    answer = execute({"database": "shop", "sql": sql, **more}, context)
    assert isinstance(answer, dict)
    assert set(answer) == {"sql", "columns", "rows", "row_count", "truncated", "error", "elapsed_s"}
    assert answer["sql"] == sql
    return answer


def test_rows_come_back_as_json(context: ToolContext) -> None:
    answer = ask(context, "SELECT * FROM items WHERE id < 4 ORDER BY id")
    assert answer["columns"] == ["id", "name", "price", "picture"]
    assert answer["rows"] == [[1, "tea", 2.5, "00ff"], [2, '100% "wool"', None, None], [3, "ink", 4.0, None]]
    assert (answer["row_count"], answer["truncated"], answer["error"]) == (3, False, None)


def test_percent_and_colon_are_no_placeholders(context: ToolContext) -> None:
    assert ask(context, "SELECT name FROM items WHERE name LIKE '100%%' OR name LIKE 't%'")["row_count"] == 2
    assert ask(context, "SELECT '12:30:00', '%s', '%(a)s'")["rows"] == [["12:30:00", "%s", "%(a)s"]]


def test_text_that_is_not_utf8_and_json_functions_work(context: ToolContext) -> None:
    assert ask(context, "SELECT name FROM items WHERE id = 4")["rows"] == [["\ufffd"]]
    assert ask(context, "SELECT SUM(value) FROM json_each('[1, 2]')")["rows"] == [[3]]


@pytest.mark.parametrize(
    ("sql", "error"),
    [
        ("SELECT nope FROM items", "no such column: nope"),
        ("SELECT * FROM nowhere", "no such table: nowhere"),
        ("SELECT nope(id) FROM items", "no such function: nope"),
    ],
)
def test_a_database_error_is_an_answer_in_its_own_words(context: ToolContext, sql: str, error: str) -> None:
    answer = ask(context, sql)
    assert answer["error"] == error
    assert (answer["rows"], answer["columns"], answer["row_count"]) == ([], [], 0)


def test_a_refused_statement_is_an_answer_and_changes_nothing(context: ToolContext, shop: Path) -> None:
    before = shop.read_bytes()
    assert "not DELETE" in str(ask(context, "DELETE FROM items")["error"])
    assert "no SQL statement" in str(ask(context, "")["error"])
    assert shop.read_bytes() == before


def test_rows_are_capped_and_the_cap_is_told(context: ToolContext) -> None:
    capped = ask(context, "SELECT id FROM items ORDER BY id", row_limit=2)
    assert (capped["rows"], capped["truncated"]) == ([[1], [2]], True)
    assert ask(context, "SELECT id FROM items", row_limit=4)["truncated"] is False


def test_the_size_of_all_values_is_capped(context: ToolContext) -> None:
    numbers = "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 100)"
    answer = ask(context, f"{numbers} SELECT printf('%.*c', 100000, 'x') FROM r")
    assert answer["truncated"] is True
    assert answer["row_count"] == (1 << 18) // 100_000
    assert ask(context, "SELECT zeroblob(1000000000)")["error"] == "string or blob too big"


def test_an_endless_query_is_stopped_with_the_reason_before_the_tool_is(shop: Path) -> None:
    context = ToolContext({"shop": f"sqlite:///{shop}"}, timeout_s=1.0)
    started = monotonic_s()
    answer = ask(context, ENDLESS)
    assert answer["error"] == "the query was stopped: it ran longer than 0.9 s"
    assert monotonic_s() - started < 1.5


def test_endless_rows_end_at_the_cap(context: ToolContext) -> None:
    answer = ask(context, ENDLESS.replace("COUNT(*)", "n"), row_limit=700)
    assert (answer["row_count"], answer["truncated"], answer["error"]) == (700, True, None)


@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM items",
        "UPDATE items SET price = 0",
        "CREATE TABLE evil (a)",
        "CREATE TEMP TABLE evil (a)",
        "ATTACH DATABASE ':memory:' AS other",
        "PRAGMA query_only = OFF",
        "PRAGMA table_info(items)",
        "SELECT * FROM pragma_table_info('items')",
        "VACUUM",
        "BEGIN IMMEDIATE",
        "SELECT load_extension('evil')",
        "SELECT 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!' REGEXP '(a+)+$'",
        "SELECT 1; DELETE FROM items",
    ],
)
def test_the_connection_holds_without_the_guard(context: ToolContext, shop: Path, sql: str) -> None:
    before = shop.read_bytes()
    with connect(resolve("shop", context.databases), 5.0) as connection:
        result = run_query(connection, sql, Limits(5.0, 10))
    assert result.error
    assert result.rows == []
    assert shop.read_bytes() == before


def test_an_unknown_database_is_a_tool_error_naming_the_known_ones(context: ToolContext) -> None:
    with pytest.raises(ToolError, match="no database is named 'store'; known are shop"):
        execute({"database": "store", "sql": "SELECT 1"}, context)
    with pytest.raises(ToolError, match="known are none"):
        execute({"database": "store", "sql": "SELECT 1"}, ToolContext({}))


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("sqlite:////nowhere/at/all.sqlite", "cannot be opened"),
        ("sqlite://", "has no file"),
        ("sqlite:///:memory:", "has no file"),
        ("mysql://root:secret@host/db", "is of kind 'mysql'"),
        ("secret", "cannot be read"),
    ],
)
def test_a_wrong_url_is_a_tool_error_that_keeps_secrets(url: str, said: str) -> None:
    with pytest.raises(ToolError, match=said) as caught:
        execute({"database": "shop", "sql": "SELECT 1"}, ToolContext({"shop": url}))
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ({"sql": "SELECT 1"}, "database must be a text"),
        ({"database": "shop"}, "sql must be a text"),
        ({"database": "shop", "sql": None}, "sql must be a text"),
        ({"database": "shop", "sql": "SELECT 1", "row_limit": 0}, "row_limit must be a whole number from 1 to 10000"),
        ({"database": "shop", "sql": "SELECT 1", "row_limit": True}, "row_limit must be a whole number"),
        ({"database": "shop", "query": "SELECT 1"}, "unknown argument 'query'; known are database, sql, row_limit"),
    ],
)
def test_wrong_arguments_are_tool_errors(context: ToolContext, args: dict[str, object], said: str) -> None:
    with pytest.raises(ToolError, match=said):
        execute(args, context)
