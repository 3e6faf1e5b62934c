"""The search: which parameters of a policy would have served recent workflows best. Pure: the replay is given.

Candidates run on a short slice, the better half of them on one twice as long, and so on. The last one left and what is
in force then meet on workflows that had no part in the choice, and only a gain that shows there counts.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, islice
from statistics import fmean, stdev
from typing import Protocol

from common.policy.registry import RATIOS, alpha_of
from common.policy.rules import Weights

Values = dict[str, float]


class Evaluate(Protocol):
    """A replay."""

    def __call__(self, values: Mapping[str, float], workflows: int, seed: int, rate: float = 0.0) -> float:
        """P95 in s. The same seed, the same workflows, whatever the values. rate in workflows/s; 0: as it is now."""


FACTORS = (0.7, 1.4)
MOST_FACTOR = 4.0
TUNABLE: dict[str, tuple[str, ...]] = {
    "hexgen": ("alpha",),
    "hexgen-no-pq": ("alpha",),
    "flow": ("path", "harm", "urgency", "wait"),
}
"""Policies that have something to tune, and what."""
DEFAULTS: Values = {"alpha": 0.5, **Weights()._asdict()}
FIRST, HALVING_SEEDS = 40, 3
DUEL, DUEL_SEEDS = 320, 6
"""Workflows and seeds of the first slice, and of the last meeting. Seeds come in threes, as rates do in a replay."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What the search came to. p95_s: of the values, now_p95_s: of those in force, on the same workflows.

    gain: share by which the P95 is lower; surely: that less its standard error. tried: candidates that ran.
    """

    values: Values
    p95_s: float
    now_p95_s: float
    gain: float
    surely: float
    tried: int


def in_force(policy: str, values: Mapping[str, float]) -> Values:
    """A value for everything the policy has to tune: those given, else the defaults."""
    return {name: values.get(name, DEFAULTS[name]) for name in TUNABLE.get(policy, ())}


def candidates(policy: str, current: Mapping[str, float]) -> list[Values]:
    """What to try; the first is to change nothing. None for a policy without anything to tune."""
    names = TUNABLE.get(policy, ())
    if not names:
        return []
    now = in_force(policy, current)
    found = [now, in_force(policy, {})]
    if "alpha" in names:
        found += [{"alpha": alpha_of(ratio)} for ratio in RATIOS]
    else:
        found += [now | {name: _bounded(name, now[name] * factor)} for name in names for factor in FACTORS]
    return _distinct(found)


def choose(options: Sequence[Values], evaluate: Evaluate, seed: int) -> Choice:
    """The best of the options against the first of them, which is in force. Seeds are used once, from `seed` on: the
    same seed, the same choice.
    """
    now, unused = options[0], count(seed)
    best = halved(options[1:], evaluate, unused) if len(options) > 1 else now
    seeds = list(islice(unused, DUEL_SEEDS))
    before = [evaluate(now, DUEL, one) for one in seeds]
    after = [evaluate(best, DUEL, one) for one in seeds]
    gains = [1.0 - there / here for there, here in zip(after, before, strict=True)]
    surely = fmean(gains) - stdev(gains) / math.sqrt(len(gains))
    return Choice(best, fmean(after), fmean(before), fmean(gains), surely, len(options))


def halved(options: Sequence[Values], evaluate: Evaluate, unused: Iterator[int]) -> Values:
    """The one left of them by successive halving, on unused seeds."""
    left, workflows = list(options), FIRST
    while len(left) > 1:
        seeds = list(islice(unused, HALVING_SEEDS))
        scores = [math.prod(evaluate(values, workflows, one) for one in seeds) for values in left]
        order = sorted(range(len(left)), key=scores.__getitem__)
        left = [left[at] for at in order[: (len(left) + 1) // 2]]
        workflows = min(2 * workflows, DUEL)
    return left[0]


def _bounded(name: str, value: float) -> float:
    """Within a few times the default: far outside nothing was ever measured."""
    return min(max(value, DEFAULTS[name] / MOST_FACTOR), DEFAULTS[name] * MOST_FACTOR)


def _distinct(options: Iterable[Values]) -> list[Values]:
    found: list[Values] = []
    for values in options:
        if not any(all(math.isclose(values[name], known[name], rel_tol=1e-3) for name in known) for known in found):
            found.append(values)
    return found
