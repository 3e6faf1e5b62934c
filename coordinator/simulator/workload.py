"""Workflows that arrive: drawn from a trace, or replayed as recorded. Reproducible by its seed."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from common.errors import InvalidDocument
from coordinator.simulator.expectation import Expectation
from coordinator.simulator.layout import join, piece
from coordinator.simulator.records import WORKFLOW, Rows
from coordinator.simulator.trace import Trace

DRAWN = ("poisson", "gamma", "step")
ARRIVALS = (*DRAWN, "file")
"""`file`: workflows as they were recorded, one after the other, not drawn."""
GAMMA_CV = 3.0
STEP = 3.0
"""The rate after a step, over that before it; the mean is the rate asked for."""


@dataclass(frozen=True, slots=True)
class Workload:
    """children: positions of calls, of which each call has a slice; roots: those that start with their workflow.

    dice: two numbers in [0, 1) for each call, for policies that leave something to chance. tenants: names, by number;
    stages: the name of each call's.
    """

    calls: Rows
    workflows: Rows
    blocks: Rows
    children: NDArray[np.int64]
    roots: NDArray[np.int64]
    dice: NDArray[np.float64]
    tenants: tuple[str, ...]
    stages: tuple[str, ...]


def arrival_times(kind: str, count: int, rate: float, rng: np.random.Generator) -> NDArray[np.float64]:
    """When workflows arrive, in s: poisson, gamma (bursts, coefficient of variation 3) or step (half way, three times
    the rate of before). Raises InvalidDocument.
    """
    _check(count, rate)
    if kind not in DRAWN:
        raise InvalidDocument("arrivals", f"{kind!r} is not one of {', '.join(ARRIVALS)}")
    if kind == "gamma":
        gaps = rng.gamma(GAMMA_CV**-2, GAMMA_CV**2 / rate, count)
    else:
        gaps = rng.exponential(1.0 / rate, count)
    if kind == "step":
        slow = (1.0 + 1.0 / STEP) / 2.0
        gaps[: count // 2] /= slow
        gaps[count // 2 :] /= slow * STEP
        gaps *= gaps.size / rate / gaps.sum() if gaps.sum() else 1.0
    times: NDArray[np.float64] = np.cumsum(gaps)
    return times


def with_arrivals(trace: Trace, kind: str, rate: float, seed: int) -> Trace:
    """The same workflows as if recorded when they arrived so. Raises InvalidDocument."""
    times = arrival_times(kind, len(trace), rate, np.random.default_rng(seed))
    return tuple(replace(workflow, arrival_s=float(at)) for workflow, at in zip(trace, times, strict=True))


def replayed(trace: Trace, count: int, rate: float, start: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Workflows of a recording from `start` on, round and round, and when each arrives: as recorded, but faster or
    slower, so that the recording's mean rate is `rate`. Raises InvalidDocument.
    """
    _check(count, rate)
    recorded = [workflow.arrival_s for workflow in trace if workflow.arrival_s is not None]
    if len(recorded) < len(trace):
        raise InvalidDocument("arrivals", "the trace has no arrival_s: record it, or take poisson, gamma or step")
    span = recorded[-1] - recorded[0]
    if span <= 0.0:
        raise InvalidDocument("arrivals", "the trace must have workflows that arrive at different times")
    # After the last comes the first, a mean gap later.
    places = start + np.arange(count)
    turns, chosen = np.divmod(places, len(trace))
    gap = span / (len(trace) - 1)
    times = np.array(recorded)[chosen] + turns * (span + gap)
    return chosen, (times - times[0]) / (rate * gap)


def _check(count: int, rate: float) -> None:
    if not 0.0 < rate < np.inf:
        raise InvalidDocument("rate", f"must be workflows per second above 0, not {rate}")
    if count < 1:
        raise InvalidDocument("workflows", f"must be at least 1, not {count}")


def draw(
    trace: Trace, expectation: Expectation, *, count: int, rate: float, seed: int, slo_s: float,
    arrivals: str = "poisson", oracle: bool = False,
) -> Workload:  # fmt: skip
    """`count` workflows drawn from a trace; arrivals "file" replays it instead, from its beginning for seed 0 and from
    a place drawn for others. An oracle's policies know true lengths. Raises InvalidDocument.
    """
    if not 0.0 < slo_s < np.inf:
        raise InvalidDocument("slo", f"must be seconds above 0, not {slo_s}")
    rng = np.random.default_rng(seed)
    chosen = rng.integers(0, len(trace), count)
    if arrivals == "file":
        chosen, times = replayed(trace, count, rate, int(chosen[0]) if seed else 0)
    else:
        times = arrival_times(arrivals, count, rate, rng)
    drawn = [trace[which] for which in chosen]
    tenants = sorted({workflow.tenant for workflow in trace})
    workflows = np.zeros(count, WORKFLOW)
    workflows["arrival"] = times
    workflows["slo_s"] = [slo_s * workflow.slo_scale for workflow in drawn]
    workflows["deadline"] = workflows["arrival"] + workflows["slo_s"]
    workflows["weight"] = [workflow.weight for workflow in drawn]
    workflows["left"] = [len(workflow.calls) for workflow in drawn]
    workflows["tenant"] = [tenants.index(workflow.tenant) for workflow in drawn]
    told = expectation.truth if oracle else expectation.of
    pieces = {which: piece(trace[which].calls, told(trace[which].calls)) for which in set(chosen.tolist())}
    calls, blocks, children, roots = join([pieces[which] for which in chosen.tolist()])
    dice = rng.random((len(calls), 2))
    stages = tuple(call.stage for workflow in drawn for call in workflow.calls)
    return Workload(calls, workflows, blocks, children, roots, dice, tuple(tenants), stages)
