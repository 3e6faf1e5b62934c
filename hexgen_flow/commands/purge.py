"""The command `purge`: workflows that have ended are forgotten before their time."""

import json
from typing import Any

import click

from common.errors import InvalidDocument
from common.model import Json
from common.options import json_option, store_options
from common.store.cell import Cell
from hexgen_flow.commands.following import absent, find
from hexgen_flow.commands.shared import on_cell


@click.command()
@store_options
@json_option
@click.argument("workflow", metavar="[WORKFLOW]", required=False)
@click.option("--ended", is_flag=True, help="all workflows that have ended")
def purge(workflow: str | None, ended: bool, as_json: bool, **flags: Any) -> None:
    """Forget WORKFLOW, which has ended: its state, events and result, and its id is free. One that runs is refused."""
    if (workflow is None) != ended:
        raise InvalidDocument("WORKFLOW", "name one workflow, or give --ended for all that have ended")
    told = on_cell(flags, lambda cell: _ended(cell) if workflow is None else _one(cell, workflow))
    if as_json:
        click.echo(json.dumps(told))
    elif workflow is None:
        click.echo(f"{told['purged']} {'workflow is' if told['purged'] == 1 else 'workflows are'} forgotten")
    else:
        click.echo(f"{told['workflow']} is forgotten")


async def _one(cell: Cell, workflow: str) -> dict[str, Json]:
    found = await find(cell, workflow)
    if not await cell.retention.purge([found.workflow]):
        raise absent(found, "cannot be purged")
    return {"workflow": found.workflow, "purged": 1}


async def _ended(cell: Cell) -> dict[str, Json]:
    return {"purged": sum([await cell.retention.purge(page) async for page in cell.retention.kept()])}
