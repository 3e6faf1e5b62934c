"""The command `simulate`: policies against each other on recorded workflows, in simulated time."""

import json
from pathlib import Path
from typing import Any

import click

from common import clock
from common.errors import InvalidDocument
from common.options import Finite, json_option
from common.policy.registry import names, takes, used
from common.profiles import A100
from coordinator.commands.simulate_options import ABOVE_0, RATE, load_options, progress

FOLDER = Path("simulation")


@click.command()
@json_option
@load_options
@click.option("--cluster", default="hetero1", show_default=True, help="a name, or a YAML file of instances")
@click.option("--policy", "wanted", default="all", show_default=True, help="all, or names with commas between them")
@click.option("--rate", "rates", type=RATE, multiple=True, required=True, help="workflows per second (repeatable)")
@click.option("--slo-scale", type=ABOVE_0, default=3.0, show_default=True,
              help="the deadline, in mean latencies of a workflow alone on unlimited A100s")  # fmt: skip
@click.option("--alpha", type=Finite(0, 1), help="of hexgen and hexgen-no-pq [default 0.5]; hexgen:best finds its own")
@click.option("--plots", "folder", type=click.Path(file_okay=False, path_type=Path), metavar="DIR",
              help="where plots go [default simulation; none with --json]")  # fmt: skip
@click.option("--no-plots", is_flag=True, help="write no plots")
@click.option("--events", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
              help="write one run call by call, as Perfetto (ui.perfetto.dev) reads it")  # fmt: skip
def simulate(
    wanted: str, rates: tuple[float, ...], slo_scale: float, folder: Path | None, no_plots: bool, events: Path | None,
    as_json: bool, **load: Any,
) -> None:  # fmt: skip
    """Compare policies on recorded workflows, in simulated time (faster with the extra sim)."""
    from coordinator.commands import simulate_files as files  # numpy and all: only for those who simulate
    from coordinator.commands import simulate_table
    from coordinator.simulator.cluster import load_cluster
    from coordinator.simulator.comparison import Run, Setting, compare, policies
    from coordinator.simulator.expectation import alone_s
    from coordinator.simulator.source import load_trace

    started = clock.monotonic_s()
    parameters = {policy: _parameters(policy, load["alpha"]) for policy in policies(wanted)}
    if load["alpha"] is not None and not any(parameters.values()):
        takers = ", ".join(name for name in names() if "alpha" in takes(name))
        raise InvalidDocument("--alpha", f"is no parameter of {wanted}; {takers} take it")
    trace = load_trace(load["trace"], prefixes=load["prefix_cache"])
    setting = Setting.of(trace, load_cluster(load["cluster"]))
    slo_s = slo_scale * alone_s(trace, A100)
    runs = [
        Run(policy, rate, seed, load["workflows"], slo_s, load["arrivals"], parameters[policy])
        for rate in dict.fromkeys(rates)
        for policy in parameters
        for seed in range(load["seeds"])
    ]
    wants_plots = not no_plots and (folder is not None or not as_json)
    folder = files.plots_folder(folder or FOLDER, asked=folder is not None) if wants_plots else None
    if events:
        files.check_writable(events)
    with progress("runs") as tell:
        made = compare(setting, runs, tell)
    elapsed_s = clock.monotonic_s() - started
    if as_json:
        found = [one.figures for one in made]
        click.echo(json.dumps({"runs": found, "slo_s": slo_s, "elapsed_s": round(elapsed_s, 3)}))
    else:
        simulate_table.show(made, slo_s)
        click.echo(f"{sum(one.figures['calls'] for one in made)} calls in {elapsed_s:.1f} s")
    told = files.write(setting, made, slo_scale, folder, events) if folder or events else []
    if wants_plots and not folder:
        told.append(files.HOW)
    for line in [] if as_json else told:
        click.echo(line)


def _parameters(policy: str, alpha: float | None) -> tuple[tuple[str, float], ...]:
    return () if alpha is None else tuple(used(policy, {"alpha": alpha}).items())
