"""The commands `trace`: what a trace holds, traces made up by chance, and those of a live cell. Runs no policy."""

import asyncio
import json
from pathlib import Path
from typing import Any

import click

from common import settings
from common.errors import HexgenError
from common.model import Json
from common.options import Finite, json_option, store_options
from common.recorded import Recorded
from common.store.cell import Cell

MOST_RECORDS = 1_000_000


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


@trace.command()
@store_options
@click.argument("out", metavar="FILE", type=click.Path(dir_okay=False, path_type=Path))
@json_option
def export(out: Path, as_json: bool, **flags: Any) -> None:
    """Write the workflows that a live cell has recorded to FILE, with tenants and arrivals."""
    from coordinator.replay import trace_of, usual_slo_s  # numpy and all: only for those who simulate
    from coordinator.simulator.trace import write_trace

    values = settings.load(**flags)
    records = asyncio.run(_window(values))
    if not records:
        raise HexgenError(f"no workflow has completed in namespace {values.namespace} of which calls were recorded")
    try:
        write_trace(out, trace_of(records))
    except OSError as error:
        raise HexgenError(f"{out}: cannot be written: {error.strerror}") from None
    told = {"file": str(out), "workflows": len(records), "calls": sum(len(one.calls) for one in records),
            "slo_s": usual_slo_s(records)}  # fmt: skip
    text = f"{out}: {told['workflows']} workflows, {told['calls']} calls; their median SLO was {told['slo_s']:g} s"
    click.echo(json.dumps(told) if as_json else text)


async def _window(values: settings.Settings) -> list[Recorded]:
    async with Cell.opened(values.redis_url, values.namespace) as cell:
        return await cell.traces.window(MOST_RECORDS)


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
