"""The SQL tools `sql.describe`, `sql.execute` and `sql.select`: checks arguments, joins the parts. No queue here.

A query that is refused, fails or runs too long is an answer with `error` set: a workflow can mend it. Only a call that
no other query could save (unknown database, wrong arguments) raises ToolError.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from common.clock import monotonic_s
from common.model import Json
from workers.tools.registry import ToolContext, ToolError
from workers.tools.sql_guard import refusal
from workers.tools.sql_relevance import choose, is_wide, relevance, words, write, write_values
from workers.tools.sql_run import Limits, QueryResult, connect, dialect, resolve, run_query
from workers.tools.sql_schema import Table, matching_values, read_schema
from workers.tools.sql_vote import Candidate, vote

_SHARE_OF_TIME = 0.9
_MOST_ROWS = 10_000
_MOST_SEARCHED_WORDS = 20
_SHORTEST_SEARCHED_WORD = 3


def describe(args: Mapping[str, Json], context: ToolContext) -> Json:
    """The schema that matters for a question: {schema, tables, values}.

    Args: database; question (text); keywords (list of text); samples (values a column, 3); max_tables (10);
    whole_up_to (0): a database of at most so many tables is written whole and the same for every question, so that
    prompts share it, and what was found for this question stands apart in `values`.
    """
    _only(args, "database", "question", "keywords", "samples", "max_tables", "whole_up_to")
    name = _text(args, "database")
    url = resolve(name, context.databases)
    question, keywords = _text(args, "question", ""), _texts(args, "keywords")
    samples, most = _count(args, "samples", 3, 50), _count(args, "max_tables", 10, 1000)
    whole_up_to = _count(args, "whole_up_to", 0, 1000, least=0)
    seconds = _SHARE_OF_TIME * context.timeout_s
    half_time_at = monotonic_s() + seconds / 2
    with connect(url, seconds) as connection:
        try:
            tables = read_schema(connection, samples)
        except DBAPIError as error:
            raise ToolError(f"the schema of {name!r} cannot be read: {error.orig}") from None
        # Late, tables may be missing because they were cut off: no answer is better than half a schema.
        if monotonic_s() >= half_time_at + seconds / 2:
            raise ToolError(f"the schema of {name!r} cannot be read within {seconds:g} s")
        searched = keywords or sorted(words(question))
        matches = _search(connection, tables, searched, samples, half_time_at)
    scores = relevance(tables, words(" ".join([question, *keywords])), matches)
    if len(tables) <= whole_up_to and not any(map(is_wide, tables)):
        names = [table.name for table in tables]
        return {"schema": write(tables, scores, {}), "tables": names, "values": write_values(matches)}
    chosen = choose(tables, scores.tables, most)
    return {"schema": write(chosen, scores, matches), "tables": [table.name for table in chosen], "values": ""}


def _search(
    connection: Connection, tables: Sequence[Table], searched: Sequence[str], most: int, deadline: float
) -> dict[tuple[str, str], list[str]]:
    """Values that contain a searched word, by table and column. Stops at `deadline`, since it reads whole tables."""
    wanted = [word for word in searched if len(word) >= _SHORTEST_SEARCHED_WORD][:_MOST_SEARCHED_WORDS]
    places = [(table.name, column.name) for table in tables for column in table.columns if column.is_text]
    found: dict[tuple[str, str], list[str]] = {}
    for place in places if wanted else ():
        if monotonic_s() >= deadline:
            break
        try:
            found[place] = matching_values(connection, *place, wanted, most)
        except DBAPIError:
            break
    return {place: values for place, values in found.items() if values}


def execute(args: Mapping[str, Json], context: ToolContext) -> Json:
    """Run one reading query: {sql, columns, rows, row_count, truncated, error, elapsed_s}.

    Args: database; sql; row_limit (1000). `error` is the database's own text, or why the statement was refused.
    """
    _only(args, "database", "sql", "row_limit")
    url = resolve(_text(args, "database"), context.databases)
    sql = _text(args, "sql")
    limits = Limits(_SHARE_OF_TIME * context.timeout_s, _count(args, "row_limit", 1000, _MOST_ROWS))
    reason = refusal(sql, dialect(url))
    if reason is not None:
        result = QueryResult([], [], False, reason, 0.0)
    else:
        with connect(url, limits.seconds) as connection:
            result = run_query(connection, sql, limits)
    return {"sql": sql, **asdict(result), "row_count": len(result.rows)}


def select(args: Mapping[str, Json], _context: ToolContext) -> Json:
    """Choose among results of `sql.execute` by equal rows: {index, sql, columns, rows, error, votes, groups}.

    Args: results (null where a candidate gave none); scores (one number a result, higher is better). Without any result
    index and sql are null.
    """
    _only(args, "results", "scores")
    results = args.get("results")
    if not isinstance(results, list) or not all(result is None or isinstance(result, dict) for result in results):
        raise ToolError("results must be a list of what sql.execute returned, or null")
    scores = _scores(args, len(results))
    given = [Candidate(index, scores[index], result) for index, result in enumerate(results) if result is not None]
    groups = vote(given)
    if not groups:
        return {"index": None, "sql": None, "columns": [], "rows": [], "error": "no result", "votes": 0, "groups": []}
    best = groups[0].members[0]
    return {
        "index": best.index,
        "sql": best.sql,
        "columns": best.result.get("columns") or [],
        "rows": best.result.get("rows") or [],
        "error": best.result.get("error"),
        "votes": len(groups[0].members),
        "groups": [[candidate.index for candidate in group.members] for group in groups],
    }


def _only(args: Mapping[str, Json], *known: str) -> None:
    for name in args:
        if name not in known:
            raise ToolError(f"unknown argument {name!r}; known are {', '.join(known)}")


def _text(args: Mapping[str, Json], name: str, default: str | None = None) -> str:
    value = args.get(name, default)
    if not isinstance(value, str):
        raise ToolError(f"{name} must be a text")
    return value


def _texts(args: Mapping[str, Json], name: str) -> list[str]:
    value = args.get(name) or []
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise ToolError(f"{name} must be a list of texts")
    return [each.strip() for each in value if each.strip()]


def _count(args: Mapping[str, Json], name: str, default: int, most: int, least: int = 1) -> int:
    value = args.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ToolError(f"{name} must be a whole number from {least} to {most}")
    return value


def _scores(args: Mapping[str, Json], length: int) -> list[float]:
    value = args.get("scores")
    if value is None:
        return [0.0] * length
    if not isinstance(value, list) or len(value) != length:
        raise ToolError(f"scores must be a list of {length} numbers, one for each result")
    if not all(isinstance(each, int | float) and not isinstance(each, bool) and abs(each) < 1e9 for each in value):
        raise ToolError("scores must be numbers below 1e9")
    return [float(each) for each in value]
