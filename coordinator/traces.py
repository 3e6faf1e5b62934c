"""The commands `trace show` and `trace generate`: what a trace holds, and traces made up by chance. Runs no policy."""

import json
from pathlib import Path
from typing import Any

import click

from common.model import Json
from common.options import Finite, json_option


@click.group("trace")
def trace() -> None:
    """Look at recorded workflows, or make some up."""


@trace.command()
@click.argument("wanted", metavar="TRACE")
@json_option
def show(wanted: str, as_json: bool) -> None:
    """What TRACE holds: a file, or a recipe such as generated:text2sql-1,workflows=500,seed=1."""
    from coordinator.simulator.source import load_trace  # numpy and all: only for those who simulate
    from coordinator.simulator.statistics import statistics

    found = statistics(load_trace(wanted, prefixes=True))
    if as_json:
        click.echo(json.dumps(found))
    else:
        _show(found)


@trace.command()
@click.argument("recipe", metavar="RECIPE")
@click.option("--out", required=True, type=click.Path(dir_okay=False, path_type=Path), help="the file to write")
@click.option("--rate", type=Finite(0, min_open=True), help="write arrivals too, so many workflows per second")
@click.option("--arrivals", type=click.Choice(["poisson", "gamma", "step"]), default="poisson", show_default=True,
              help="how they arrive, with --rate")  # fmt: skip
def generate(recipe: str, out: Path, rate: float | None, arrivals: str) -> None:
    """Write a trace made by RECIPE: text2sql-1, text2sql-2 or text2sql-3, then any of workflows=200, seed=0, tenants=4
    (the k-th with a share of 1/k), singles=0.5 (the share of single calls) and slos=0.75/1/1.5, with commas between.
    """
    from coordinator.simulator import generator, source  # numpy and all: only for those who simulate
    from coordinator.simulator.trace import write_trace
    from coordinator.simulator.workload import with_arrivals

    wanted = source.recipe(recipe)
    made = generator.generate(wanted)
    if rate is not None:
        made = with_arrivals(made, arrivals, rate, wanted.seed)
    try:
        write_trace(out, made)
    except OSError as error:
        raise click.ClickException(f"{out}: cannot be written: {error.strerror}") from None
    click.echo(f"{out}: {len(made)} workflows, {sum(len(workflow.calls) for workflow in made)} calls")


def _show(found: dict[str, Json]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("stage", "calls", "prompt tokens", "answer", "95 % of answers", "tool s", title="means")
    stages: dict[str, Any] = found["stages"]
    for stage, means in stages.items():
        figures = (f"{means[name]:.1f}" for name in ("prompt_tokens", "output_tokens", "output_tokens_p95", "tool_s"))
        table.add_row(stage, str(means["calls"]), *figures)
    Console(markup=False).print(table)
    tenants = ", ".join(f"{name} {count}" for name, count in found["tenants"].items())
    click.echo(f"{found['workflows']} workflows, {found['distinct']} distinct; by tenant: {tenants}")
    calls, prompt, output = (found[f"{what}_per_workflow"] for what in ("calls", "prompt_tokens", "output_tokens"))
    click.echo(f"a workflow: {calls:.1f} calls, {prompt:.0f} prompt tokens, {output:.0f} tokens of answers")
    click.echo(f"{found['repeatable']:.1%} of prompt tokens repeat; {'with' if found['arrivals'] else 'no'} arrivals")
