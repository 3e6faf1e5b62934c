"""The tuner's judgement: from what is live and what a replay predicts to a decision. Pure; holds no state of its own.

A change is on trial until enough workflows have arrived under it. If then the live P95 is worse, and worse than the
replay said, it is taken back and the tuner holds still for some rounds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from statistics import fmean
from typing import NamedTuple

import numpy as np

from common.model import Json
from common.recorded import Recorded
from coordinator.tuning import Evaluate, Values, candidates, choose, in_force

ENOUGH = 30
LIVE = 100
"""So many of the newest workflows make the live P95, if there are enough."""
MOVED = 0.5
PREDICTED, PREDICTED_SEEDS = 240, (1, 2)


@dataclass(frozen=True, slots=True)
class Limits:
    """minimum_gain: share by which the P95 must be lower to change anything; margin: by which it may be higher after a
    change; hold: rounds without change after a change was taken back.
    """

    minimum_gain: float = 0.03
    margin: float = 0.1
    hold: int = 5


@dataclass(frozen=True, slots=True)
class Trial:
    """What was before a change: the values, the live P95 and what a replay says of the same load; and the rate of
    arrivals (workflows/s) at the change.
    """

    values: Values
    live_p95_s: float
    predicted_p95_s: float
    rate: float


class Live(NamedTuple):
    """The P95 latency of workflows that were served, in s, and the rate (workflows/s) at which these arrived."""

    p95_s: float
    rate: float


@dataclass(frozen=True, slots=True)
class Memory:
    """What the tuner knows from earlier rounds: the change on trial, and how many rounds it still holds still."""

    trial: Trial | None = None
    hold: int = 0


@dataclass(frozen=True, slots=True)
class Situation:
    """What is live: the policy, its values, workflows per second, and the records since the last change, oldest first.

    recorded: all records there are to replay.
    """

    policy: str
    values: Values
    rate: float
    recorded: int
    recent: Sequence[Recorded]


@dataclass(frozen=True, slots=True)
class Decision:
    """What comes of a round. values: those to go on with, None for no change; told: figures for the record."""

    action: str
    reason: str
    memory: Memory
    values: Values | None = None
    told: dict[str, Json] = field(default_factory=dict)


def decide(situation: Situation, memory: Memory, limits: Limits, evaluate: Evaluate, seed: int) -> Decision:
    """One round."""
    options = candidates(situation.policy, situation.values)
    if not options:
        return Decision("kept", f"policy {situation.policy or '?'} has nothing to tune", memory)
    if situation.recorded < ENOUGH or situation.rate <= 0.0:
        reason = f"{situation.recorded} workflows recorded, {ENOUGH} are needed, and some of the last hour"
        return Decision("kept", reason, memory)
    live = measured(situation.recent)
    if memory.trial is not None and not moved(memory.trial.rate, situation.rate):
        if live is None:
            return Decision("kept", "a change is on trial: too few workflows have come since", memory)
        return _judged(situation, memory.trial, limits, evaluate, live)
    if memory.hold > 0:
        return Decision("kept", f"holds still for {memory.hold} more rounds", replace(memory, hold=memory.hold - 1))
    return _searched(situation, options, limits, evaluate, live, seed)


def measured(records: Sequence[Recorded]) -> Live | None:
    """What the newest of these were served like; None where they are too few. Oldest first."""
    if len(records) < ENOUGH:
        return None
    newest = records[-LIVE:]
    span_s = (newest[-1].arrival_at - newest[0].arrival_at) / 1000
    p95_s = float(np.percentile([one.latency_s for one in newest], 95))
    return Live(p95_s, (len(newest) - 1) / max(span_s, 0.001))


def moved(before: float, now: float) -> bool:
    """Whether the load is another one: by MOVED of what it was."""
    return abs(now - before) > MOVED * before


def worse(trial: Trial, live_p95_s: float, predicted_p95_s: float, margin: float) -> bool:
    """Whether a change has done harm: the live P95 is higher than before it, and more so than replays of the loads of
    then and now would have it.
    """
    higher = live_p95_s > (1.0 + margin) * trial.live_p95_s
    unforeseen = live_p95_s / predicted_p95_s > (1.0 + margin) * trial.live_p95_s / trial.predicted_p95_s
    return higher and unforeseen


def predicted_p95_s(evaluate: Evaluate, values: Mapping[str, float], live: Live) -> float:
    """What a replay of the load that was served says the P95 should have been, in s."""
    return fmean(evaluate(values, PREDICTED, seed, live.rate) for seed in PREDICTED_SEEDS)


def _judged(situation: Situation, trial: Trial, limits: Limits, evaluate: Evaluate, live: Live) -> Decision:
    predicted = predicted_p95_s(evaluate, situation.values, live)
    told = {"live_p95_s": live.p95_s, "predicted_p95_s": predicted, "live_before_s": trial.live_p95_s,
            "predicted_before_s": trial.predicted_p95_s}  # fmt: skip
    if not worse(trial, live.p95_s, predicted, limits.margin):
        return Decision("confirmed", "the change has done no harm", Memory(), told=told)
    reason = f"the live P95 went from {trial.live_p95_s:.1f} s to {live.p95_s:.1f} s"
    return Decision("rolled back", reason, Memory(hold=limits.hold), in_force(situation.policy, trial.values), told)


def _searched(
    situation: Situation, options: Sequence[Values], limits: Limits, evaluate: Evaluate, live: Live | None, seed: int
) -> Decision:
    found = choose(options, evaluate, seed)
    told: dict[str, Json] = {"p95_s": found.p95_s, "now_p95_s": found.now_p95_s, "gain": found.gain,
                             "tried": found.tried, "live_p95_s": live and live.p95_s, "best": found.values}  # fmt: skip
    if found.surely < limits.minimum_gain:
        error = found.gain - found.surely
        reason = f"the best gains {found.gain:.1%} +- {error:.1%}; surely {limits.minimum_gain:.0%} is asked for"
        return Decision("kept", reason, Memory(), told=told)
    # Too few to have measured anything: then nothing can be said to have become worse.
    trial = None
    if live is not None:
        predicted = predicted_p95_s(evaluate, situation.values, live)
        trial = Trial(dict(situation.values), live.p95_s, predicted, situation.rate)
    return Decision("changed", f"the replay gains {found.gain:.1%}", Memory(trial), found.values, told)


def pack_memory(memory: Memory) -> Json:
    """As JSON."""
    return asdict(memory)


def read_memory(value: Json) -> Memory:
    """The memory of `pack_memory`; an empty one for anything else."""
    try:
        trial = value["trial"]
        return Memory(None if trial is None else Trial(**trial), int(value["hold"]))
    except (TypeError, KeyError, ValueError):
        return Memory()


def is_due(told: Json, waited_s: float, rate: float, interval_s: float, share: float) -> bool:
    """Whether to have a round so long after the last one, of which that was told: after the interval, or at once where
    the load has moved; but never so soon that rounds of its CPU time cost more than their share of a core.
    """
    try:
        cpu_s, rate_then = float(told["cpu_s"]), float(told["rate"])
    except (TypeError, KeyError, ValueError):
        return waited_s >= interval_s
    return waited_s >= cpu_s / share and (waited_s >= interval_s or moved(rate_then, rate))
