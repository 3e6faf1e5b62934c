"""The command `drain`: an instance is to end, told from anywhere in the cell."""

import json
from typing import Any

import click

from common.errors import HexgenError
from common.model import Json
from common.options import INSTANCE, json_option, store_options
from common.store.cell import Cell
from hexgen_flow.commands.shared import on_cell


@click.command()
@store_options
@json_option
@click.argument("instance", type=INSTANCE)
def drain(instance: str, as_json: bool, **flags: Any) -> None:
    """Take INSTANCE out of service: its queue goes elsewhere, it finishes what runs, and its worker ends.

    It gets nothing new from now on. Its worker learns of it when it next renews its leases, within a third of one, and
    then does as after SIGTERM: what has not ended after its --grace-s is given back. Started again, it serves again.
    """
    told = on_cell(flags, lambda cell: _drain(cell, instance))
    if as_json:
        click.echo(json.dumps(told))
    else:
        click.echo(f"{instance} is draining: {told['moved']} queued requests go elsewhere, {told['running']} still run")


async def _drain(cell: Cell, instance: str) -> dict[str, Json]:
    epochs = {known.id: known.epoch for known in await cell.instances.all()}
    if instance not in epochs:
        raise HexgenError(f"no instance {instance} is registered; hexgen-flow instances shows those that are")
    moved = await cell.instances.evacuate(instance, "draining", epochs[instance])
    running = await cell.instances.claimed(instance)
    return {"instance": instance, "status": "draining", "moved": moved, "running": running}
