"""The command `instances`: who is there, what each serves, holds and has queued."""

import json
from typing import Any

import click

from common import settings
from common.model import Json
from common.options import json_option, store_options
from common.store.cell import Cell
from hexgen_flow.commands.shared import on_cell


@click.command()
@store_options
@json_option
def instances(as_json: bool, **flags: Any) -> None:
    """The instances and the tool workers: what they are, serve, hold and have queued. Tool workers share one queue.

    stalled: its engine makes no progress, so it is given nothing until it answers a probe.
    heard: since its last sign of life, which an instance gives each third of a lease (HEXGEN_LEASE_S); after a half it
    is told as silent, after a whole one it is lost.
    alone: what is queued and claimed there would take so long if each request ran alone (backlog_s). An engine runs
    many at once and is done sooner.
    """
    silent_s = settings.load(**flags).lease_s / 2
    found = on_cell(flags, lambda cell: _instances(cell, silent_s))
    if as_json:
        click.echo(json.dumps(found))
    else:
        _print_table(found)


async def _instances(cell: Cell, silent_s: float) -> list[dict[str, Json]]:
    found = await cell.instances.describe()
    for one in found:
        one["silent"] = one["heard_s"] > silent_s
        if one["status"] == "lost":
            one["load"] = None  # told before it was lost; its requests are routed anew
    return [*found, *({**one, "silent": False} for one in await cell.offers.describe())]


def _print_table(found: list[dict[str, Json]]) -> None:
    """Within 80 columns: no lines drawn, each name on a line of its own, labels below the models after a +."""
    from rich.console import Console  # takes its time, which other commands need not
    from rich.table import Table

    table = Table(box=None, padding=(0, 1, 0, 0))
    for heading in ("instance", "status", "profile", "serves"):
        table.add_column(heading, overflow="fold")
    for heading in ("heard", "queued", "running", "alone"):
        table.add_column(heading, justify="right", no_wrap=True)
    for one in found:
        serves = "\n".join([*one["models"], *(f"+{label}" for label in one["labels"])])
        running = str(one["load"]["running"]) if one["load"] else "-"
        heard = "-" if one["heard_s"] is None else f"{one['heard_s']:.0f} s"
        held = (heard, str(one["queued"]), running, f"{one['backlog_s']:.1f} s")
        status = f"{one['status']}, silent" if one["silent"] and one["status"] != "lost" else one["status"]
        table.add_row(one["instance"], status, one["profile"], serves, *held)
    Console().print(table)
