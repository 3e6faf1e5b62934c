"""What a tool worker lets RQ say of an outage."""

import logging

import pytest
from redis.exceptions import ConnectionError, ReadOnlyError, TimeoutError

from workers.tools.rq_worker import OnceAnOutage


def test_an_outage_is_told_when_it_begins_and_when_it_is_over(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    rq, outage = logging.Logger("rq.worker"), OnceAnOutage()
    rq.addFilter(outage)
    rq.addHandler(caplog.handler)
    for _ in range(2):
        caplog.clear()
        outage.over()
        for error in (ConnectionError("refused"), TimeoutError("late"), ReadOnlyError("it is a replica")):
            try:
                raise error
            except Exception:
                rq.error("Worker %s: found an unhandled exception, quitting...", "w", exc_info=True)
        rq.error("another fault")
        try:
            raise KeyError("a bug")
        except Exception:
            rq.error("and this")
        outage.over()
        outage.over()
        assert [record.getMessage() for record in caplog.records] == [
            "tools: Redis cannot be reached or does not serve now: refused; trying again",
            "another fault",
            "and this",
            "tools: back after 3 failed tries",
        ]
