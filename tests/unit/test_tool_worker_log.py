"""What a tool worker lets RQ say of an outage."""

import logging

import pytest

from workers.tools.rq_worker import OnceAnOutage


def test_an_outage_is_told_when_it_begins_and_when_it_is_over(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    rq, outage = logging.Logger("rq.worker"), OnceAnOutage()
    rq.addFilter(outage)
    rq.addHandler(caplog.handler)
    for _ in range(2):
        caplog.clear()
        outage.over()
        for _ in range(3):
            rq.error("Worker %s: could not connect to Redis instance: %s retrying in %d seconds...", "w", "refused", 1)
        rq.error("another fault")
        outage.over()
        outage.over()
        assert [record.getMessage() for record in caplog.records] == [
            "Worker w: could not connect to Redis instance: refused retrying in 1 seconds...",
            "another fault",
            "tools: back after 3 failed tries",
        ]
