"""The tables of legal moves."""

import pytest

from common.errors import IllegalTransition
from common.states import ENDED, REQUEST, STAGE, WORKFLOW, move

TABLES = {"workflow": WORKFLOW, "stage": STAGE, "request": REQUEST}


def test_a_legal_move():
    assert move(STAGE, "pending", "start") == "running"


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_every_other_move_is_refused(table):
    statuses = {status for status, _ in table} | set(table.values())
    events = {event for _, event in table}
    for status in statuses:
        for event in events:
            if (status, event) not in table:
                with pytest.raises(IllegalTransition, match=f"'{event}' cannot happen in status '{status}'"):
                    move(table, status, event)


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_all_statuses_can_be_reached_from_the_first(table):
    reached = [next(iter(table))[0]]
    for status in reached:
        reached += [end for (start, _), end in table.items() if start == status and end not in reached]
    assert set(reached) == {status for status, _ in table} | set(table.values())


def test_nothing_happens_to_a_stage_that_has_ended():
    assert set(STAGE.values()) - {status for status, _ in STAGE} == ENDED


@pytest.mark.parametrize("status", ["completed", "failed", "cancelled"])
def test_a_workflow_ends_once(status):
    for event in ("complete", "fail", "cancel"):
        with pytest.raises(IllegalTransition):
            move(WORKFLOW, status, event)
