"""The search for parameters, with replays that are known in advance."""

import math
from collections import Counter
from collections.abc import Mapping

import pytest

from common.policy import registry
from coordinator.tuning import DEFAULTS, DUEL, FIRST, TUNABLE, candidates, choose, in_force


class Known:
    """A replay whose P95 is 100 s at `best` and grows from there; the noise of a seed is the same for all values."""

    def __init__(self, name: str, best: float, noise: float = 0.0) -> None:
        self.name, self.best, self.noise = name, best, noise
        self.asked: list[tuple[float, int, int]] = []

    def __call__(self, values: Mapping[str, float], workflows: int, seed: int, rate: float = 0.0) -> float:
        value = values[self.name]
        self.asked.append((value, workflows, seed))
        return 100.0 * (1.0 + abs(math.log(value / self.best))) * (1.0 + self.noise * (seed % 7))


def test_change_nothing_is_always_first_among_the_candidates() -> None:
    for policy in TUNABLE:
        current = {name: 0.9 * DEFAULTS[name] for name in TUNABLE[policy]}
        found = candidates(policy, current)
        assert found[0] == current
        assert in_force(policy, {}) in found
        assert len({tuple(sorted(values.items())) for values in found}) == len(found) >= 10
        for values in found:
            registry.policy(policy, values)  # each is one that coordinators take


def test_alpha_is_tried_over_the_whole_range_of_r() -> None:
    ratios = [registry.score_ratio(values["alpha"]) for values in candidates("hexgen", {"alpha": 0.5})]
    assert (min(ratios), max(ratios)) == (pytest.approx(1.0), pytest.approx(1000.0))
    assert len(ratios) == 16


def test_values_do_not_run_away() -> None:
    values = in_force("flow", {})
    for _ in range(20):
        values = max(candidates("flow", values), key=lambda one: one["harm"])
    assert values["harm"] == 4 * DEFAULTS["harm"]


def test_a_policy_without_parameters_has_no_candidates() -> None:
    assert candidates("vllm", {}) == []


@pytest.mark.parametrize("best", [0.95, 0.5, 0.15])
def test_the_best_is_found_and_its_gain_measured(best: float) -> None:
    options = candidates("hexgen", {"alpha": 0.7})
    replay = Known("alpha", best, noise=0.05)
    found = choose(options, replay, seed=3)
    nearest = min(options[1:], key=lambda values: abs(math.log(values["alpha"] / best)))
    assert found.values == nearest
    gain = 1 - (1 + abs(math.log(nearest["alpha"] / best))) / (1 + abs(math.log(0.7 / best)))
    assert (found.gain, found.surely) == (pytest.approx(gain), pytest.approx(gain))
    assert found.p95_s == pytest.approx(found.now_p95_s * (1 - gain))


def test_half_of_the_candidates_go_on_to_twice_as_many_workflows() -> None:
    replay = Known("alpha", 0.5)
    choose(candidates("hexgen", {"alpha": 0.7}), replay, seed=0)
    ran = Counter(workflows for _, workflows, _ in replay.asked)
    assert [ran[count] // 3 for count in (FIRST, 2 * FIRST, 4 * FIRST)] == [16, 8, 4]
    assert max(ran) == DUEL


def test_what_meets_last_had_no_part_in_the_choice() -> None:
    replay = Known("alpha", 0.5)
    choose(candidates("hexgen", {"alpha": 0.7}), replay, seed=0)
    last = {seed for _, _, seed in replay.asked[-12:]}
    assert len(last) == 6
    assert last.isdisjoint(seed for _, _, seed in replay.asked[:-12])


def test_the_same_seed_makes_the_same_choice() -> None:
    first, again, other = Known("harm", 3.0, 0.1), Known("harm", 3.0, 0.1), Known("harm", 3.0, 0.1)
    options = candidates("flow", {})
    assert choose(options, first, 5) == choose(options, again, 5)
    choose(options, other, 6)
    assert first.asked == again.asked != other.asked


def test_a_gain_that_seeds_do_not_agree_on_is_not_sure() -> None:
    def replay(values: Mapping[str, float], workflows: int, seed: int, rate: float = 0.0) -> float:
        luck = 0.6 if seed % 2 else 1.2  # for any value but the one in force
        return 100.0 if values == {"alpha": 0.7} else 100.0 * luck

    found = choose(candidates("hexgen", {"alpha": 0.7}), replay, seed=0)
    assert found.gain == pytest.approx(0.1)
    assert found.surely < 0.0
