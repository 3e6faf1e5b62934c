"""The figures of the evaluation, each section a list of jobs for one process each, and what is told of their results.

A job takes plain values and returns plain values. `hexgen:best` is the opponent everywhere: the paper's policy with the
best of 16 values of its one number, in hindsight, on the same seeds.
"""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from typing import Any

import numpy as np
from cells import Cell, Floats, p95

from common.policy.registry import POLICIES, policy, score_ratio
from common.profiles import A100
from coordinator.simulator.comparison import BEST, ORACLE
from coordinator.simulator.expectation import alone_s
from coordinator.simulator.simulation import Outcome
from coordinator.simulator.spread import half_width, jain

Row = dict[str, Any]
SINGLES = "generated:text2sql-3,workflows=200,tenants=4,singles=0.5"
VARIANTS = {
    "as it is": {},
    "no urgency weights": {"urgency": 0.0},
    "delay of others not counted": {"harm": 0.0},
    "deadline order (no path)": {"path": 0.0},
    "whole path": {"path": 1.0},
    "hopeless last": {"hopeless_last": 1.0},
    "fairness 0.3": {"fairness": 0.3},
    "fairness 1": {"fairness": 1.0},
}


def of_cell(cell: Cell) -> Row:
    """How a row names its cell."""
    return {
        "trace": cell.trace.rsplit("/", 1)[-1].removesuffix(".json").removeprefix("generated:").split(",")[0],
        "cluster": cell.cluster,
        "cache": cell.prefixes,
        "arrivals": cell.arrivals,
    }


def bars(cell: Cell) -> Row:
    """P95 of `hexgen:best` over that of `flow` at three loads; rates kept; and `vllm` where it just holds 5 U."""
    at_loads = cell.at_loads(POLICIES["flow"])
    row = {
        **of_cell(cell),
        "rate_5u": cell.rate_5u,
        "ratios": cell.ratios(at_loads),
        "over_bound": float((p95(at_loads[0]) / unhindered_p95(cell)).mean()),
    }
    if cell.arrivals == "poisson":
        vllm = cell.rate_at_p95("vllm", 5.0)
        row["vllm_p95"] = (cell.p95_u("vllm", vllm) / cell.p95_u("flow", vllm)).tolist()
        row["kept"] = {policy: cell.rate_kept(policy) for policy in (BEST, "flow", "ray", "vllm")}
    return row


def unhindered_p95(cell: Cell) -> Floats:
    """P95 of each seed if every call had an A100 of its own at once, in s: no policy can beat it on these clusters."""
    found = []
    alone = {number: alone_s((workflow,), A100) for number, workflow in enumerate(cell.traced)}
    for seed in range(cell.seeds):
        chosen = np.random.default_rng(seed).integers(0, len(cell.traced), cell.workflows)
        found.append(np.percentile([alone[int(which)] for which in chosen], 95))
    return np.array(found)


def policies(cell: Cell) -> Row:
    """All policies at one rate, 0.85 of `hexgen:best`'s at 5 U; and the rate each keeps."""
    rate = 0.85 * cell.rate_5u
    names = [*POLICIES, BEST, ORACLE]
    return {**of_cell(cell), "rate": rate, "policies": {name: _figures(cell, name, rate) for name in names}}


def _figures(cell: Cell, policy: str, rate: float) -> Row:
    outcomes = cell.runs(policy, rate)
    return {**told(cell, outcomes), "kept": cell.rate_kept(policy)}


def told(cell: Cell, outcomes: Sequence[Outcome]) -> Row:
    """Percentiles in U, shares, goodput in workflows/s, Jain's index of tenants' attainment."""
    percentiles = np.array([[one.percentile_s(percent) for percent in (50, 95, 99)] for one in outcomes]) / cell.unit_s
    tenants = [by_tenant(cell, seed, one) for seed, one in enumerate(outcomes)]
    return {
        "p50": float(percentiles[:, 0].mean()),
        "p95": float(percentiles[:, 1].mean()),
        "p95_half": half_width(percentiles[:, 1].tolist()),
        "p99": float(percentiles[:, 2].mean()),
        "attainment": float(np.mean([one.attainment for one in outcomes])),
        "goodput": float(np.mean([one.met.sum() / one.elapsed_s for one in outcomes])),
        "cached": float(np.mean([one.cached for one in outcomes])),
        "jain": float(np.mean([jain(list(shares.values())) for shares in tenants])),
        "tenants": {name: float(np.mean([shares[name] for shares in tenants])) for name in tenants[0]},
    }


