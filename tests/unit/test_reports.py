"""Lines about single things: one each, until there are too many."""

import logging

import pytest

from coordinator.reports import MOST, Reports


def test_many_of_a_kind_are_summed_up(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    reports = Reports()
    for _ in range(2):
        caplog.clear()
        for number in range(MOST + 37):
            reports.tell(logging.WARNING, "leases that ran out", "lease %d ran out", number)
            reports.tell(logging.DEBUG, "nothing", "nothing %d", number)
        reports.tell(logging.INFO, "dead letters", "one dead letter")
        reports.sum_up()
        told = [(record.levelname, record.getMessage()) for record in caplog.records]
        assert told[:MOST] == [("WARNING", f"lease {number} ran out") for number in range(MOST)]
        assert told[MOST:] == [("INFO", "one dead letter"), ("WARNING", "and 37 more leases that ran out")]
    caplog.clear()
    reports.sum_up()
    assert caplog.records == []


def test_the_trace_of_what_is_handled_can_be_told(caplog: pytest.LogCaptureFixture) -> None:
    try:
        raise KeyError("lost")
    except KeyError:
        Reports().tell(logging.ERROR, "faults", "a fault", trace=True)
    assert "KeyError: 'lost'" in caplog.text
