"""Reads a gold query: which tables and columns it names. Pure."""

import functools
from typing import Any

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError


@functools.lru_cache(maxsize=4096)
def tables_of(sql: str) -> tuple[str, ...]:
    """The tables that `sql` reads, in order, without its own WITH queries."""
    tree = _parsed(sql)
    if tree is None:
        return ()
    own = {cte.alias for cte in tree.find_all(exp.CTE)}
    return tuple(dict.fromkeys(table.name for table in tree.find_all(exp.Table) if table.name not in own))


@functools.lru_cache(maxsize=4096)
def names_of(sql: str) -> tuple[str, ...]:
    """The columns that `sql` names, in order."""
    tree = _parsed(sql)
    return () if tree is None else tuple(dict.fromkeys(column.name for column in tree.find_all(exp.Column)))


def _parsed(sql: str) -> Any:
    try:
        return sqlglot.parse_one(sql, read="sqlite")
    except SqlglotError:
        return None
