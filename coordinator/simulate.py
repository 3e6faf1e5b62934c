"""The command `simulate`: policies against each other on recorded workflows, in simulated time."""

import json
from pathlib import Path
from typing import Any

import click

from common import clock
from common.model import Json
from common.options import json_option
from common.profiles import A100


@click.command()
@json_option
@click.option("--trace", "path", required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path),
              help="recorded workflows (JSON)")  # fmt: skip
@click.option("--cluster", default="hetero1", show_default=True, help="a name, or a YAML file of instances")
@click.option("--policy", "wanted", default="all", show_default=True, help="all, or names with commas between them")
@click.option("--rate", "rates", type=float, multiple=True, required=True, help="workflows per second (repeatable)")
@click.option("--workflows", type=click.IntRange(1, 1_000_000), default=500, show_default=True)
@click.option("--seeds", type=click.IntRange(1, 1000), default=5, show_default=True, help="the same for every policy")
@click.option("--slo-scale", type=float, default=3.0, show_default=True,
              help="the deadline, in mean latencies of a workflow alone on unlimited A100s")  # fmt: skip
@click.option("--arrivals", type=click.Choice(["poisson", "gamma", "step"]), default="poisson", show_default=True)
@click.option("--alpha", type=click.FloatRange(0, 1), default=0.5, show_default=True, help="of hexgen")
def simulate(
    path: Path, cluster: str, wanted: str, rates: tuple[float, ...], workflows: int, seeds: int, slo_scale: float,
    arrivals: str, alpha: float, as_json: bool,
) -> None:  # fmt: skip
    """Compare policies on recorded workflows, in simulated time (faster with the extra sim)."""
    from coordinator.simulator.cluster import load_cluster  # numpy and all: only for those who simulate
    from coordinator.simulator.comparison import Run, Setting, compare, policies
    from coordinator.simulator.expectation import Expectation, alone_s
    from coordinator.simulator.trace import read_trace

    started = clock.monotonic_s()
    trace, profiles = read_trace(path), load_cluster(cluster)
    setting = Setting(trace, tuple(profiles), Expectation(trace, profiles))
    slo_s = slo_scale * alone_s(trace, A100)
    runs = [
        Run(policy, rate, seed, workflows, slo_s, arrivals, alpha)
        for rate in rates
        for policy in policies(wanted)
        for seed in range(seeds)
    ]
    found = list(compare(setting, runs))
    elapsed_s = clock.monotonic_s() - started
    if as_json:
        click.echo(json.dumps({"runs": found, "slo_s": slo_s, "elapsed_s": round(elapsed_s, 3)}))
    else:
        _show(found, slo_s, elapsed_s)


def _show(found: list[dict[str, Json]], slo_s: float, elapsed_s: float) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("policy", "rate /s", "P50 s", "P95 s", "P99 s", f"in {slo_s:.0f} s", title="means over seeds")
    groups: dict[tuple[str, float], list[dict[str, Any]]] = {}
    for run in found:
        groups.setdefault((run["policy"], run["rate"]), []).append(run)
    for (policy, rate), runs in groups.items():
        means = {name: sum(run[name] for run in runs) / len(runs) for name in ("p50_s", "p95_s", "p99_s", "attainment")}
        times = [f"{means[name]:.1f}" for name in ("p50_s", "p95_s", "p99_s")]
        table.add_row(policy, f"{rate:g}", *times, f"{means['attainment']:.1%}")
    Console().print(table)
    calls = sum(run["calls"] for run in found)
    click.echo(f"{calls} calls in {elapsed_s:.1f} s")
