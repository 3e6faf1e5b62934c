"""Opens databases for reading only and runs one query within a time, row and size limit. Knows no tool and no workflow.

The fences, whatever `sql_guard` let through: SQLite opens the file with mode=ro and query_only, an authorizer allows
reading and nothing else, a progress handler ends slow queries; PostgreSQL runs a READ ONLY transaction under
statement_timeout, and a server-side cursor over the extended protocol takes exactly one statement that returns rows.
"""

import functools
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from sqlalchemy import URL, Connection, CursorResult, Engine, NullPool, create_engine, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError

from common.clock import monotonic_s
from common.model import Json
from workers.tools.registry import ToolError
from workers.tools.sql_values import to_json

_DIALECTS = {"sqlite": "sqlite", "postgresql": "postgres", "postgres": "postgres"}
_BATCH_ROWS = 500
_LONGEST_VALUE = 10_000_000
_ALLOWED = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}
# SQLAlchemy adds a regexp() in Python, which no progress handler can interrupt.
_CLOSED_FUNCTIONS = {"regexp", "load_extension", "fts3_tokenizer"}


@dataclass(frozen=True, slots=True)
class QueryResult:
    """What a query gave. With `error` set there are no rows; `truncated`: a limit cut rows off."""

    columns: list[str]
    rows: list[list[Json]]
    truncated: bool
    error: str | None
    elapsed_s: float


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one query: seconds, rows, and characters of all values together."""

    seconds: float
    rows: int
    characters: int = 1 << 18


def resolve(name: str, databases: Mapping[str, str]) -> URL:
    """The URL of a database by name. Raises ToolError, naming the known ones and no URL: that may hold a secret."""
    if name not in databases:
        raise ToolError(f"no database is named {name!r}; known are {', '.join(sorted(databases)) or 'none'}")
    try:
        url = make_url(databases[name])
    except ArgumentError:
        raise ToolError(
            f"the URL of database {name!r} cannot be read; write sqlite:///PATH or postgresql://..."
        ) from None
    if url.get_backend_name() not in _DIALECTS:
        raise ToolError(f"database {name!r} is of kind {url.get_backend_name()!r}; served are sqlite and postgresql")
    if dialect(url) == "sqlite" and url.database in (None, "", ":memory:"):
        raise ToolError(f"database {name!r} has no file; write its URL as sqlite:///PATH")
    return url


def dialect(url: URL) -> str:
    """The database's dialect as sqlglot names it: sqlite or postgres."""
    return _DIALECTS[url.get_backend_name()]


@contextmanager
def connect(url: URL, seconds: float) -> Iterator[Connection]:
    """A connection that can only read, all of whose statements end after `seconds`.

    Raises ToolError where the database's file or driver is missing, ConnectionError where a server cannot be reached.
    """
    try:
        connection = _engine(url).connect()
    except DBAPIError as error:
        if dialect(url) == "sqlite":
            raise ToolError(f"the SQLite file {url.database} cannot be opened: {error.orig}") from None
        raise ConnectionError(f"the PostgreSQL server cannot be reached: {error.orig}") from None
    with connection:
        _limit(connection, seconds)
        yield connection


def run_query(connection: Connection, sql: str, limits: Limits) -> QueryResult:
    """Run `sql`, which need not be trusted. A database error is part of the answer, in the database's own words."""
    started = monotonic_s()
    deadline = started + limits.seconds
    if connection.dialect.name == "sqlite":
        _driver(connection).set_authorizer(_authorize)
    try:
        with _execute(connection, sql) as result:
            columns, rows, truncated = _fetch(result, limits, deadline)
    except TimeoutError:
        error = _too_slow(limits)
    except (DBAPIError, sqlite3.Warning, ValueError, OverflowError) as failure:
        error = _too_slow(limits) if monotonic_s() >= deadline else _words(failure)
    else:
        return QueryResult(columns, rows, truncated, None, monotonic_s() - started)
    return QueryResult([], [], False, error, monotonic_s() - started)


def _execute(connection: Connection, sql: str) -> CursorResult[Any]:
    # no_parameters: a % in the statement is a %, not a placeholder. stream_results: a server-side cursor on PostgreSQL.
    options = {"no_parameters": True, "stream_results": True, "max_row_buffer": _BATCH_ROWS}
    return connection.exec_driver_sql(sql, execution_options=options)


def _fetch(result: CursorResult[Any], limits: Limits, deadline: float) -> tuple[list[str], list[list[Json]], bool]:
    if not result.returns_rows:
        raise ValueError("the statement returns no rows")
    columns = list(result.keys())
    rows: list[list[Json]] = []
    characters = 0
    while batch := result.fetchmany(_BATCH_ROWS):
        if monotonic_s() >= deadline:
            raise TimeoutError
        for row in batch:
            values = [to_json(value) for value in row]
            characters += sum(len(str(value)) for value in values)
            if len(rows) == limits.rows or characters > limits.characters:
                return columns, rows, True
            rows.append(values)
    return columns, rows, False


def _too_slow(limits: Limits) -> str:
    return f"the query was stopped: it ran longer than {limits.seconds:g} s"


def _words(failure: Exception) -> str:
    cause = failure.orig if isinstance(failure, DBAPIError) else failure
    # psycopg's diagnosis leaves out the cursor declaration that its message quotes.
    diagnosis = getattr(cause, "diag", None)
    if diagnosis is not None and diagnosis.message_primary:
        return "; ".join(part for part in (diagnosis.message_primary, diagnosis.message_hint) if part)
    return str(cause)


@functools.lru_cache(maxsize=64)
def _engine(url: URL) -> Engine:
    # No pool: a connection must not be shared with the process an RQ worker forks, nor outlive its limits.
    if dialect(url) == "sqlite":
        return create_engine("sqlite://", creator=functools.partial(_open_file, str(url.database)), poolclass=NullPool)
    url = url.set(drivername="postgresql+psycopg")
    try:
        return create_engine(url, poolclass=NullPool, connect_args={"connect_timeout": 10})
    except ModuleNotFoundError:
        raise ToolError("PostgreSQL needs a driver: pip install 'hexgen-flow[postgres]'") from None


def _open_file(path: str) -> sqlite3.Connection:
    connection = sqlite3.connect(f"file:{quote(path)}?mode=ro", uri=True)
    connection.execute("PRAGMA query_only = ON")
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST_VALUE)
    connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
    return connection


def _limit(connection: Connection, seconds: float) -> None:
    if connection.dialect.name == "sqlite":
        deadline = monotonic_s() + seconds
        _driver(connection).set_progress_handler(lambda: monotonic_s() >= deadline, 1000)
        return
    connection.exec_driver_sql("SET TRANSACTION READ ONLY")
    connection.exec_driver_sql(f"SET LOCAL statement_timeout = {max(1, int(seconds * 1000))}")


def _driver(connection: Connection) -> sqlite3.Connection:
    driver: sqlite3.Connection = connection.connection.driver_connection  # type: ignore[assignment]
    return driver


def _authorize(action: int, first: str | None, second: str | None, *_where: str | None) -> int:
    closed = action == sqlite3.SQLITE_FUNCTION and second in _CLOSED_FUNCTIONS
    # SQLite asks this before a table-valued function such as json_each describes itself; the file stays read-only.
    describes_itself = action == sqlite3.SQLITE_UPDATE and first == "sqlite_master"
    allowed = (action in _ALLOWED and not closed) or describes_itself
    return sqlite3.SQLITE_OK if allowed else sqlite3.SQLITE_DENY
