"""The tuner's judgement: when it changes, waits, confirms, takes back; when a round is due."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from common.recorded import Recorded
from coordinator.tuner import (
    ENOUGH,
    LIVE,
    Decision,
    Limits,
    Live,
    Memory,
    Situation,
    Trial,
    decide,
    is_due,
    measured,
    pack_memory,
    read_memory,
    worse,
)  # fmt: skip

LIMITS = Limits(minimum_gain=0.03, margin=0.1, hold=2)


def records(count: int, latency_s: float) -> list[Recorded]:
    """One a second."""
    ended = [round(1000 * (at + latency_s)) for at in range(count)]
    return [Recorded("w", "t", 1000 * at, 10**6, end, "hexgen", {}, ()) for at, end in enumerate(ended)]


def situation(alpha: float = 0.5, latency_s: float = 100.0, *, rate: float = 1.0, count: int = 50) -> Situation:
    return Situation("hexgen", {"alpha": alpha}, rate, count, records(count, latency_s))


def replay(gain: float) -> object:
    """Any alpha but 0.5 makes the P95 lower by that share; 0.5 makes it 100 s."""

    def evaluate(values: Mapping[str, float], workflows: int, seed: int, rate: float = 0.0) -> float:
        return 100.0 if values == {"alpha": 0.5} else 100.0 * (1.0 - gain)

    return evaluate


def decided(now: Situation, memory: Memory = Memory(), gain: float = 0.2, limits: Limits = LIMITS) -> Decision:  # noqa: B008
    return decide(now, memory, limits, replay(gain), seed=1)  # type: ignore[arg-type]


def test_a_gain_that_is_large_enough_changes_the_values_and_puts_them_on_trial() -> None:
    found = decided(situation(), gain=0.2)
    assert found.action == "changed"
    assert found.values is not None
    assert found.values != {"alpha": 0.5}
    assert found.memory == Memory(Trial({"alpha": 0.5}, 100.0, 100.0, 1.0))
    assert (found.told["gain"], found.told["live_p95_s"]) == (pytest.approx(0.2), 100.0)


def test_a_gain_below_the_least_changes_nothing() -> None:
    found = decided(situation(), gain=0.029)
    assert (found.action, found.values) == ("kept", None)
    assert "the best gains 2.9%" in found.reason


@pytest.mark.parametrize(
    ("now", "reason"),
    [
        (situation(count=ENOUGH - 1), "29 workflows recorded"),
        (situation(rate=0.0), "some of the last hour"),
        (replace(situation(), policy="vllm"), "policy vllm has nothing to tune"),
    ],
)
def test_where_there_is_nothing_to_go_by_nothing_is_tried(now: Situation, reason: str) -> None:
    found = decided(now)
    assert (found.action, found.values) == ("kept", None)
    assert reason in found.reason


ON_TRIAL = Memory(Trial({"alpha": 0.5}, live_p95_s=100.0, predicted_p95_s=100.0, rate=1.0))


def test_a_change_is_judged_when_enough_have_come_since() -> None:
    early = decided(replace(situation(0.9), recent=records(ENOUGH - 1, 500.0)), ON_TRIAL)
    assert (early.action, early.memory) == ("kept", ON_TRIAL)
    good = decided(situation(0.9, 90.0), ON_TRIAL)
    assert (good.action, good.values, good.memory) == ("confirmed", None, Memory())


def test_a_change_that_makes_the_live_p95_worse_is_taken_back_and_then_nothing_is_changed_for_a_while() -> None:
    found = decided(situation(0.9, 120.0), ON_TRIAL)
    assert (found.action, found.values) == ("rolled back", {"alpha": 0.5})
    memory, actions = found.memory, []
    for _ in range(3):
        found = decided(situation(), memory)
        memory = found.memory
        actions.append(found.action)
    assert actions == ["kept", "kept", "changed"]


def test_what_the_replay_foresaw_is_no_fault_of_the_change() -> None:
    """The load has grown somewhat: the live P95 is a fifth higher, and so is what is predicted for it."""
    foreseen = replace(situation(0.9, 120.0), rate=1.4)
    assert decided(foreseen, ON_TRIAL, gain=-0.2).action == "confirmed"
    assert decided(foreseen, ON_TRIAL, gain=0.0).action == "rolled back"


def test_what_is_predicted_is_predicted_of_the_load_that_was_served() -> None:
    """The load has tripled; what was live came at one a second, so that is what a replay of it is compared with."""
    rates: list[float] = []

    def evaluate(values: Mapping[str, float], workflows: int, seed: int, rate: float = 0.0) -> float:
        rates.append(rate)
        return (300.0 if values == {"alpha": 0.5} else 200.0) if rate == 0.0 else 100.0 * rate

    found = decide(situation(rate=3.0), Memory(), LIMITS, evaluate, seed=1)
    assert found.memory.trial == Trial({"alpha": 0.5}, 100.0, 100.0, 3.0)
    assert set(rates) == {0.0, 1.0}


def test_worse_needs_both() -> None:
    trial = Trial({}, 100.0, 80.0, 1.0)
    assert worse(trial, 111.0, 80.0, 0.1)
    assert not worse(trial, 109.0, 80.0, 0.1)
    assert not worse(trial, 150.0, 120.0, 0.1)
    assert not worse(trial, 100.0, 40.0, 0.1)


def test_a_load_that_has_moved_ends_a_trial_unjudged_and_is_tuned_for_at_once() -> None:
    found = decided(situation(0.5, 300.0, rate=1.6), ON_TRIAL)
    assert found.action == "changed"
    assert found.memory.trial is not None
    assert found.memory.trial.rate == 1.6


def test_with_nothing_measured_before_a_change_there_is_nothing_to_judge() -> None:
    found = decided(replace(situation(), recent=[]))
    assert (found.action, found.memory) == ("changed", Memory())


def test_the_live_p95_is_that_of_the_newest() -> None:
    old, new = records(50, 900.0), records(LIVE, 100.0)
    assert measured([*old, *new]) == Live(pytest.approx(100.0), pytest.approx(1.0))
    assert measured(new[: ENOUGH - 1]) is None


def told(cpu_s: float = 1.0, rate: float = 2.0) -> dict[str, float]:
    return {"cpu_s": cpu_s, "rate": rate}


@pytest.mark.parametrize(
    ("last", "waited_s", "rate", "due"),
    [
        (told(), 29.0, 2.0, False),
        (told(), 30.0, 2.0, True),
        (told(), 21.0, 3.1, True),
        (told(), 21.0, 0.9, True),
        (told(), 21.0, 2.9, False),
        (told(), 19.0, 9.0, False),
        (told(cpu_s=3.0), 59.0, 9.0, False),
        (told(cpu_s=3.0), 60.0, 2.0, True),
        (told(rate=0.0), 21.0, 0.1, True),
        (None, 29.0, 2.0, False),
        ({"rate": "x"}, 30.0, 2.0, True),
    ],
)
def test_a_round_is_due_after_the_interval_or_when_the_load_moves_within_the_share_of_a_core(
    last: Mapping[str, float] | None, waited_s: float, rate: float, due: bool
) -> None:
    assert is_due(last, waited_s, rate, interval_s=30.0, share=0.05) is due


@pytest.mark.parametrize("memory", [Memory(), Memory(hold=3), ON_TRIAL])
def test_memory_is_kept_as_json(memory: Memory) -> None:
    assert read_memory(pack_memory(memory)) == memory


@pytest.mark.parametrize("garbage", [None, 5, [], {}, {"trial": {"x": 1}, "hold": 0}, {"trial": None, "hold": "x"}])
def test_memory_that_cannot_be_read_is_empty(garbage: object) -> None:
    assert read_memory(garbage) == Memory()
