"""The SQL tools on a real PostgreSQL server: answers, fences and limits.

Without a server binary these are skipped; with HEXGEN_REQUIRE_POSTGRES=1 (as in CI) they fail instead.
"""

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest
from sqlalchemy import NullPool, create_engine, text

from common.clock import monotonic_s
from workers.tools.registry import ToolContext, ToolError
from workers.tools.sql import describe, execute
from workers.tools.sql_run import Limits, connect, resolve, run_query

pytestmark = pytest.mark.postgres

SCHEMA = """
CREATE TABLE authors (id integer PRIMARY KEY, surname text NOT NULL, born date);
CREATE TABLE "Books" (
  isbn text PRIMARY KEY,
  author_id integer NOT NULL REFERENCES authors (id),
  price numeric(8, 2),
  tags text[],
  extra jsonb,
  cover bytea,
  added timestamptz
);
COMMENT ON TABLE authors IS 'People who write';
COMMENT ON COLUMN "Books".price IS 'in crowns';
CREATE SEQUENCE counter;
INSERT INTO authors VALUES (1, 'Lindqvist', '1970-02-28'), (2, 'Okafor', NULL);
INSERT INTO "Books" VALUES
  ('a', 1, 9.90, '{red,blue}', '{"pages": 100}', '\\x00ff', '2024-02-29 12:00+00'),
  ('b', 1, 20, NULL, NULL, NULL, NULL);
CREATE TABLE secrets (word text);
CREATE ROLE reader LOGIN;
GRANT SELECT ON authors, "Books" TO reader;
CREATE FUNCTION sneaky() RETURNS integer LANGUAGE sql AS 'DELETE FROM "Books" RETURNING 1';
"""


def binaries() -> Path | None:
    """The newest PostgreSQL's directory of programs, as Debian installs it, else the one on PATH."""
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda found: int(found.parts[-3]))
    found = str(installed[-1]) if installed else shutil.which("initdb")
    return Path(found).parent if found else None


def missing(reason: str) -> NoReturn:
    if os.environ.get("HEXGEN_REQUIRE_POSTGRES") == "1":
        pytest.fail(f"HEXGEN_REQUIRE_POSTGRES=1, but {reason}")
    pytest.skip(reason)


