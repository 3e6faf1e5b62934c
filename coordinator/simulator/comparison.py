"""Policies against each other on the same workflows: runs of one setting, on all cores."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context

from common.errors import InvalidDocument
from common.model import InstanceProfile, Json
from coordinator.simulator import loop
from coordinator.simulator.expectation import Expectation
from coordinator.simulator.simulation import POLICIES, simulate
from coordinator.simulator.trace import Trace
from coordinator.simulator.workload import draw


@dataclass(frozen=True, slots=True)
class Run:
    """One run to be made. rate in workflows/s; slo_s: the deadline after arrival."""

    policy: str
    rate: float
    seed: int
    workflows: int
    slo_s: float
    arrivals: str
    alpha: float


@dataclass(frozen=True, slots=True)
class Setting:
    """What all runs have in common."""

    trace: Trace
    cluster: tuple[InstanceProfile, ...]
    expectation: Expectation


def policies(wanted: str) -> list[str]:
    """The names in a list such as "vllm,flow", or all. Raises InvalidDocument."""
    names = list(POLICIES) if wanted == "all" else [name.strip() for name in wanted.split(",")]
    for name in names:
        if name not in POLICIES:
            raise InvalidDocument("--policy", f"{name!r} is not one of all, {', '.join(POLICIES)}")
    return names


def compare(setting: Setting, runs: Sequence[Run]) -> Iterator[dict[str, Json]]:
    """The figures of all runs, in their order. Raises InvalidDocument for a setting that does not do."""
    yield made(setting, runs[0])  # here: it refuses a bad setting, and compiles for all
    if len(runs) > 1:
        # Started anew, not forked: whoever calls may have threads.
        with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
            yield from pool.map(made, [setting] * (len(runs) - 1), runs[1:])


def made(setting: Setting, run: Run) -> dict[str, Json]:
    """The figures of a run."""
    workload = draw(
        setting.trace, setting.expectation, count=run.workflows, rate=run.rate, seed=run.seed, slo_s=run.slo_s,
        arrivals=run.arrivals,
    )  # fmt: skip
    rules = POLICIES[run.policy]
    if rules.dispatch == loop.SCORE:
        rules = rules._replace(r=score_ratio(run.alpha))
    came = simulate(workload, setting.cluster, rules)
    return {
        "policy": run.policy,
        "rate": run.rate,
        "seed": run.seed,
        "p50_s": round(came.percentile_s(50), 3),
        "p95_s": round(came.percentile_s(95), 3),
        "p99_s": round(came.percentile_s(99), 3),
        "attainment": came.attainment,
        "throughput_per_s": run.workflows / came.elapsed_s,
        "calls": came.calls,
        "cached": round(came.cached, 4),
        "busy": [round(share, 3) for share in came.busy],
    }


def score_ratio(alpha: float, beta: float = 100.0) -> float:
    """The paper's two numbers as the one that counts: r = beta (1 - alpha) / alpha, in s^2."""
    return beta * (1.0 - alpha) / max(alpha, 1e-9)
