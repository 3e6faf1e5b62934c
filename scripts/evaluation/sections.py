"""The figures of the evaluation, each section a list of jobs for one process each, and what is told of their results.

A job takes plain values and returns plain values. `hexgen:best` is the opponent everywhere: the paper's policy with the
best of 16 values of its one number, in hindsight, on the same seeds.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np
from cells import BEST, Cell, Floats, p95

from common.policy.registry import POLICIES, policy, score_ratio
from common.profiles import A100
from coordinator.simulator.expectation import alone_s
from coordinator.simulator.simulation import Outcome
from coordinator.simulator.spread import half_width, jain

LOADS = (0.6, 0.85, 1.0)
"""Shares of the rate at which `hexgen:best` has a P95 of 5 U."""
Row = dict[str, Any]
Job = Callable[[], Row]

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
    rate = cell.rate_at_p95(BEST, 5.0)
    ratios, bound = [], 0.0
    for load in LOADS:
        best, outcomes = cell.p95_u(BEST, load * rate), cell.runs("flow", load * rate)
        ratios.append((best / (p95(outcomes) / cell.unit_s)).tolist())
        if load == LOADS[0]:
            bound = float((p95(outcomes) / unhindered_p95(cell)).mean())
    row = {**of_cell(cell), "rate_5u": rate, "ratios": ratios, "over_bound": bound}
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
    rate = 0.85 * cell.rate_at_p95(BEST, 5.0)
    names = [*POLICIES, BEST, "oracle"]
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
        rules = POLICIES["flow"]._replace(fairness=fairness)
        outcomes = [cell.run(rules, rate, seed) for seed in range(cell.seeds)]
        found[f"flow, fairness {fairness:g}"] = told(cell, outcomes)
    return {**of_cell(cell), "rate": rate, "policies": found}


def parts(cell: Cell) -> Row:
    """`flow` with a part changed: P95 of `hexgen:best` over it, and attainment."""
    rate = cell.rate_at_p95(BEST, 5.0)
    found: dict[str, list[list[float]]] = {name: [] for name in VARIANTS}
    attainment: dict[str, list[float]] = {name: [] for name in VARIANTS}
    for load in LOADS:
        best = cell.p95_u(BEST, load * rate)
        for name, changes in VARIANTS.items():
            outcomes = [cell.run(policy("flow", changes), load * rate, seed) for seed in range(cell.seeds)]
            found[name].append((best / (p95(outcomes) / cell.unit_s)).tolist())
            attainment[name].append(float(np.mean([one.attainment for one in outcomes])))
    return {**of_cell(cell), "ratios": found, "attainment": attainment}


def paper(cell: Cell) -> Row:
    """The paper's ablations and its alpha: P95 over that of `hexgen:best` at three loads."""
    rate = cell.rate_at_p95(BEST, 5.0)
    found: dict[str, list[list[float]]] = {}
    fixed = {f"alpha {alpha:g}": POLICIES["hexgen"]._replace(r=score_ratio(alpha)) for alpha in (0.2, 0.5, 0.8, 0.95)}
    others = {name: POLICIES[name] for name in ("hexgen-no-wb", "hexgen-no-pq", "low", "flow")}
    for load in LOADS:
        best = cell.p95_u(BEST, load * rate)
        for name, rules in {**fixed, **others}.items():
            outcomes = [cell.run(rules, load * rate, seed) for seed in range(cell.seeds)]
            found.setdefault(name, []).append((p95(outcomes) / cell.unit_s / best).tolist())
    return {**of_cell(cell), "ratios": found}


def hardship(cell: Cell) -> Row:
    """P95 of `hexgen:best` over that of `flow` where profiles are wrong or KV room is little."""
    rate = cell.rate_at_p95(BEST, 5.0)
    ratios = [(cell.p95_u(BEST, load * rate) / cell.p95_u("flow", load * rate)).tolist() for load in LOADS]
    return {**of_cell(cell), "kv": cell.kv, "error": cell.error, "ratios": ratios}


def jobs(traces: Sequence[str], full: bool) -> dict[str, list[Job]]:
    """What is to be done, by section. In full: all traces; else a sketch that only shows that all of it works."""
    usual = {"workflows": 500, "seeds": 5} if full else {"workflows": 60, "seeds": 2}
    some = list(traces) if full else list(traces[:1])
    clusters = ["hetero1", "hetero2"] if full else ["hetero1"]

    def cells(
        *, arrivals: Sequence[str] = ("poisson",), clusters: Sequence[str] = clusters, **changes: Any
    ) -> list[Cell]:
        ways = product((False, True), arrivals, clusters, some)
        return [Cell(trace, cluster, cache, kind, **usual, **changes) for cache, kind, cluster, trace in ways]

    everywhere = ["hetero1", "hetero2", "mixed12"] if full else ["hetero1"]
    singles = "generated:text2sql-3,workflows=200,tenants=4,singles=0.5"
    return {
        "bars": [partial(bars, cell) for cell in cells(arrivals=("poisson", "gamma"), clusters=everywhere)],
        "policies": [
            partial(policies, cell)
            for cell in cells(arrivals=("poisson", "gamma", "step"), clusters=everywhere)
            if cell.trace == some[-1]
        ],
        "tenants": [partial(mixed_tenants, replace(cell, trace=singles)) for cell in cells() if cell.trace == some[0]],
        "parts": [partial(parts, cell) for cell in cells(arrivals=("poisson", "gamma")) if cell.cluster == "hetero1"],
        "paper": [partial(paper, cell) for cell in cells() if not cell.prefixes],
        "hardship": [
            *(partial(hardship, cell) for cell in cells(error=0.3) if cell.cluster == "hetero1"),
            *(partial(hardship, cell) for cell in cells(kv=0.5)),
        ],
    }
