"""What `simulate` prints: a table for each rate, means over seeds with what is sure of them. Computes nothing else."""

from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Any

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from coordinator.simulator.comparison import Made
from coordinator.simulator.spread import half_width

Runs = list[dict[str, Any]]
ABREAST = 6
"""As many tenants fit in 80 columns."""


def show(made: Sequence[Made], slo_s: float) -> None:
    """Print the figures of all runs, grouped by rate and policy."""
    console = Console(highlight=False)
    for rate in dict.fromkeys(one.run.rate for one in made):
        groups: dict[str, Runs] = {}
        for one in made:
            if one.run.rate == rate:
                groups.setdefault(one.run.policy, []).append(one.figures)
        console.print(_latencies(groups, rate, slo_s))
        if any("tenants" in runs[0] for runs in groups.values()):
            names = sorted({name for runs in groups.values() for run in runs for name in run.get("tenants", {})})
            for first in range(0, len(names), ABREAST):
                console.print(_tenants(groups, names[first : first + ABREAST]))
        for policy, runs in groups.items():
            if "r" in runs[0]:
                console.print(f"  {policy}: r, chosen afterwards, was {runs[0]['r']:g} s^2")


def _latencies(groups: dict[str, Runs], rate: float, slo_s: float) -> Table:
    seeds = max(len(runs) for runs in groups.values())
    sure = f", mean of {seeds} seeds ±95 % confidence" if seeds > 1 else ""
    table = Table(
        title=f"{rate:g} workflows/s, SLO {slo_s:.0f} s{sure}", title_justify="left", box=SIMPLE, padding=(0, 1)
    )
    for name in ("policy", "P50 s", "P95 s", "P99 s", "in time %", "goodput /s"):
        table.add_column(name, justify="left" if name == "policy" else "right", no_wrap=True)
    for policy, runs in groups.items():
        table.add_row(
            policy,
            _short(fmean(run["p50_s"] for run in runs)),
            _sure([run["p95_s"] for run in runs], _short),
            _short(fmean(run["p99_s"] for run in runs)),
            _sure([100 * run["attainment"] for run in runs], _short),
            _sure([run["goodput_per_s"] for run in runs], lambda value: f"{value:.4f}"),
        )
    return table


def _tenants(groups: dict[str, Runs], names: Sequence[str]) -> Table:
    table = Table(title="in time by tenant, %", title_justify="left", box=SIMPLE, padding=(0, 1))
    table.add_column("policy", no_wrap=True)
    for name in (*names, "fairness"):
        table.add_column(name, justify="right", overflow="fold", min_width=6, no_wrap=name == "fairness")
    for policy, runs in groups.items():
        told = [run for run in runs if "tenants" in run]
        shares = [[100 * run["tenants"][name] for run in told if name in run["tenants"]] for name in names]
        fairness = f"{fmean(run['fairness'] for run in told):.3f}" if told else ""
        table.add_row(policy, *(_sure(share, _short) if share else "" for share in shares), fairness)
    return table


def _sure(values: Sequence[float], form: Callable[[float], str]) -> str:
    return form(fmean(values)) + (f" ±{form(half_width(values))}" if len(values) > 1 else "")


def _short(value: float) -> str:
    return f"{value:.1f}" if value < 1000 else f"{value:.0f}"