def run(*command: str | Path, user: str | None) -> None:
    done = subprocess.run(
        command, cwd="/", capture_output=True, text=True, check=False, user=user, timeout=60, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a private server's superuser, the hardest case for the fences."""
    programs = binaries()
    if programs is None:
        missing("no PostgreSQL server is installed (apt-get install postgresql)")
    # Not below pytest's own directory: that is closed to the postgres user, which root has to become here.
    place = Path("/tmp") / f"hexgen-postgres-{os.getpid()}"
    place.mkdir(mode=0o700)
    user = "postgres" if os.geteuid() == 0 else None
    if user:
        shutil.chown(place, user)
    data, port = place / "data", free_port()
    options = f"-h 127.0.0.1 -p {port} -k '' -c fsync=off"
    try:
        run(programs / "initdb", "-D", data, "-A", "trust", "-U", "owner", "-E", "UTF8", "--no-sync", user=user)
        run(programs / "pg_ctl", "-D", data, "-o", options, "-l", place / "log", "-w", "start", user=user)
        try:
            yield f"postgresql://owner@127.0.0.1:{port}/postgres"
        finally:
            run(programs / "pg_ctl", "-D", data, "-m", "immediate", "-w", "stop", user=user)
    finally:
        shutil.rmtree(place)


@pytest.fixture(scope="module")
def context(server: str) -> ToolContext:
    engine = create_engine(server.replace("postgresql:", "postgresql+psycopg:"), poolclass=NullPool)
    with engine.begin() as connection:
        connection.execute(text(SCHEMA.replace(":", "\\:")))
    return ToolContext({"library": server}, timeout_s=10.0)


def ask(context: ToolContext, sql: str, **more: Any) -> dict[str, Any]:
    answer = execute({"database": "library", "sql": sql, **more}, context)
    assert isinstance(answer, dict)
    return answer


def count_books(context: ToolContext) -> int:
    rows = ask(context, 'SELECT COUNT(*) FROM "Books"')["rows"]
    count: int = rows[0][0]
    return count


def test_rows_of_every_type_come_back_as_json(context: ToolContext) -> None:
    answer = ask(context, 'SELECT * FROM "Books" ORDER BY isbn')
    assert answer["columns"] == ["isbn", "author_id", "price", "tags", "extra", "cover", "added"]
    first, second = answer["rows"]
    assert first[:6] == ["a", 1, 9.9, ["red", "blue"], {"pages": 100}, "00ff"]
    assert first[6].startswith("2024-02-29T")
    assert second == ["b", 1, 20.0, None, None, None, None]
    assert ask(context, "SELECT SUM(id::bigint), born FROM authors WHERE id = 1 GROUP BY born")["rows"] == [
        [1, "1970-02-28"]
    ]


def test_percent_is_no_placeholder(context: ToolContext) -> None:
    assert ask(context, "SELECT surname FROM authors WHERE surname LIKE '%k%s%' OR surname ILIKE 'OK%'")["rows"] == [
        ["Okafor"]
    ]


@pytest.mark.parametrize(
    ("sql", "error"),
    [
        ("SELECT nope FROM authors", 'column "nope" does not exist'),
        ("SELECT * FROM Books", 'relation "books" does not exist'),
        ("SELECT 1 / 0", "division by zero"),
    ],
)
def test_a_database_error_is_an_answer_in_its_own_words(context: ToolContext, sql: str, error: str) -> None:
    assert ask(context, sql)["error"] == error


def test_a_hint_of_the_database_is_passed_on(context: ToolContext) -> None:
    assert "Perhaps you meant" in ask(context, "SELECT surnam FROM authors")["error"]


def test_a_function_that_writes_is_stopped_by_the_transaction(context: ToolContext) -> None:
    assert "read-only transaction" in ask(context, "SELECT sneaky()")["error"]
    assert count_books(context) == 2


@pytest.mark.parametrize(
    "sql",
    [
        'DELETE FROM "Books"',
        'WITH gone AS (DELETE FROM "Books" RETURNING *) SELECT * FROM gone',
        'SELECT 1; DELETE FROM "Books"',
        'COMMIT; DELETE FROM "Books"',
        'SELECT * INTO copied FROM "Books"',
        "CREATE TABLE evil (a int)",
        "SET TRANSACTION READ WRITE",
        "SELECT set_config('transaction_read_only', 'off', true)",
        "SELECT nextval('counter')",
        "COPY authors TO '/tmp/authors'",
        "DO $$ BEGIN DELETE FROM \"Books\"; END $$",
        'SELECT * FROM "Books" FOR UPDATE',
    ],
)  # fmt: skip
def test_the_connection_holds_without_the_guard(context: ToolContext, sql: str) -> None:
    with connect(resolve("library", context.databases), 5.0) as connection:
        result = run_query(connection, sql, Limits(5.0, 10))
    assert result.error
    assert result.rows == []
    assert count_books(context) == 2


@pytest.mark.parametrize("sql", ["SELECT pg_sleep(60)", "SELECT COUNT(*) FROM generate_series(1, 100000000000)"])
def test_a_slow_query_is_stopped_within_its_limit(context: ToolContext, sql: str) -> None:
    started = monotonic_s()
    answer = ask(ToolContext(context.databases, timeout_s=1.0), sql)
    assert answer["error"] == "the query was stopped: it ran longer than 0.9 s"
    assert monotonic_s() - started < 3


def test_endless_rows_end_at_the_cap_without_being_held(context: ToolContext) -> None:
    answer = ask(context, "SELECT generate_series(1, 100000000) AS n", row_limit=700)
    assert (answer["row_count"], answer["truncated"], answer["error"]) == (700, True, None)
    assert answer["rows"][-1] == [700]


def test_the_schema_is_described_with_comments_and_values(context: ToolContext) -> None:
    answer = describe({"database": "library", "question": "price of books by Lindqvist"}, context)
    assert answer["tables"] == ["Books", "authors"]
    assert "CREATE TABLE authors ( -- People who write" in answer["schema"]
    assert "  price NUMERIC(8, 2), -- in crowns; values: 9.90, 20.00" in answer["schema"]
    assert "  author_id INTEGER REFERENCES authors (id), -- values: 1" in answer["schema"]
    assert "  surname TEXT, -- values: Lindqvist, Okafor" in answer["schema"]


def test_a_table_without_the_right_to_read_it_is_left_out(context: ToolContext) -> None:
    reader = ToolContext({"library": context.databases["library"].replace("owner@", "reader@")})
    assert "secrets" in describe({"database": "library"}, context)["tables"]
    assert describe({"database": "library"}, reader)["tables"] == ["Books", "authors"]
    assert ask(reader, "SELECT word FROM secrets")["error"] == "permission denied for table secrets"


def test_a_server_that_is_away_is_an_error_worth_a_retry(server: str) -> None:
    away = ToolContext({"library": f"postgresql://owner:hidden@127.0.0.1:{free_port()}/postgres"})
    with pytest.raises(ConnectionError, match="cannot be reached") as caught:
        execute({"database": "library", "sql": "SELECT 1"}, away)
    assert "hidden" not in str(caught.value)
    assert not isinstance(caught.value, ToolError)
