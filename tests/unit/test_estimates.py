"""What is learned while workflows run: hints at the start, means later, nothing lost between coordinators."""

import math

import pytest
from core_bench import definition
from hypothesis import given
from hypothesis import strategies as st

from common.events import Outcome
from common.model import Usage
from coordinator.estimates import WINDOW, Estimates

STAGES = definition(
    {
        "stages": {
            "hinted": {"prompt": "x" * 400, "expect": {"output_tokens": 50}},
            "bare": {"messages": [{"role": "system", "content": "x" * 100}, {"role": "user", "content": "y" * 60}]},
            "short": {"prompt": "p", "max_tokens": 20},
            "big": {"prompt": "p", "model": "big"},
            "tool": {"tool": "t"},
            "slow": {"tool": "t", "expect": {"seconds": 4}},
            "rounds": {"tool": "t", "repeat": {"while": "output", "max": 40}},
            "once": {"tool": "t", "repeat": {"while": "output", "max": 1}},
        }
    }
).stages


OUTPUT = "output/w/hinted/"


def answer(output_tokens=0, prompt_tokens=1, chars=0, run_ms=0, cached_tokens=0):
    return Outcome("text", "i", 0, run_ms, Usage(prompt_tokens, output_tokens, cached_tokens), chars)


def test_at_the_start_the_hints_hold():
    new = Estimates()
    assert new.output_tokens("w", STAGES["hinted"]) == 50
    assert new.output_tokens("w", STAGES["bare"]) == 128
    assert new.output_tokens("w", STAGES["short"]) == 20
    assert new.prompt_tokens("w", STAGES["hinted"]) == 100
    assert new.prompt_tokens("w", STAGES["bare"]) == 40
    assert new.chars_per_token("w", STAGES["bare"]) == 4
    assert new.tool_s("w", STAGES["tool"]) == pytest.approx(0.1)
    assert new.tool_s("w", STAGES["slow"]) == 4
    assert new.branch("w", STAGES["bare"]) == 0.5
    assert new.goes_on("w", STAGES["rounds"]) == [0.5] * 39 + [0.0]


def test_a_wrong_hint_is_soon_outvoted():
    known = Estimates()
    for _ in range(27):
        known.learn("w", STAGES["hinted"], answer(output_tokens=500, prompt_tokens=1000, chars=3000))
        known.learn("w", STAGES["slow"], answer(run_ms=1000))
        known.saw_branch("w", STAGES["hinted"], True)
    assert known.output_tokens("w", STAGES["hinted"]) == pytest.approx(0.1 * 50 + 0.9 * 500, rel=0.01)
    assert known.prompt_tokens("w", STAGES["hinted"]) == pytest.approx(0.1 * 100 + 0.9 * 1000, rel=0.01)
    assert known.chars_per_token("w", STAGES["hinted"]) == pytest.approx(3, rel=0.02)
    assert known.tool_s("w", STAGES["slow"]) == pytest.approx(0.1 * 4 + 0.9 * 1, rel=0.01)
    assert known.branch("w", STAGES["hinted"]) == pytest.approx(0.95, rel=0.01)


def test_drift_is_followed_within_a_window_or_two():
    known = Estimates()
    for tokens in [100] * 5000 + [300] * 1000:
        known.learn("w", STAGES["hinted"], answer(output_tokens=tokens))
    assert known.output_tokens("w", STAGES["hinted"]) == pytest.approx(300 - 200 * math.exp(-2), rel=0.02)


def test_a_single_outlier_is_bounded():
    known = Estimates()
    for run_ms in [100] * 60 + [600_000] + [100] * 60:
        known.learn("w", STAGES["tool"], answer(run_ms=run_ms))
    assert known.tool_s("w", STAGES["tool"]) < 0.11


def test_what_takes_much_longer_than_its_hint_is_learned_all_the_same():
    known = Estimates()
    for _ in range(60):
        known.learn("w", STAGES["tool"], answer(run_ms=60_000))
    assert known.tool_s("w", STAGES["tool"]) > 50


def test_rounds_are_told_apart_as_far_as_they_are_known():
    known = Estimates()
    for _ in range(100):
        known.saw_round("w", STAGES["rounds"], 0, True)
        known.saw_round("w", STAGES["rounds"], 1, False)
    chances = known.goes_on("w", STAGES["rounds"])
    assert chances[0] > 0.95
    assert chances[1] < 0.05
    assert chances[2:39] == pytest.approx([0.5] * 37, abs=0.01)
    for _ in range(100):
        known.saw_round("w", STAGES["rounds"], 30, True)
    assert known.goes_on("w", STAGES["rounds"])[15:] == pytest.approx([0.99] * 24 + [0.0], abs=0.01)
    assert known.goes_on("w", STAGES["once"]) == [0.0]


