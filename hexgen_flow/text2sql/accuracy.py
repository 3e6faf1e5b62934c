"""Execution accuracy as BIRD computes it: an answer is right when it gives the same set of rows as the gold query."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

from common.model import Json
from hexgen_flow.text2sql.dataset import Question
from workers.tools.sql_run import Limits, connect, resolve, run_query

TIME_LIMIT_S = 30.0
"""BIRD's own limit for one query, in s."""

_NO_LIMIT = 1 << 40


@dataclass(frozen=True, slots=True)
class Accuracy:
    """Whether each answer is right, in the order asked, and the share that is (0 without any answer)."""

    correct: tuple[bool, ...]

    @property
    def mean(self) -> float:
        return sum(self.correct) / len(self.correct) if self.correct else 0.0


def execution_accuracy(
    answers: Sequence[tuple[Question, str | None]], databases: Mapping[str, str], seconds: float = TIME_LIMIT_S
) -> Accuracy:
    """Judge each (question, predicted SQL). Raises ToolError for a database that is not among `databases`."""
    return Accuracy(tuple(is_correct(question, sql, databases, seconds) for question, sql in answers))


def is_correct(
    question: Question, sql: str | None, databases: Mapping[str, str], seconds: float = TIME_LIMIT_S
) -> bool:
    """Whether `sql` gives the gold query's set of rows: order and repetition do not count, columns do.

    No SQL, an error, or more than `seconds` for either query is wrong. Raises ToolError for an unknown database.
    """
    if not sql:
        return False
    predicted = _rows(question.database, sql, databases, seconds)
    return predicted is not None and predicted == _rows(question.database, question.sql, databases, seconds)


def _rows(database: str, sql: str, databases: Mapping[str, str], seconds: float) -> frozenset[Hashable] | None:
    with connect(resolve(database, databases), seconds) as connection:
        result = run_query(connection, sql, Limits(seconds, _NO_LIMIT, _NO_LIMIT))
    return None if result.error is not None else frozenset(_hashable(row) for row in result.rows)


def _hashable(value: Json) -> Hashable:
    if isinstance(value, list):
        return tuple(_hashable(each) for each in value)
    return repr(value) if isinstance(value, dict) else value
