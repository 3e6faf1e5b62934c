"""Recorded workflows as a trace, and their replay on the cluster as it is now. Pure; the simulator does the work.

What a record cannot tell is filled in: of what prompts share only the beginning that all of a stage have in common is
known, from the tokens that engines found in their caches; and every instance is taken to serve every request that
fits it.
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import fmean, median, pstdev
from typing import NamedTuple

from common.model import InstanceProfile
from common.policy import registry
from common.profiles import PROFILES
from common.recorded import Recorded, RecordedCall
from coordinator.simulator.compiled import compiled_run
from coordinator.simulator.expectation import Expectation
from coordinator.simulator.simulation import simulate
from coordinator.simulator.trace import Trace, TracedCall, TracedWorkflow
from coordinator.simulator.workload import Workload, draw

LATEST, FEWEST = 50, 20
"""So many arrivals at least make a rate: what came in the last RATE_S, within these bounds."""
RATE_S, LONGEST_S = 60.0, 3600.0
ALIKE = 2.0
"""Rates that differ by no more standard errors are taken to be one."""
BURSTY_CV = 1.7
WORKLOADS_AT_HAND = 12


def fitting(records: Sequence[Recorded], profiles: Sequence[InstanceProfile]) -> list[Recorded]:
    """Those whose every call fits some instance: others cannot be replayed."""
    room = max((profile.kv_tokens for profile in profiles), default=0)
    return [one for one in records if all(call.prompt_tokens + call.output_tokens <= room for call in one.calls)]


def trace_of(records: Sequence[Recorded]) -> Trace:
    """The workflows in the order of their arrival, counted in s from the first of them.

    SLOs are told as parts of the median SLO (`usual_slo_s`).
    """
    ordered = sorted(records, key=lambda one: one.arrival_at)
    shared, slo_s = _shared(ordered), usual_slo_s(ordered)
    return tuple(
        TracedWorkflow(
            calls=tuple(_traced(one.name, call, shared) for call in one.calls),
            tenant=one.tenant,
            slo_scale=min(max(round(one.slo_s / slo_s, 6), 1e-6), 1e6),
            arrival_s=(one.arrival_at - ordered[0].arrival_at) / 1000,
        )
        for one in ordered
    )


def usual_slo_s(records: Sequence[Recorded]) -> float:
    """The median SLO, in s; at least 1 ms."""
    return max(median(one.slo_s for one in records), 0.001) if records else 1.0


class Rate(NamedTuple):
    """Workflows per second, and the standard error of that as a share of it."""

    per_s: float
    error: float = 0.0


def arrival_rate(times: Sequence[int], now: int) -> Rate:
    """How many arrive now. Times in ms, oldest first.

    Counted over as long as the rate is what it was of late: so chance does not look like load, and a step is seen soon.
    """
    known = [at for at in times if now - at <= 1000 * LONGEST_S]
    wanted = min(max(sum(now - at <= 1000 * RATE_S for at in known), FEWEST), LATEST)
    if len(known) < wanted:
        return Rate(len(known) / LONGEST_S, 1.0 / math.sqrt(wanted))
    found = late = _rate(known, now, wanted)
    while (wanted := 2 * wanted) <= len(known):
        longer = _rate(known, now, wanted)
        if abs(longer.per_s - late.per_s) > ALIKE * late.error * longer.per_s:
            break
        found = longer
    return found


def _rate(times: Sequence[int], now: int, count: int) -> Rate:
    return Rate(count / max((now - times[-count]) / 1000, 0.001), 1.0 / math.sqrt(count))


def burstiness(times: Sequence[int]) -> str:
    """How arrivals are to be drawn: "gamma" where they come in bursts, else "poisson"."""
    gaps = [after - before for before, after in pairwise(times)]
    if len(gaps) < LATEST // 2 or not (mean := fmean(gaps)):
        return "poisson"
    return "gamma" if pstdev(gaps) / mean > BURSTY_CV else "poisson"


class Replay:
    """A policy on workflows drawn from the records, the newest last, with any values.

    Of three seeds in a row one replays a rate that is lower by its error, one a rate that is higher by it: what helps
    at the very rate that was counted and does harm beside it is no gain.
    """

    def __init__(
        self, records: Sequence[Recorded], profiles: Sequence[InstanceProfile], policy: str, rate: Rate, arrivals: str
    ) -> None:
        self._trace, self._profiles, self._policy = trace_of(records), list(profiles), policy
        self._expectation = Expectation(self._trace, profiles)
        self._others = registry.used(policy, records[-1].values)  # also what the policy has that nobody tunes
        self._slo_s, self._rate, self._arrivals = usual_slo_s(records), rate, arrivals
        self._drawn: dict[tuple[int, int, float], Workload] = {}

    def p95_s(self, values: Mapping[str, float], workflows: int, seed: int, rate: float = 0.0) -> float:
        """The P95 latency with these values, in s, at a given rate or, with 0, at that of the seed. Raises
        InvalidDocument for values that the policy does not take.
        """
        rules = registry.policy(self._policy, {**self._others, **values})
        asked = rate or self._rate.per_s * (1.0 + self._rate.error * (seed % 3 - 1))
        came = simulate(_fresh(self._workload(workflows, seed, asked)), self._profiles, rules)
        return came.percentile_s(95)

    def _workload(self, workflows: int, seed: int, rate: float) -> Workload:
        """Drawn once for all candidates: drawing takes longer than a run."""
        if (workflows, seed, rate) not in self._drawn:
            while len(self._drawn) >= WORKLOADS_AT_HAND:
                del self._drawn[next(iter(self._drawn))]
            self._drawn[workflows, seed, rate] = draw(
                self._trace, self._expectation, count=workflows, rate=rate, seed=seed, slo_s=self._slo_s,
                arrivals=self._arrivals,
            )  # fmt: skip
        return self._drawn[workflows, seed, rate]


def warm() -> bool:
    """Compile, or load what is compiled; False where there is nothing to compile with."""
    if compiled_run() is None:
        return False
    call = RecordedCall("stage", 100, 10, 0, (), 0.0, 0.0)
    record = Recorded("warm", "warm", 0, 1000, 500, registry.DEFAULT, {}, (call,))
    Replay([record], [PROFILES["a100"]], registry.DEFAULT, Rate(1.0), "poisson").p95_s({}, 1, 0)
    return True


def _fresh(workload: Workload) -> Workload:
    """A copy: a run uses its workload up."""
    return replace(workload, calls=workload.calls.copy(), workflows=workload.workflows.copy())


def _traced(workflow: str, call: RecordedCall, shared: Mapping[str, int]) -> TracedCall:
    stage = f"{workflow}/{call.stage}"
    length = shared.get(stage, 0)
    prefix = ((stage, length),) if 0 < length < call.prompt_tokens else ()
    return TracedCall(stage, call.prompt_tokens, call.output_tokens, call.needs, call.tool_s, prefix)


def _shared(records: Sequence[Recorded]) -> dict[str, int]:
    """For each stage, how many tokens its prompts have in common at least, as far as caches have shown: where most
    prompts were found there, the tenth percentile of what was found.
    """
    found: dict[str, list[int]] = defaultdict(list)
    for one in records:
        for call in one.calls:
            found[f"{one.name}/{call.stage}"].append(call.cached_tokens)
    shared = {}
    for stage, counts in found.items():
        hits = sorted(count for count in counts if count)
        if 2 * len(hits) > len(counts):
            shared[stage] = hits[len(hits) // 10]
    return shared