def test_stages_workflows_models_and_questions_are_kept_apart():
    known = Estimates()
    known.learn("w", STAGES["hinted"], answer(output_tokens=500))
    known.saw_branch("w", STAGES["big"], True)
    assert known.output_tokens("other", STAGES["hinted"]) == 50
    assert known.output_tokens("w", STAGES["short"]) == 20
    assert known.output_tokens("w", STAGES["big"]) == 128
    assert known.branch("w", STAGES["short"]) == 0.5
    assert known.branch("w", STAGES["big"]) == 0.625


def test_an_engine_that_reports_no_usage_teaches_nothing():
    known = Estimates()
    known.learn("w", STAGES["hinted"], answer(prompt_tokens=0, chars=400))
    assert known.output_tokens("w", STAGES["hinted"]) == 50
    assert known.take_added() == {}


def test_an_empty_answer_is_an_answer():
    known = Estimates()
    known.learn("w", STAGES["hinted"], answer(output_tokens=0))
    assert known.output_tokens("w", STAGES["hinted"]) == pytest.approx(37.5)


def test_what_was_taken_is_not_given_twice():
    known = Estimates()
    known.saw_branch("w", STAGES["bare"], True)
    assert list(known.take_added().values()) == [(1.0, 1.0)]
    assert known.take_added() == {}
    assert known.branch("w", STAGES["bare"]) > 0.5


class Shared:
    """What all coordinators have told: sums, added one to another as in the store."""

    def __init__(self):
        self.sums = {}

    def add(self, added):
        for name, values in added.items():
            old = self.sums.get(name, (0.0,) * len(values))
            faded = 1 - values[0] / WINDOW
            self.sums[name] = tuple(a * faded + b for a, b in zip(old, values, strict=True))


moves = st.lists(
    st.tuples(st.sampled_from(["learn", "tell", "hear"]), st.integers(0, 1), st.integers(1, 9)), max_size=40
)


@given(moves)
def test_nothing_is_lost_or_counted_twice_between_coordinators(history):
    shared, both, total = Shared(), (Estimates(), Estimates()), 0
    for move, who, tokens in history:
        if move == "learn":
            both[who].learn("w", STAGES["hinted"], answer(output_tokens=tokens))
            total += 1
        elif move == "tell":
            shared.add(both[who].take_added())
        else:
            both[who].replace(shared.sums)
    learned = sum(tokens for move, _, tokens in history if move == "learn")
    for one in both:
        shared.add(one.take_added())
    for one in both:
        one.replace(shared.sums)
        mean = (3 * 50 + learned) / (3 + total)
        assert one.output_tokens("w", STAGES["hinted"]) == pytest.approx(mean, rel=0.05)
        assert shared.sums.get(OUTPUT, (0.0,))[0] == pytest.approx(WINDOW * (1 - (1 - 1 / WINDOW) ** total))


@given(moves)
def test_what_one_learned_and_told_last_it_knows_before_it_hears_of_it(history):
    shared, one, seen = Shared(), Estimates(), []
    for move, _, tokens in history:
        if move == "learn":
            one.learn("w", STAGES["hinted"], answer(output_tokens=tokens))
            seen.append(tokens)
        elif move == "tell":
            shared.add(one.take_added())
        else:
            one.replace(shared.sums)
        weights = [(1 - 1 / WINDOW) ** age for age in reversed(range(len(seen)))]
        faded = sum(weight * tokens for weight, tokens in zip(weights, seen, strict=True))
        assert one.output_tokens("w", STAGES["hinted"]) == pytest.approx((3 * 50 + faded) / (3 + sum(weights)))


def test_what_is_heard_is_copied():
    one, sums = Estimates(), {OUTPUT: (1.0, 20.0)}
    one.replace(sums)
    one.learn("w", STAGES["hinted"], answer(output_tokens=5))
    assert sums == {OUTPUT: (1.0, 20.0)}


def test_what_another_version_observed_is_no_trouble():
    one = Estimates()
    one.replace({OUTPUT: (7.0, 70.0, 700.0)})
    assert one.output_tokens("w", STAGES["hinted"]) == 50
    one.learn("w", STAGES["hinted"], answer(output_tokens=10))
    assert one.output_tokens("w", STAGES["hinted"]) == 40


def test_names_have_a_bound(monkeypatch):
    monkeypatch.setattr("coordinator.estimates.MOST_NAMES", 3)
    known = Estimates()
    for number in range(9):
        known.saw_branch(f"inline{number}", STAGES["hinted"], taken=True)
    assert len(known.take_added()) == 3
    known.saw_branch("new", STAGES["hinted"], taken=True)  # what is known may be forgotten for it
    assert list(known.take_added()) == ["when/new/hinted/"]
