"""Time without prefill counts as missed only while a request that fits waits for the engine."""

import pytest

from workers.idle import IdlePrefill


def test_a_request_that_waits_while_the_engine_only_decodes_is_missed_prefill() -> None:
    idle = IdlePrefill()
    idle.starts(100, 0.0, 0.0)
    idle.iterates(prefills=True, now=0.0)
    idle.iterates(prefills=False, now=1.0)
    idle.iterates(prefills=False, now=2.0)
    idle.starts(100, 5.0, 3.0)
    assert idle.missed_s == 2.0
    assert idle.share(8.0) == pytest.approx(2 / 10)


def test_what_came_late_has_missed_only_its_own_wait() -> None:
    idle = IdlePrefill()
    idle.starts(100, 0.0, 0.0)
    idle.iterates(prefills=False, now=1.0)
    idle.starts(100, 0.25, 3.0)
    assert idle.missed_s == 0.25


def test_nothing_is_missed_while_it_prefills() -> None:
    idle = IdlePrefill()
    idle.starts(100, 0.0, 0.0)
    idle.iterates(prefills=False, now=1.0)
    idle.iterates(prefills=True, now=2.0)
    idle.starts(100, 9.0, 3.0)
    assert idle.missed_s == 0.0


def test_a_look_that_found_nothing_ends_what_was_missed_before() -> None:
    idle = IdlePrefill()
    idle.starts(100, 0.0, 0.0)
    idle.iterates(prefills=False, now=1.0)
    idle.found_nothing(1000, 2.5)
    idle.starts(100, 9.0, 3.0)
    assert idle.missed_s == 0.5


def test_a_request_that_did_not_fit_waited_for_room() -> None:
    idle = IdlePrefill()
    idle.starts(100, 0.0, 0.0)
    idle.iterates(prefills=False, now=1.0)
    idle.found_nothing(1000, 2.5)
    idle.starts(1001, 9.0, 3.0)
    assert idle.missed_s == 0.0


def test_an_empty_engine_misses_what_waits_and_its_rest_is_not_counted() -> None:
    idle = IdlePrefill()
    assert idle.share(0.0) == 0.0
    idle.starts(100, 0.0, 0.0)
    idle.is_empty(4.0)
    assert idle.share(100.0) == 0.0
    idle.starts(100, 1.0, 100.0)
    assert idle.share(105.0) == pytest.approx(1 / 10)
