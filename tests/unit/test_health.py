"""A process that does nothing any more says so once, and lets its file grow old."""

import logging
from pathlib import Path

import pytest

from common import clock
from common.errors import InvalidDocument
from common.health import LEAST_S, Health
from common.settings import load


class Clock:
    """Stands still between two steps."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(clock, "monotonic_s", lambda: self.now)


@pytest.fixture
def hands(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def touched(health: Health, file: Path) -> bool:
    """Whether a look touches the file."""
    file.unlink(missing_ok=True)
    health.look()
    return file.exists()


def test_it_is_well_while_every_loop_has_had_a_good_turn_lately(
    hands: Clock, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    file = tmp_path / "healthy"
    health = Health(("intake", "planner"), 1.0, str(file))
    health.good("intake")
    assert not touched(health, file)  # nobody knows yet of the other one
    health.good("planner")
    assert touched(health, file)
    hands.now += LEAST_S
    health.good("intake")
    assert touched(health, file)
    for _ in range(3):
        hands.now += 1
        assert not touched(health, file)
    health.good("planner")
    assert touched(health, file)
    told = [record.getMessage() for record in caplog.records]
    assert told == [f"unhealthy: no good turn for {LEAST_S:g} s of planner", "healthy again"]


def test_with_long_leases_there_is_more_time(hands: Clock, tmp_path: Path) -> None:
    file = tmp_path / "healthy"
    health = Health(("renewals",), 3 * LEAST_S, str(file))
    health.good("renewals")
    hands.now += 2 * LEAST_S
    assert touched(health, file)


def test_loops_that_never_come_to_a_turn_are_told_too(hands: Clock, caplog: pytest.LogCaptureFixture) -> None:
    health = Health(("renewals",), 1.0, "")
    hands.now += LEAST_S + 1
    health.look()
    assert "no good turn" in caplog.text


def test_a_file_that_goes_away_ends_nobody(hands: Clock, tmp_path: Path) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    health = Health(("renewals",), 1.0, str(folder / "healthy"))
    folder.rmdir()
    health.good("renewals")
    health.look()
    assert not folder.exists()


def test_a_file_that_cannot_be_made_is_refused_at_the_start(tmp_path: Path) -> None:
    assert load(health_file=str(tmp_path / "healthy")).health_file
    with pytest.raises(
        InvalidDocument, match=r"HEXGEN_HEALTH_FILE: there is no folder .*gone that this user may write to"
    ):
        load(health_file=str(tmp_path / "gone" / "healthy"))