def by_tenant(cell: Cell, seed: int, outcome: Outcome) -> dict[str, float]:
    """Attainment of each tenant."""
    workload = cell.workload(seed, 1.0)
    numbers = workload.workflows["tenant"]
    return {
        name: float(outcome.met[numbers == at].mean())
        for at, name in enumerate(workload.tenants)
        if (numbers == at).any()
    }


def mixed_tenants(cell: Cell) -> Row:
    """A mix with single calls: every policy at the rate that `hexgen:best` keeps."""
    rate = cell.rate_kept(BEST)
    found = {name: told(cell, cell.runs(name, rate)) for name in [*POLICIES, BEST]}
    for fairness in (0.3, 1.0):
        outcomes = cell.outcomes(policy("flow", {"fairness": fairness}), rate)
        found[f"flow, fairness {fairness:g}"] = told(cell, outcomes)
    return {**of_cell(cell), "rate": rate, "policies": found}


def parts(cell: Cell) -> Row:
    """`flow` with a part changed: P95 of `hexgen:best` over it, and attainment."""
    ratios, attainment = {}, {}
    for name, changes in VARIANTS.items():
        at_loads = cell.at_loads(policy("flow", changes))
        ratios[name] = cell.ratios(at_loads)
        attainment[name] = [float(np.mean([one.attainment for one in outcomes])) for outcomes in at_loads]
    return {**of_cell(cell), "ratios": ratios, "attainment": attainment}


def paper(cell: Cell) -> Row:
    """The paper's ablations and its alpha: P95 over that of `hexgen:best` at three loads."""
    fixed = {f"alpha {alpha:g}": POLICIES["hexgen"]._replace(r=score_ratio(alpha)) for alpha in (0.2, 0.5, 0.8, 0.95)}
    others = {name: POLICIES[name] for name in ("hexgen-no-wb", "hexgen-no-pq", "low", "flow")}
    found = {
        name: (1.0 / np.array(cell.ratios(cell.at_loads(rules)))).tolist()
        for name, rules in {**fixed, **others}.items()
    }
    return {**of_cell(cell), "ratios": found}


def hardship(cell: Cell) -> Row:
    """P95 of `hexgen:best` over that of `flow` where profiles are wrong or KV room is little."""
    return {**of_cell(cell), "kv": cell.kv, "error": cell.error, "ratios": cell.ratios(cell.at_loads(POLICIES["flow"]))}


SECTIONS: dict[str, Callable[[Cell], Row]] = {
    "bars": bars, "policies": policies, "tenants": mixed_tenants, "parts": parts, "paper": paper, "hardship": hardship,
}  # fmt: skip
Job = tuple[Cell, tuple[str, ...]]
"""A cell, and the sections that want its figures: what they share is computed once."""


def done(job: Job) -> dict[str, Row]:
    """The rows of a job."""
    cell, names = job
    return {name: SECTIONS[name](cell) for name in names}


def jobs(traces: Sequence[str], full: bool, only: Sequence[str]) -> list[Job]:
    """What is to be done. In full: all traces and clusters; else a sketch that only shows that all of it works."""
    usual = partial(Cell, workflows=500, seeds=5) if full else partial(Cell, workflows=60, seeds=2)
    some = list(traces) if full else list(traces[:1])
    clusters = ["hetero1", "hetero2", "mixed12"] if full else ["hetero1"]
    found: list[Job] = []
    for cache, arrivals, cluster, trace in product((False, True), ("poisson", "gamma", "step"), clusters, some):
        names = _wanted(cache, arrivals, cluster, last=trace == some[-1])
        found.append((usual(trace, cluster, cache, arrivals), names))
    for cache, cluster, trace in product((False, True), clusters[:2], some):
        found.append((usual(trace, cluster, cache, kv=0.5), ("hardship",)))
        found.append((usual(trace, cluster, cache, error=0.3), ("hardship",)))
    found += [(usual(SINGLES, cluster, cache), ("tenants",)) for cache in (False, True) for cluster in clusters[:2]]
    chosen = [(cell, tuple(name for name in names if name in only)) for cell, names in found]
    return [job for job in chosen if job[1]]


def _wanted(cache: bool, arrivals: str, cluster: str, *, last: bool) -> tuple[str, ...]:
    """The sections that look at a usual cell. All policies are run on one trace, the parts of `flow` on one cluster."""
    names = ["policies"] if last else []
    if arrivals != "step":
        names.append("bars")
        names += ["parts"] if cluster == "hetero1" else []
    if arrivals == "poisson" and not cache and cluster != "mixed12":
        names.append("paper")
    return tuple(names)
