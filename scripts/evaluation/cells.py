"""One setting of the evaluation, and what is measured in it. Every policy sees the same workflows at the same times.

A setting draws its workflows once, at one per second; another rate is the same workflows at other times.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from common.model import InstanceProfile
from common.policy.registry import POLICIES
from common.policy.rules import Rules
from common.profiles import A100
from coordinator.simulator.cluster import load_cluster
from coordinator.simulator.expectation import Expectation, alone_s
from coordinator.simulator.simulation import Outcome, simulate
from coordinator.simulator.source import load_trace
from coordinator.simulator.trace import Trace
from coordinator.simulator.workload import Workload, draw

BEST = "hexgen:best"
TRIED = [float(r) for r in np.logspace(0, 3, 16)]
"""Values of r, in s^2, of which `hexgen:best` is the best in hindsight."""
LOADS = (0.6, 0.85, 1.0)
"""Shares of the rate at which `hexgen:best` has a P95 of 5 U."""
SLO = 3.0
"""The deadline, in U."""
KEPT = 0.95
WIDTH = 0.01
USUAL_R = 60.0
"""Where the search for the best r begins, in s^2."""
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Cell:
    """A trace, a cluster, how workflows arrive. kv: share of the KV room; error: the profiles policies believe are off
    by up to so much; U: the mean latency of a workflow alone on unlimited A100s.
    """

    trace: str
    cluster: str
    prefixes: bool = False
    arrivals: str = "poisson"
    workflows: int = 500
    seeds: int = 5
    kv: float = 1.0
    error: float = 0.0

    @cached_property
    def profiles(self) -> list[InstanceProfile]:
        """What is there."""
        return [replace(one, kv_tokens=int(self.kv * one.kv_tokens)) for one in load_cluster(self.cluster)]

    @cached_property
    def believed(self) -> list[InstanceProfile]:
        """What the policies take it for."""
        rng = np.random.default_rng(1)
        return [
            _off(one, 1.0 + self.error * rng.uniform(-1, 1), 1.0 + self.error * rng.uniform(-1, 1))
            for one in self.profiles
        ]

    @cached_property
    def traced(self) -> Trace:
        """The workflows to draw from."""
        return shared_out(load_trace(self.trace, prefixes=self.prefixes))

    @cached_property
    def unit_s(self) -> float:
        """U."""
        return alone_s(self.traced, A100)

    @cached_property
    def drawn(self) -> dict[tuple[int, bool], Workload]:
        """What was drawn, by seed, and whether its policies know true lengths."""
        return {}

    def workload(self, seed: int, rate: float, oracle: bool = False) -> Workload:
        """The workflows of a seed at a rate."""
        if (seed, oracle) not in self.drawn:
            expectation = Expectation(self.traced, self.believed)
            self.drawn[seed, oracle] = draw(
                self.traced, expectation, count=self.workflows, rate=1.0, seed=seed, slo_s=SLO * self.unit_s,
                arrivals=self.arrivals, oracle=oracle,
            )  # fmt: skip
        found = self.drawn[seed, oracle]
        workflows = found.workflows.copy()
        workflows["arrival"] /= rate
        workflows["deadline"] = workflows["arrival"] + workflows["slo_s"]
        return replace(found, calls=found.calls.copy(), workflows=workflows)

    def run(self, rules: Rules, rate: float, seed: int, oracle: bool = False) -> Outcome:
        """One run."""
        return simulate(self.workload(seed, rate, oracle), self.profiles, rules, believed=self.believed)

    def runs(self, policy: str, rate: float) -> list[Outcome]:
        """A run for each seed. The best `hexgen` is that of the least mean P95."""
        if policy == BEST:
            tried = [
                [self.run(POLICIES["hexgen"]._replace(r=r), rate, seed) for seed in range(self.seeds)] for r in TRIED
            ]
            return min(tried, key=lambda outcomes: float(p95(outcomes).mean()))
        oracle = policy == "oracle"
        rules = POLICIES["flow" if oracle else policy]
        return [self.run(rules, rate, seed, oracle) for seed in range(self.seeds)]

    def p95_u(self, policy: str, rate: float) -> Floats:
        """P95 of each seed, in U."""
        return p95(self.runs(policy, rate)) / self.unit_s

    @cached_property
    def rate_5u(self) -> float:
        """The rate at which the best `hexgen` has a P95 of 5 U: load 1."""
        return self.rate_at_p95(BEST, 5.0)

    def best_p95_u(self, load: float) -> Floats:
        """P95 of the best `hexgen` at a load, of each seed, in U."""
        if load not in self._best:
            self._best[load] = self.p95_u(BEST, load * self.rate_5u)
        return self._best[load]

    @cached_property
    def _best(self) -> dict[float, Floats]:
        return {}

    def ratios(self, rules: Rules) -> list[list[float]]:
        """P95 of the best `hexgen` over that of other rules, by load and seed."""
        found = []
        for load in LOADS:
            outcomes = [self.run(rules, load * self.rate_5u, seed) for seed in range(self.seeds)]
            found.append((self.best_p95_u(load) / (p95(outcomes) / self.unit_s)).tolist())
        return found

    def first_guess(self) -> float:
        """A rate in the middle of what clusters hold: so many workflows as their prefill and decode have time for."""
        return 0.06 * len(self.profiles) / 4

    def rate_at_p95(self, policy: str, units: float) -> float:
        """The highest rate at which the mean P95 is within so many U."""
        return self._highest(policy, lambda outcomes: float(p95(outcomes).mean()) <= units * self.unit_s)

    def rate_kept(self, policy: str) -> float:
        """The highest rate at which 95 % of the workflows meet their deadline."""
        return self._highest(policy, lambda outcomes: float(np.mean([one.attainment for one in outcomes])) >= KEPT)

    def _highest(self, policy: str, good: Callable[[Sequence[Outcome]], bool]) -> float:
        """The highest rate that is good; for the best `hexgen` that of the best r, others are only asked to beat it."""
        oracle = policy == "oracle"
        if policy == BEST:
            tried = [POLICIES["hexgen"]._replace(r=r) for r in sorted(TRIED, key=lambda r: abs(np.log(r / USUAL_R)))]
        else:
            tried = [POLICIES["flow" if oracle else policy]]
        best = 0.0
        for rules in tried:

            def keeps(rate: float, rules: Rules = rules) -> bool:
                return good([self.run(rules, rate, seed, oracle) for seed in range(self.seeds)])

            if not best or keeps(best * (1.0 + WIDTH)):
                best = highest(keeps, best * (1.0 + WIDTH) or self.first_guess())
        return best


def p95(outcomes: Sequence[Outcome]) -> Floats:
    """P95 of each run, in s."""
    return np.array([outcome.percentile_s(95) for outcome in outcomes])


def highest(keeps: Callable[[float], bool], guess: float) -> float:
    """The highest rate that is kept, within 1 %, if those below it are."""
    low, high = guess, guess
    while not keeps(low):
        low /= 1.5
    if low == guess:
        high = guess * 1.5
        while keeps(high):
            low, high = high, high * 1.5
    else:
        high = low * 1.5
    while high / low > 1.0 + WIDTH:
        middle = (low * high) ** 0.5
        low, high = (middle, high) if keeps(middle) else (low, middle)
    return low


def shared_out(trace: Trace, tenants: int = 4) -> Trace:
    """A trace without tenants, shared out among some: so that policies which look at tenants have any."""
    if len({workflow.tenant for workflow in trace}) > 1:
        return trace
    return tuple(replace(one, tenant=f"tenant-{at % tenants}") for at, one in enumerate(trace))


def _off(profile: InstanceProfile, prefill: float, decode: float) -> InstanceProfile:
    return replace(
        profile,
        prefill_tokens_per_s=profile.prefill_tokens_per_s * prefill,
        weights_s=profile.weights_s * decode,
        overhead_s=profile.overhead_s * decode,
    )
