"""The commands that look at a cell and its workflows, and change nothing: `status`, `result` and `events`."""

import json
from collections import Counter
from typing import Any

import click

from common.errors import HexgenError
from common.model import Json
from common.options import json_option, store_options
from common.store.cell import Cell
from hexgen_flow.client import ENDS
from hexgen_flow.commands.following import absent, at_most, find, follow
from hexgen_flow.commands.shared import SECONDS, on_cell, reason, shown, telling
from hexgen_flow.commands.standing import lines, standing


@click.command()
@store_options
@json_option
@click.argument("workflow", metavar="[WORKFLOW]", required=False)
def status(workflow: str | None, as_json: bool, **flags: Any) -> None:
    """How a workflow stands, stage by stage; without WORKFLOW, how the cell stands."""
    stands = on_cell(flags, lambda cell: _status(cell, workflow))
    for line in [json.dumps(stands)] if as_json else lines(stands):
        click.echo(line)


async def _status(cell: Cell, workflow: str | None) -> dict[str, Json]:
    if workflow is None:
        policies = Counter((await cell.coordinators.all()).values())
        return {"namespace": cell.keys.namespace, "coordinators": policies, **await cell.records.counts()}
    found = await find(cell, workflow)
    if found.status == "unknown":
        raise absent(found, "")
    told = {"workflow": found.workflow, "status": found.status}
    if found.status in ("rejected", "submitted"):
        return told | {key: found.data[key] for key in ("field", "error", "retry_after_s") if key in found.data}
    return told | await standing(cell, found.workflow)


@click.command()
@store_options
@json_option
@click.argument("workflow")
def result(workflow: str, as_json: bool, **flags: Any) -> None:
    """The result of a workflow that has ended."""

    async def read(cell: Cell) -> None:
        found = await find(cell, workflow)
        ended = await cell.records.result(found.workflow)
        told.update({"workflow": found.workflow, "status": found.status, **found.data, **(ended or {})})
        if ended is None:
            raise absent(found, "has no result")
        if ended["status"] != "completed":
            raise HexgenError(f"workflow {found.workflow} {reason(ended['status'], ended)}")

    with telling(as_json) as told:
        on_cell(flags, read)
    if not as_json:
        click.echo(shown(told["output"]))


@click.command()
@store_options
@json_option
@click.argument("workflow")
@click.option("--timeout-s", type=SECONDS, help="give up after so long")
def events(workflow: str, as_json: bool, timeout_s: float | None, **flags: Any) -> None:
    """The events of a workflow, until it ends."""

    async def read(cell: Cell) -> None:
        async with at_most(timeout_s, f"workflow {workflow} has not ended"):
            async for entry, kind, data in follow(cell, workflow):
                told = {"id": entry, "type": kind, "data": data}
                click.echo(json.dumps(told) if as_json else f"{entry} {kind} {json.dumps(data, ensure_ascii=False)}")
                if kind in ENDS:
                    return

    on_cell(flags, read)
