"""Turns a right query into a wrong one, as language models do: some that do not run, some that run and answer wrongly.

Pure: the dice come in; no database is asked, so now and then a changed query still gives the right rows.
"""

import random
from collections.abc import Callable
from typing import Any

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

_SWAPPED = {exp.Max: exp.Min, exp.Min: exp.Max, exp.Sum: exp.Avg, exp.Avg: exp.Sum}
_TURNED = {exp.GT: exp.LT, exp.LT: exp.GT, exp.GTE: exp.LT, exp.LTE: exp.GT, exp.EQ: exp.NEQ}


def failing(sql: str, rng: random.Random) -> str:
    """`sql` with a fault that keeps it from running: bad syntax, or a column or table that does not exist."""
    change = rng.choice((_cut_bracket, _wrong_column, _wrong_table))
    return _changed(sql, change, rng) or sql + " FROM"


def misleading(sql: str, rng: random.Random) -> str:
    """`sql` changed so that it still runs but (almost always) gives other rows."""
    changes = [_turned_comparison, _other_aggregate, _other_end, _no_condition]
    rng.shuffle(changes)
    for change in changes:
        changed = _changed(sql, change, rng)
        if changed is not None:
            return changed
    return f"SELECT * FROM ({sql.rstrip('; ')}) AS answer LIMIT 0"


def _changed(sql: str, change: Callable[[Any, random.Random], str | None], rng: random.Random) -> str | None:
    try:
        return change(sqlglot.parse_one(sql, read="sqlite"), rng)
    except SqlglotError:
        return None


def _text(tree: Any) -> str:
    return str(tree.sql(dialect="sqlite"))


def _pick(tree: Any, rng: random.Random, *kinds: Any) -> Any:
    found = list(tree.find_all(*kinds))
    return rng.choice(found) if found else None


def _cut_bracket(tree: Any, _rng: random.Random) -> str | None:
    text = _text(tree)
    place = text.rfind(")")
    return None if place < 0 else text[:place] + text[place + 1 :]


def _wrong_column(tree: Any, rng: random.Random) -> str | None:
    column = _pick(tree, rng, exp.Column)
    if column is None:
        return None
    column.this.set("this", f"{column.name}_value")
    return _text(tree)


def _wrong_table(tree: Any, rng: random.Random) -> str | None:
    table = _pick(tree, rng, exp.Table)
    if table is None:
        return None
    table.this.set("this", f"{table.name}_list")
    return _text(tree)


def _turned_comparison(tree: Any, rng: random.Random) -> str | None:
    # A turned join condition would multiply the tables: slow rather than wrong.
    found = [node for where in tree.find_all(exp.Where) for node in where.find_all(*_TURNED) if node.find(exp.Literal)]
    if not found:
        return None
    node = rng.choice(found)
    node.replace(_TURNED[type(node)](this=node.this, expression=node.expression))
    return _text(tree)


def _other_aggregate(tree: Any, rng: random.Random) -> str | None:
    node = _pick(tree, rng, *_SWAPPED)
    if node is None:
        return None
    node.replace(_SWAPPED[type(node)](this=node.this))
    return _text(tree)


def _other_end(tree: Any, _rng: random.Random) -> str | None:
    order = tree.args.get("order")
    if order is None or tree.args.get("limit") is None:
        return None
    first = order.expressions[0]
    first.set("desc", not first.args.get("desc"))
    return _text(tree)


def _no_condition(tree: Any, rng: random.Random) -> str | None:
    where = _pick(tree, rng, exp.Where)
    if where is None:
        return None
    where.pop()
    return _text(tree)
