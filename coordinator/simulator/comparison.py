"""Policies against each other on the same workflows: runs of one setting, on all cores, and what came of each.

It knows policies and their numbers by name; what they mean is the registry's business.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from multiprocessing import get_context

import numpy as np
from numpy.typing import NDArray

from common.errors import InvalidDocument
from common.model import InstanceProfile, Json
from common.policy import registry
from coordinator.simulator.expectation import Expectation
from coordinator.simulator.simulation import Outcome, simulate
from coordinator.simulator.spread import jain
from coordinator.simulator.trace import Trace
from coordinator.simulator.workload import Workload, draw

BEST = "hexgen:best"
"""`hexgen` with the r that turns out best: of `registry.RATIOS`, the one of the least mean P95 over the same seeds."""
ORACLE = "oracle"
"""`flow` that knows true lengths and paths: what better predictions could bring at most. No policy can be this."""
REALLY = {BEST: "hexgen", ORACLE: "flow"}
WORTH_PROCESSES = 20_000
"""With fewer workflows than this in all, starting processes takes longer than the runs."""
Progress = Callable[[int, int], None]
"""Hears how many of how many are done."""
Parameters = tuple[tuple[str, float], ...]
"""Numbers of a policy that replace its own, as (name, value): see `common.policy.registry.policy`."""


@dataclass(frozen=True, slots=True)
class Run:
    """One run to be made. rate in workflows/s; slo_s: the deadline after arrival."""

    policy: str
    rate: float
    seed: int
    workflows: int
    slo_s: float
    arrivals: str = "poisson"
    parameters: Parameters = ()


@dataclass(frozen=True, slots=True)
class Setting:
    """What all runs have in common."""

    trace: Trace
    cluster: tuple[InstanceProfile, ...]
    expectation: Expectation

    @classmethod
    def of(cls, trace: Trace, cluster: Sequence[InstanceProfile]) -> "Setting":
        """A trace on a cluster, whose policies expect the trace's means."""
        return cls(trace, tuple(cluster), Expectation(trace, cluster))


@dataclass(frozen=True, slots=True)
class Made:
    """A run that was made, and its figures as they are told.

    latency_s: of each workflow, in s; slo_shares: the same as shares of its SLO.
    """

    run: Run
    latency_s: NDArray[np.float64]
    slo_shares: NDArray[np.float64]
    figures: dict[str, Json]


def every_policy() -> list[str]:
    """All that can be simulated."""
    return [*registry.names(), *REALLY]


def policies(wanted: str) -> list[str]:
    """The names in a list such as "vllm,flow", or all. Raises InvalidDocument."""
    known = every_policy()
    names = known if wanted == "all" else list(dict.fromkeys(name.strip() for name in wanted.split(",")))
    for name in names:
        if name not in known:
            raise InvalidDocument("--policy", f"{name!r} is not one of all, {', '.join(known)}")
    return names


def compare(setting: Setting, runs: Sequence[Run], progress: Progress | None = None) -> list[Made]:
    """What came of all runs, in their order.

    Raises InvalidDocument for a setting that does not do.
    """
    tries = [one for run in runs for one in _tries(run)]
    tell = progress or (lambda _made, _total: None)
    found = []
    here = len(tries) if sum(run.workflows for run in tries) < WORTH_PROCESSES else 1
    for run in tries[:here]:  # at least the first: it refuses a bad setting, and compiles for all
        found.append(made(setting, run))
        tell(len(found), len(tries))
    if here < len(tries):
        found += _elsewhere(setting, tries[here:], lambda count: tell(here + count, len(tries)))
    return _in_hindsight(found)


def made(setting: Setting, run: Run) -> Made:
    """Make a run."""
    workload, came = played(setting, run)
    slo_s = workload.workflows["deadline"] - workload.workflows["arrival"]
    return Made(run, came.latency_s, came.latency_s / slo_s, figures(run, workload, came))


def played(setting: Setting, run: Run) -> tuple[Workload, Outcome]:
    """A run's workload as it was left, and its outcome."""
    workload = draw(
        setting.trace, setting.expectation, count=run.workflows, rate=run.rate, seed=run.seed, slo_s=run.slo_s,
        arrivals=run.arrivals, oracle=run.policy == ORACLE,
    )  # fmt: skip
    rules = registry.policy(REALLY.get(run.policy, run.policy), dict(run.parameters))
    return workload, simulate(workload, setting.cluster, rules)


def figures(run: Run, workload: Workload, came: Outcome) -> dict[str, Json]:
    """What is told of a run: seconds with three decimals, shares from 0 to 1."""
    told: dict[str, Json] = {
        "policy": run.policy,
        "rate": run.rate,
        "seed": run.seed,
        "slo_s": round(run.slo_s, 3),
        "p50_s": round(came.percentile_s(50), 3),
        "p95_s": round(came.percentile_s(95), 3),
        "p99_s": round(came.percentile_s(99), 3),
        "attainment": came.attainment,
        "throughput_per_s": run.workflows / came.elapsed_s,
        "goodput_per_s": float(came.met.sum()) / came.elapsed_s,
        "calls": came.calls,
        "cached": round(came.cached, 4),
        "busy": [round(share, 3) for share in came.busy],
    }
    if run.policy == BEST:
        told["r"] = round(dict(run.parameters)["r"], 3)
    tenants = workload.workflows["tenant"]
    if len(numbers := np.unique(tenants)) > 1:
        shares = {workload.tenants[tenant]: float(came.met[tenants == tenant].mean()) for tenant in numbers}
        told["tenants"], told["fairness"] = shares, jain(list(shares.values()))
    return told


def _tries(run: Run) -> list[Run]:
    return [replace(run, parameters=(("r", r),)) for r in registry.RATIOS] if run.policy == BEST else [run]


def _in_hindsight(found: list[Made]) -> list[Made]:
    """Without the tries of BEST that lost."""
    tried: dict[Run, dict[Parameters, list[float]]] = defaultdict(lambda: defaultdict(list))
    for one in found:
        if one.run.policy == BEST:
            tried[_case(one.run)][one.run.parameters].append(float(np.percentile(one.latency_s, 95)))
    best = {case: min(p95s, key=lambda r: sum(p95s[r])) for case, p95s in tried.items()}
    return [one for one in found if one.run.policy != BEST or best[_case(one.run)] == one.run.parameters]


def _case(run: Run) -> Run:
    """What the seeds and tries of one figure have in common."""
    return replace(run, seed=0, parameters=())


def _elsewhere(setting: Setting, runs: Sequence[Run], progress: Callable[[int], None]) -> list[Made]:
    # Started anew, not forked: whoever calls may have threads. The setting goes to each process once.
    with ProcessPoolExecutor(mp_context=get_context("spawn"), initializer=_settle, initargs=(setting,)) as pool:
        try:
            futures = [pool.submit(_made_here, run) for run in runs]
            for count, future in enumerate(as_completed(futures), 1):
                future.result()
                progress(count)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
        return [future.result() for future in futures]


_settled: list[Setting] = []


def _settle(setting: Setting) -> None:
    _settled[:] = [setting]


def _made_here(run: Run) -> Made:
    return made(_settled[0], run)
