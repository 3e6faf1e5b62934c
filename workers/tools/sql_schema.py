"""Reads a database's schema with comments and sample values into records. Knows no question and chooses nothing."""

import csv
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import ColumnElement, Connection, Inspector, String, column, inspect, select, table, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.types import TypeEngine

_SAMPLED_ROWS = 1000
_LONGEST_SAMPLE = 40
_LONGEST_COMMENT = 200
# A column definition that ends in a comment, as CREATE TABLE keeps it in sqlite_master.
_COMMENTED = re.compile(r"""^\s*["`\[]?(?P<name>\w[\w ]*?)["`\]]?\s+[^-\n]*--\s*(?P<comment>.+?)\s*$""", re.MULTILINE)

Comments = Mapping[tuple[str, str], str]
"""(table, column) in small letters -> comment."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column. `samples` are a few distinct values, shortened; `is_text`: words can be looked for in it."""

    name: str
    type: str
    is_text: bool
    in_key: bool
    comment: str
    samples: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ForeignKey:
    """Columns that refer to those of another table."""

    columns: tuple[str, ...]
    table: str
    referred: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Table:
    """A table or view."""

    name: str
    comment: str
    columns: tuple[Column, ...]
    foreign_keys: tuple[ForeignKey, ...]


def read_schema(connection: Connection, samples: int) -> tuple[Table, ...]:
    """The tables and views of the default schema, each column with up to `samples` values.

    What cannot be read (no right to it, a view of something gone) is left out; nothing readable: raises DBAPIError.
    """
    inspector = inspect(connection)
    comments = _comments(connection)
    names = [*sorted(inspector.get_table_names()), *sorted(inspector.get_view_names())]
    tables: list[Table] = []
    failure: DBAPIError | None = None
    for name in names:
        try:
            with connection.begin_nested():
                tables.append(_read_table(connection, inspector, name, comments, samples))
        except DBAPIError as error:
            failure = error
    if failure is not None and not tables:
        raise failure
    return tuple(tables)


def matching_values(
    connection: Connection, table_name: str, column_name: str, words: Sequence[str], most: int
) -> list[str]:
    """Up to `most` distinct values of a text column that contain one of `words`, in any case."""
    cell = column(column_name, String)
    found = cell.icontains(words[0], autoescape=True)
    for word in words[1:]:
        found = found | cell.icontains(word, autoescape=True)
    rows = connection.execute(select(cell).select_from(table(table_name)).where(found).distinct().limit(most))
    return [_short(value) for (value,) in rows]


def _read_table(connection: Connection, inspector: Inspector, name: str, comments: Comments, samples: int) -> Table:
    described = inspector.get_columns(name)
    key = set(inspector.get_pk_constraint(name)["constrained_columns"])
    values = _samples(connection, name, [entry["name"] for entry in described], samples)
    columns = tuple(
        Column(
            name=entry["name"],
            type=_type_name(entry["type"]),
            is_text=isinstance(entry["type"], String),
            in_key=entry["name"] in key,
            comment=entry.get("comment") or comments.get((name.lower(), entry["name"].lower()), ""),
            samples=values[entry["name"]],
        )
        for entry in described
    )
    return Table(name, _table_comment(inspector, name), columns, _foreign_keys(inspector, name))


def _type_name(kind: TypeEngine[Any]) -> str:
    return "" if kind.__visit_name__ == "null" else str(kind)


def _table_comment(inspector: Inspector, name: str) -> str:
    try:
        return inspector.get_table_comment(name)["text"] or ""
    except NotImplementedError:
        return ""


def _foreign_keys(inspector: Inspector, name: str) -> tuple[ForeignKey, ...]:
    return tuple(
        ForeignKey(tuple(key["constrained_columns"]), key["referred_table"], tuple(key["referred_columns"]))
        for key in inspector.get_foreign_keys(name)
    )


def _samples(connection: Connection, name: str, columns: Sequence[str], most: int) -> dict[str, tuple[str, ...]]:
    cells: list[ColumnElement[Any]] = [column(each) for each in columns]
    rows = connection.execute(select(*cells).select_from(table(name)).limit(_SAMPLED_ROWS)).all()
    distinct = [
        dict.fromkeys(_short(row[place]) for row in rows if row[place] is not None) for place in range(len(columns))
    ]
    # A column of few values is a code: all of them are worth more than the first three.
    return {
        each: tuple(values)[: most if len(values) > 2 * most else None]
        for each, values in zip(columns, distinct, strict=True)
    }


def _short(value: object) -> str:
    if isinstance(value, bytes):
        return f"{len(value)} bytes"
    words = " ".join(str(value).split())
    return words if len(words) <= _LONGEST_SAMPLE else words[: _LONGEST_SAMPLE - 3] + "..."


def _comments(connection: Connection) -> Comments:
    """SQLite keeps no comments but those inside CREATE TABLE; BIRD has description files beside the database."""
    if connection.dialect.name != "sqlite":
        return {}
    created = connection.execute(text("SELECT name, sql FROM sqlite_master WHERE type = 'table' AND sql IS NOT NULL"))
    found = {
        (name.lower(), match["name"].lower()): match["comment"][:_LONGEST_COMMENT]
        for name, sql in created
        for match in _COMMENTED.finditer(sql)
    }
    path = connection.execute(text("SELECT file FROM pragma_database_list WHERE name = 'main'")).scalar_one()
    return found | _bird_comments(Path(path).parent / "database_description")


def _bird_comments(folder: Path) -> dict[tuple[str, str], str]:
    found: dict[tuple[str, str], str] = {}
    for file in sorted(folder.glob("*.csv")):
        lines = file.read_bytes().decode("utf-8-sig", "replace").splitlines()
        for row in csv.DictReader(lines):
            name = (row.get("original_column_name") or "").strip()
            parts = [(row.get(key) or "").strip() for key in ("column_description", "value_description")]
            comment = "; ".join(part for part in parts if part and part.lower() != name.lower())
            found[file.stem.lower(), name.lower()] = " ".join(comment.split())[:_LONGEST_COMMENT]
    return {place: comment for place, comment in found.items() if comment}
