"""One setting of the evaluation, and what is measured in it. Every policy sees the same workflows at the same times.

A setting draws its workflows once, at one per second; another rate is the same workflows at other times.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from common.model import InstanceProfile
from common.policy.registry import POLICIES, RATIOS
from common.policy.rules import Rules
from common.profiles import A100
from coordinator.simulator.capacity import highest
from coordinator.simulator.cluster import load_cluster
from coordinator.simulator.comparison import BEST, ORACLE, REALLY
from coordinator.simulator.expectation import Expectation, alone_s
from coordinator.simulator.simulation import Outcome, simulate
from coordinator.simulator.source import load_trace
from coordinator.simulator.trace import Trace
from coordinator.simulator.workload import Workload, draw

LOADS = (0.6, 0.85, 1.0)
"""Shares of the rate at which `hexgen:best` has a P95 of 5 U."""
SLO = 3.0
"""The deadline, in U."""
KEPT = 0.95
WIDTH = 0.01
GUESS = 0.015
"""Where a search for a rate begins, in workflows/s for each instance."""
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

    def outcomes(self, rules: Rules, rate: float, *, oracle: bool = False) -> list[Outcome]:
        """A run for each seed."""
        return [
            simulate(self.workload(seed, rate, oracle), self.profiles, rules, believed=self.believed)
            for seed in range(self.seeds)
        ]

    def runs(self, policy: str, rate: float) -> list[Outcome]:
        """A run for each seed. The best `hexgen` is that of the least mean P95."""
        tried = [self.outcomes(rules, rate, oracle=policy == ORACLE) for rules in rules_of(policy)]
        return min(tried, key=lambda outcomes: float(p95(outcomes).mean()))

    def p95_u(self, policy: str, rate: float) -> Floats:
        """P95 of each seed, in U."""
        return p95(self.runs(policy, rate)) / self.unit_s

    @cached_property
    def rate_5u(self) -> float:
        """The rate at which the best `hexgen` has a P95 of 5 U: load 1."""
        return self.rate_at_p95(BEST, 5.0)

    @cached_property
    def best_p95_u(self) -> list[Floats]:
        """P95 of the best `hexgen` at each load, of each seed, in U."""
        return [self.p95_u(BEST, load * self.rate_5u) for load in LOADS]

    def at_loads(self, rules: Rules) -> list[list[Outcome]]:
        """A run for each load and seed."""
        return [self.outcomes(rules, load * self.rate_5u) for load in LOADS]

    def ratios(self, at_loads: Sequence[Sequence[Outcome]]) -> list[list[float]]:
        """P95 of the best `hexgen` over that of other runs, by load and seed."""
        pairs = zip(self.best_p95_u, at_loads, strict=True)
        return [(best / (p95(outcomes) / self.unit_s)).tolist() for best, outcomes in pairs]

    def rate_at_p95(self, policy: str, units: float) -> float:
        """The highest rate at which the mean P95 is within so many U."""
        return self._highest(policy, lambda outcomes: float(p95(outcomes).mean()) <= units * self.unit_s)

    def rate_kept(self, policy: str) -> float:
        """The highest rate at which 95 % of the workflows meet their deadline."""
        return self._highest(policy, lambda outcomes: float(np.mean([one.attainment for one in outcomes])) >= KEPT)

    def _highest(self, policy: str, good: Callable[[Sequence[Outcome]], bool]) -> float:
        """The highest rate that is good; of the best `hexgen`, each r is only asked to beat those before it."""
        guess, best = GUESS * len(self.profiles), 0.0
        for rules in rules_of(policy):

            def is_good(rate: float, rules: Rules = rules) -> bool:
                return good(self.outcomes(rules, rate, oracle=policy == ORACLE))

            best = highest(is_good, guess, best, WIDTH)
        return best


def rules_of(policy: str) -> list[Rules]:
    """The policy; of the best `hexgen` all those of which it is the best."""
    rules = POLICIES[REALLY.get(policy, policy)]
    return [rules._replace(r=r) for r in RATIOS] if policy == BEST else [rules]


def p95(outcomes: Sequence[Outcome]) -> Floats:
    """P95 of each run, in s."""
    return np.array([outcome.percentile_s(95) for outcome in outcomes])


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
