"""The core: workflows that their deadline ends, if they asked for that, and those that go on."""

import pytest
from core_bench import START, Bench

from common.events import DEADLINE, CancelAsked, Due, Submitted

PAIR = "stages: {a: {prompt: p}, b: {prompt: q}}"


def late(document=PAIR, **keys):
    return Bench(document, slo_s=5, on_deadline="cancel", packed=True, **keys)


def test_the_deadline_is_waited_for_from_the_start_and_ends_the_workflow():
    bench = late()
    assert bench.submit().delays == [(DEADLINE, 5000)]
    bench.now += 5000
    requests = [push.request for push in bench.pushes]
    step = bench.post(Due(DEADLINE))
    assert (bench.status, bench.result["error"], bench.result["slo_met"]) == (
        "cancelled", "its deadline has passed", False
    )  # fmt: skip
    assert bench.result["elapsed_s"] == 5
    assert sorted(step.drops) == requests
    assert bench.told[-1] == "cancelled"


def test_a_workflow_that_ends_before_waits_no_longer():
    for how in ("complete", "fail", "cancel"):
        bench = late("stages: {a: {prompt: p}}")
        bench.submit()
        ends = {
            "complete": lambda bench=bench: bench.complete("a"),
            "fail": lambda bench=bench: bench.fail("a", retryable=False),
            "cancel": bench.cancel,
        }
        assert DEADLINE in ends[how]().recalls
        assert bench.delays == {}
        assert bench.status == {"complete": "completed", "fail": "failed", "cancel": "cancelled"}[how]


def test_delayed_and_waiting_requests_end_with_it():
    bench = late("stages: {a: {prompt: p}, b: {prompt: p, model: none}}")
    bench.submit()
    bench.fail("a")
    bench.now = START + 5000
    step = bench.post(Due(DEADLINE))
    assert set(step.recalls) == {"a", "b", DEADLINE}
    assert bench.status == "cancelled"


@pytest.mark.parametrize("at_ms", [5000, 5001, 60_000])
def test_whatever_comes_at_the_deadline_or_later_ends_it(at_ms):
    """Its wake may come after other mail, or was lost with the server's last second."""
    bench = late()
    bench.submit()
    bench.now = START + at_ms
    bench.post(bench.completed("a", "one of two"))
    assert (bench.status, bench.result["error"]) == ("cancelled", "its deadline has passed")


def test_what_has_come_in_is_looked_at_first():
    """A coordinator that looks late, as after an outage, throws no result away and no other deadline."""
    bench = late("stages: {a: {prompt: p}}")
    bench.submit()
    bench.now = START + 5001
    bench.post(Due(DEADLINE), bench.completed("a", "in time or nearly"))
    assert (bench.status, bench.result["slo_met"]) == ("completed", False)
    bench = late()
    bench.submit()
    bench.now = START + 5001
    bench.amend(60)
    assert bench.status == "running"


def test_one_that_nobody_has_begun_by_then_begins_nothing():
    bench = late()
    bench.now = START + 5000
    step = bench.submit()
    assert (bench.status, step.pushes, step.delays) == ("cancelled", [], [])


def test_it_is_ended_once():
    bench = late()
    bench.submit()
    bench.now = START + 5000
    bench.post(Due(DEADLINE), CancelAsked("no"), Due(DEADLINE), Submitted())
    assert bench.told.count("cancelled") == 1


def test_a_wake_before_its_time_waits_for_the_rest():
    bench = late()
    bench.submit()
    bench.now = START + 1000
    assert bench.post(Due(DEADLINE)).delays == [(DEADLINE, 4000)]
    assert bench.status == "running"


def test_others_wait_for_no_deadline_and_go_on_after_it():
    bench = Bench("stages: {a: {prompt: p}}", slo_s=5)
    assert bench.submit().delays == []
    bench.now = START + 6000
    assert bench.post(Due(DEADLINE)).recalls == []  # of an earlier workflow of that id
    assert bench.status == "running"
    bench.complete("a", "x")
    assert (bench.status, bench.result["slo_met"]) == ("completed", False)


@pytest.mark.parametrize(("slo_s", "left_ms"), [(60, 59_000), (2, 1_000)])
def test_another_deadline_is_waited_for_instead(slo_s, left_ms):
    bench = late()
    bench.submit()
    bench.now = START + 1000
    assert bench.amend(slo_s).delays == [(DEADLINE, left_ms)]
    assert bench.status == "running"
    bench.now = START + 1000 * slo_s
    bench.post(Due(DEADLINE))
    assert (bench.status, bench.result["slo_s"]) == ("cancelled", slo_s)


def test_another_deadline_that_has_passed_ends_it():
    bench = late()
    bench.submit()
    bench.now = START + 1000
    bench.amend(0.5)
    assert (bench.status, bench.result["slo_s"]) == ("cancelled", 0.5)
