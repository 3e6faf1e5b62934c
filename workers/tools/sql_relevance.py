"""Chooses the tables that matter for a question and writes them down. Pure: works on records, knows no database."""

import re
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

from workers.tools.sql_schema import Column, ForeignKey, Table

_IN_TABLE_NAME, _IN_COLUMN_NAME, _IN_VALUE, _IN_COMMENT = 4.0, 3.0, 3.0, 1.0
_WORTH_KEEPING = 0.25
_MOST_COLUMNS = 60
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+|[^\W\d_A-Za-z]+")
_EMPTY_WORDS = frozenset(
    _WORD.findall(
        "a all also an and any are as at be by do each for from give had has have how if in is it its list many most "
        "much name of on or per show than that the their there these they this those to was were what when where which "
        "who whose with"
    )
)

Matches = Mapping[tuple[str, str], Sequence[str]]
"""(table, column) -> values found in it that contain a keyword."""


@dataclass(frozen=True, slots=True)
class Relevance:
    """How well each table and each of its columns answers to the words asked for."""

    tables: Mapping[str, float]
    columns: Mapping[tuple[str, str], float]


def words(text: str) -> frozenset[str]:
    """The words of a text or an identifier in small letters, plural s cut off, empty words left out."""
    found = (word.lower() for word in _WORD.findall(text))
    return frozenset(_singular(word) for word in found if word not in _EMPTY_WORDS and len(word) > 1)


def _singular(word: str) -> str:
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    return word[:-1] if word.endswith("s") and not word.endswith("ss") and len(word) > 3 else word


def relevance(tables: Sequence[Table], asked: Set[str], matches: Matches) -> Relevance:
    """Score tables and columns. A word counts once per table, where it weighs most: wide tables win nothing."""
    by_table: dict[str, float] = {}
    by_column: dict[tuple[str, str], float] = {}
    for table in tables:
        best: defaultdict[str, float] = defaultdict(float)
        for word in asked & words(table.name):
            best[word] = _IN_TABLE_NAME
        for column in table.columns:
            weights = _column_weights(column, asked, matches.get((table.name, column.name), ()))
            by_column[table.name, column.name] = sum(weights.values())
            for word, weight in weights.items():
                best[word] = max(best[word], weight)
        by_table[table.name] = sum(best.values())
    return Relevance(by_table, by_column)


def _column_weights(column: Column, asked: Set[str], found: Sequence[str]) -> dict[str, float]:
    weights = dict.fromkeys(asked & words(column.comment), _IN_COMMENT)
    weights |= dict.fromkeys(asked & words(" ".join((*column.samples, *found))), _IN_VALUE)
    return weights | dict.fromkeys(asked & words(column.name), _IN_COLUMN_NAME)


def choose(tables: Sequence[Table], scores: Mapping[str, float], most: int) -> list[Table]:
    """The best `most` tables and those needed to join them, in schema order; the first `most` where nothing matches."""
    ranked = sorted(tables, key=lambda table: -scores[table.name])
    best = scores[ranked[0].name] if ranked else 0.0
    if best == 0:
        return list(tables[:most])
    kept = [table.name for table in ranked[:most] if scores[table.name] >= _WORTH_KEEPING * best]
    joined = _joined(tables, kept)
    return [table for table in tables if table.name in joined]


def _joined(tables: Sequence[Table], kept: Sequence[str]) -> set[str]:
    """`kept` and the tables on the shortest foreign-key paths between them."""
    neighbours: defaultdict[str, set[str]] = defaultdict(set)
    for table in tables:
        for key in table.foreign_keys:
            neighbours[table.name].add(key.table)
            neighbours[key.table].add(table.name)
    joined = {kept[0]}
    for name in kept[1:]:
        joined |= _path(neighbours, joined, name)
    return joined


def _path(neighbours: Mapping[str, Set[str]], sources: Set[str], goal: str) -> set[str]:
    came_from: dict[str, str | None] = dict.fromkeys(sorted(sources))
    waiting = deque(came_from)
    while waiting and goal not in came_from:
        here = waiting.popleft()
        for name in sorted(neighbours.get(here, set()) - came_from.keys()):
            came_from[name] = here
            waiting.append(name)
    path = {goal}
    step = came_from.get(goal)
    while step is not None:
        path.add(step)
        step = came_from[step]
    return path


def write(tables: Sequence[Table], scores: Relevance, matches: Matches) -> str:
    """CREATE TABLE text with types, keys, comments and values."""
    return "\n\n".join(_write_table(table, scores, matches) for table in tables)


def write_values(matches: Matches) -> str:
    """A line for each column in which a keyword was found, with the values found there."""
    return "\n".join(
        f"{_quoted(table)}.{_quoted(column)}: {', '.join(found)}" for (table, column), found in matches.items()
    )


def _write_table(table: Table, scores: Relevance, matches: Matches) -> str:
    key = [column.name for column in table.columns if column.in_key]
    single = {foreign.columns[0]: foreign for foreign in table.foreign_keys if len(foreign.columns) == 1}
    lines = [
        _write_column(column, key == [column.name], single.get(column.name), matches.get((table.name, column.name), ()))
        for column in _narrow(table, scores.columns)
    ]
    if len(key) > 1:
        lines.append(f"  PRIMARY KEY ({', '.join(key)})")
    lines.extend(
        f"  FOREIGN KEY ({', '.join(wide.columns)}) {_refers(wide)}"
        for wide in table.foreign_keys
        if len(wide.columns) > 1
    )
    head = f"CREATE TABLE {_quoted(table.name)} ("
    return "\n".join([f"{head} -- {table.comment}" if table.comment else head, *lines, ");"])


def is_wide(table: Table) -> bool:
    """Whether a table has so many columns that only those are written that matter."""
    return len(table.columns) > _MOST_COLUMNS


def _narrow(table: Table, scores: Mapping[tuple[str, str], float]) -> Sequence[Column]:
    """All columns, or in a very wide table the keys and the best of the others."""
    if not is_wide(table):
        return table.columns
    keys = {name for foreign in table.foreign_keys for name in foreign.columns}
    ranked = sorted(table.columns, key=lambda c: (not (c.in_key or c.name in keys), -scores[table.name, c.name]))
    kept = {column.name for column in ranked[:_MOST_COLUMNS]}
    return [column for column in table.columns if column.name in kept]


def _write_column(column: Column, is_key: bool, foreign: ForeignKey | None, found: Sequence[str]) -> str:
    parts = [_quoted(column.name), column.type, "PRIMARY KEY" if is_key else "", _refers(foreign) if foreign else ""]
    values = list(dict.fromkeys((*found, *column.samples)))
    notes = [column.comment, f"values: {', '.join(values)}" if values else ""]
    note = "; ".join(part for part in notes if part)
    return f"  {' '.join(part for part in parts if part)}," + (f" -- {note}" if note else "")


def _refers(foreign: ForeignKey) -> str:
    columns = f" ({', '.join(map(_quoted, foreign.referred))})" if foreign.referred else ""
    return f"REFERENCES {_quoted(foreign.table)}{columns}"


def _quoted(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z_]\w*", name) else '"' + name.replace('"', '""') + '"'
