"""Says why a statement may not run: only one query that reads passes. Knows no database and opens nothing.

This is one of several fences (see `sql_run` for the others) and the one that can name the reason in plain words.
"""

import logging
import re
from typing import Any

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

LONGEST = 100_000
"""Longest statement accepted, in characters."""

# sqlglot logs each statement it does not know; here that is an ordinary refusal.
logging.getLogger("sqlglot").setLevel(logging.ERROR)

_CHANGES = (exp.DML, exp.DDL, exp.Command, exp.Pragma, exp.Attach, exp.Detach, exp.Set)
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_UNICODE_NAME = re.compile(r"\bU&[\"']", re.IGNORECASE)
_FUNCTIONS = {
    "sqlite": re.compile(r"load_extension|fts3_tokenizer|readfile|writefile|edit|regexp|pragma_.*|sqlite_dbpage"),
    # Files, settings, other sessions, large objects, sequences, and whatever runs a query given as text.
    "postgres": re.compile(
        r"pg_(?!sleep$|typeof$|column_size$).*|lo_.*|loread|lowrite|dblink.*|set_config|nextval|setval|"
        r"(query|table|cursor|schema|database)_to_xml.*|ts_stat|ts_rewrite|crosstab.*|connectby|xpath_table|"
        r"brin_.*|gin_.*|binary_upgrade_.*"
    ),
}
_TABLES = {
    "sqlite": re.compile(r"pragma_.*|sqlite_dbpage"),
    "postgres": re.compile(r"pg_(authid|shadow|user_mappings?|hba_file_rules|file_settings|largeobject)"),
}


def refusal(sql: str, dialect: str) -> str | None:
    """Why `sql` is not run, in one sentence; None for one query that only reads. `dialect`: sqlite or postgres."""
    if len(sql) > LONGEST:
        return f"refused: the statement has {len(sql)} characters, more than {LONGEST}"
    if "\0" in sql or _UNICODE_NAME.search(sql):
        return "refused: NUL characters and U& escapes are not accepted"
    try:
        statements = [statement for statement in sqlglot.parse(sql, read=dialect) if _counts(statement)]
    except RecursionError:
        return "refused: the statement is nested too deeply"
    except SqlglotError as error:
        return _syntax(error)
    if not statements:
        return "refused: there is no SQL statement"
    if len(statements) > 1:
        return f"refused: one statement at a time, found {len(statements)}"
    return _not_reading(statements[0], dialect)


def _counts(statement: Any) -> bool:
    """False for what stands after a last semicolon: nothing, or a comment."""
    return statement is not None and not isinstance(statement, exp.Semicolon)


def _syntax(error: SqlglotError) -> str:
    details = getattr(error, "errors", None)
    if not details:
        return f"syntax error: {str(error).splitlines()[0]}"
    first = details[0]
    near = f" near {first['highlight']!r}" if first.get("highlight") else ""
    what = first["description"].split(" but got ")[0].rstrip(".")
    return f"syntax error: {what}{near} (line {first['line']}, column {first['col']})"


def _not_reading(root: Any, dialect: str) -> str | None:
    if not isinstance(root, exp.Query | exp.Values):
        return f"refused: only a SELECT, WITH ... SELECT or VALUES query may run, not {_kind(root)}"
    for node in root.walk():
        reason = _fault(node, dialect)
        if reason is not None:
            return f"refused: {reason}"
    return None


def _fault(node: Any, dialect: str) -> str | None:
    if isinstance(node, _CHANGES):
        return f"a query may not contain {_kind(node)}"
    if isinstance(node, exp.Into):
        return "SELECT INTO makes a table"
    if isinstance(node, exp.Lock):
        return "a query may not lock rows (FOR UPDATE, FOR SHARE)"
    if isinstance(node, exp.Func):
        return _function_fault(_function_name(node), dialect)
    if isinstance(node, exp.Table) and _TABLES[dialect].fullmatch(node.name.lower()):
        return f"the table {node.name} may not be read"
    return None


def _function_name(node: Any) -> str:
    named = isinstance(node, exp.Anonymous | exp.AnonymousAggFunc)
    return str(node.name if named else node.sql_name())


def _function_fault(name: str, dialect: str) -> str | None:
    if not _PLAIN_NAME.fullmatch(name):
        return f"the function name {name!r} is not made of letters, digits and _"
    if _FUNCTIONS[dialect].fullmatch(name.lower()):
        return f"the function {name} may not be called"
    return None


def _kind(node: Any) -> str:
    return str(node.name).upper() if isinstance(node, exp.Command) else type(node).__name__.upper()
