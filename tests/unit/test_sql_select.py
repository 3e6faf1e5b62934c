"""`sql.select`: the vote over results, and its ties."""

from typing import Any

import pytest

from workers.tools.registry import ToolContext, ToolError
from workers.tools.sql import select

NOWHERE = ToolContext({})


def result(sql: str, *rows: list[Any], error: str | None = None) -> dict[str, Any]:
    return {
        "sql": sql,
        "columns": ["a"],
        "rows": list(rows),
        "row_count": len(rows),
        "truncated": False,
        "error": error,
    }


def choose(*results: dict[str, Any] | None, scores: list[float] | None = None) -> dict[str, Any]:
    chosen = select({"results": list(results)} | ({"scores": scores} if scores else {}), NOWHERE)
    assert isinstance(chosen, dict)
    return chosen


def test_most_equal_results_win_whatever_the_order_of_rows() -> None:
    chosen = choose(result("one", [1]), result("two", [2], [3]), result("three", [3], [2.0000000001]))
    assert (chosen["index"], chosen["sql"], chosen["votes"]) == (1, "two", 2)
    assert chosen["rows"] == [[2], [3]]
    assert chosen["groups"] == [[1, 2], [0]]


def test_rows_beat_emptiness_and_emptiness_beats_errors() -> None:
    failed = [result("e", error="no such column"), result("f", error="no such column")]
    assert choose(*failed, result("nothing"), result("nothing more"), result("some", [1]))["sql"] == "some"
    chosen = choose(*failed, result("nothing"), scores=[9, 9, 0])
    assert (chosen["sql"], chosen["error"]) == ("nothing", None)
    assert choose(*failed)["error"] == "no such column"


def test_equal_errors_are_no_agreement() -> None:
    chosen = choose(result("longer", error="x"), result("short", error="x"))
    assert (chosen["sql"], chosen["votes"], chosen["groups"]) == ("short", 1, [[1], [0]])


def test_ties_go_by_score_then_shortest_then_first() -> None:
    one, two, three = result("SELECT 1 AS one", [1]), result("SELECT 2", [2]), result("SELECT 3", [3])
    assert choose(one, two, three, scores=[5, 4, 4])["index"] == 0
    assert choose(one, two, three, scores=[4, 4, 4])["index"] == 1
    assert choose(three, two)["index"] == 0


def test_inside_a_group_the_best_scored_candidate_speaks() -> None:
    chosen = choose(result("a", [1]), result("SELECT much longer", [1]), scores=[1, 2.5])
    assert (chosen["index"], chosen["votes"]) == (1, 2)


def test_candidates_that_gave_nothing_are_left_out_but_keep_their_place() -> None:
    assert choose(None, result("x", [1]), None)["index"] == 1
    empty = choose(None, None)
    assert (empty["index"], empty["sql"], empty["rows"], empty["votes"]) == (None, None, [], 0)
    assert choose()["index"] is None


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ({}, "results must be a list"),
        ({"results": ["SELECT 1"]}, "results must be a list"),
        ({"results": [None], "scores": []}, "scores must be a list of 1 numbers"),
        ({"results": [None], "scores": ["high"]}, "scores must be numbers"),
        ({"results": [], "score": 1}, "unknown argument 'score'"),
    ],
)
def test_wrong_arguments_are_tool_errors(args: dict[str, Any], said: str) -> None:
    with pytest.raises(ToolError, match=said):
        select(args, NOWHERE)
