"""How fast an engine is found to be: its iterations, timed, bend the profile it was registered with. Pure; no clock.

The formula is that of `common.enginemodel`; what is learned are the prefill rate, the step (weights and overhead, which
keep their proportion) and kappa. Least squares on relative errors, where outliers count less (Huber) and old iterations
too, and the profile counts as a few. Iterations that prefill and those that do not are remembered apart: hours of one
kind must not outvote what was learned of the other.
"""

import math
from collections import deque
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from common.enginebatch import ATTENTION_TOKENS
from common.enginemodel import DECODE_WORK, TOKEN_TIME_S, token_time
from common.model import InstanceProfile

REMEMBERED = 256
"""Iterations of each kind."""
DECAY = 0.99
"""An iteration counts so much of the next one of its kind."""
PRIOR_COUNTS = 0.3
"""So much of an iteration that takes nothing but this time each of the profile's figures counts: they may be wrong by
a third, while iterations are timed to some hundredths."""
SANE = 4.0
"""Speeds are believed up to so many times the profile's, either way."""
HUBER = 1.345
"""Errors beyond so many standard deviations count linearly."""
LEAST_SPREAD = 0.005
ROUNDS = 6
FIT_EVERY = 32
"""Fewer say nothing yet: what stalls and what does not cannot be told apart."""
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Iteration:
    """One iteration of an engine: prompt tokens computed, sequences decoded, KV tokens held before it, its seconds.

    context_tokens: mean of those before the middle of the chunks. `count` iterations like this one are told as one.
    """

    prompt_tokens: float
    decoding: int
    kv_tokens: float
    seconds: float
    context_tokens: float = 0.0
    count: int = 1

    @property
    def work(self) -> float:
        """In prefilled tokens, see `common.enginemodel`."""
        return self.prompt_tokens * (1 + self.context_tokens / ATTENTION_TOKENS) + DECODE_WORK * self.decoding


class Speeds(NamedTuple):
    """Prefill in tokens/s, a step in s, kappa in s per KV token."""

    prefill_tokens_per_s: float
    step_s: float
    kv_s_per_token: float


class EngineFit:
    """Learns the speeds of one engine. They change at every so many iterations; `iterations` counts those heard of."""

    def __init__(self, profile: InstanceProfile) -> None:
        self.iterations = 0
        self._fresh = 0
        step_s = profile.weights_s + profile.overhead_s
        self._weights_share = profile.weights_s / step_s
        kappa = profile.kv_s_per_token
        # Factors of these units are learned, so that all are about 1.
        self._units = np.array([1 / profile.prefill_tokens_per_s, step_s, kappa or step_s / profile.kv_tokens])
        self._prior = np.array([1.0, 1.0, 1.0 if kappa else 0.0])
        self._found = self._prior
        self._kinds: tuple[deque[Iteration], ...] = (deque(maxlen=REMEMBERED), deque(maxlen=REMEMBERED))

    @property
    def speeds(self) -> Speeds:
        """As found so far; the profile's at the beginning."""
        per_token, step_s, kappa = (float(value) for value in self._found * self._units)
        return Speeds(1 / per_token, step_s, kappa)

    def observe(self, iteration: Iteration) -> None:
        """An iteration ended. What took no time, or is no number, says nothing."""
        if not 0 < iteration.seconds < math.inf or not iteration.work > 0:
            return
        self._kinds[iteration.prompt_tokens > 0].append(iteration)
        self.iterations += iteration.count
        self._fresh += 1
        if self._fresh == FIT_EVERY:
            self._fresh = 0
            self._found = self._fit()

    def _fit(self) -> Floats:
        work, kv, seconds, age = self._remembered()
        found = self._found
        for _ in range(ROUNDS):
            rows = self._rows(work, kv, found)
            predicted = np.maximum(rows @ found, 1e-12)
            rows, errors = rows / predicted[:, None], (seconds - predicted) / predicted
            spread = max(float(np.median(np.abs(errors))) * 1.4826, LEAST_SPREAD)
            weights = age * np.minimum(1.0, HUBER * spread / np.maximum(np.abs(errors), 1e-12))
            weighted = rows.T * weights
            left = weighted @ rows + PRIOR_COUNTS * np.eye(3)
            right = weighted @ (seconds / predicted) + PRIOR_COUNTS * self._prior
            found = self._sane(np.linalg.solve(left, right))
        return found

    def _remembered(self) -> tuple[Floats, Floats, Floats, Floats]:
        """Work, KV, seconds and the weight of age of each iteration."""
        heard: list[tuple[float, ...]] = []
        for kind in self._kinds:
            last = len(kind) - 1
            heard += ((i.work, i.kv_tokens, i.seconds, DECAY ** (last - at)) for at, i in enumerate(kind))
        columns: Any = np.array(heard).T
        return tuple(columns)

    def _rows(self, work: Floats, kv: Floats, found: Floats) -> Floats:
        """Seconds that a factor of 1 of each unit gives an iteration: the longer of computing and reading, and half
        of the other."""
        per_token, step_s, kappa = self._units
        reading = self._weights_share * step_s
        computing = work * per_token
        computes = computing * found[0] >= reading * found[1]
        step = step_s - reading + np.where(computes, 0.5, 1.0) * reading
        return np.column_stack((np.where(computes, 1.0, 0.5) * computing, step, kv * kappa))

    def _sane(self, found: Floats) -> Floats:
        most = np.full(3, SANE)
        least = np.array([1 / SANE, 1 / SANE, 0.0])
        return np.clip(found, least, most)


class TokenTime:
    """The moving average of the time between two tokens, see `common.enginemodel.token_time`.

    `pace`: how many times faster than real time the engine lives.
    """

    def __init__(self, pace: float = 1.0) -> None:
        self.seconds = 0.0
        self._remembered_s = TOKEN_TIME_S / pace

    def observe(self, iteration: Iteration) -> None:
        if iteration.decoding == 0:
            return
        elapsed_s = iteration.seconds * iteration.count
        self.seconds = token_time(self.seconds, iteration.seconds, elapsed_s, self._remembered_s)
