"""The commands `dead`: what was given up for good is looked at, submitted again, or removed."""

import json
import re
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import click

from common.errors import HexgenError
from common.options import Rule, json_option, store_options
from common.store.cell import Cell
from common.store.deadletters import Letter, requeued
from hexgen_flow.commands.following import at_most
from hexgen_flow.commands.shared import on_cell, telling
from hexgen_flow.commands.submit import NOBODY, accept_option, until_accepted

LETTER = Rule(
    "id", re.compile(r"[0-9]{1,19}-[0-9]{1,19}").fullmatch, "a letter's id, as `hexgen-flow dead list` shows it"
)


@click.group()
def dead() -> None:
    """Dead letters: what was given up for good, such as a request that takes its workers with it.

    It is a request, a workflow or a submission; nothing more happens to it by itself. About the newest 10,000 are kept.
    """


@dead.command("list")
@store_options
@json_option
def list_(as_json: bool, **flags: Any) -> None:
    """List the dead letters, oldest first."""
    found = on_cell(flags, lambda cell: cell.dead.all())
    if as_json:
        click.echo(json.dumps([asdict(letter) for letter in found]))
    elif found:
        _print_table(found)
    else:
        click.echo("there are no dead letters")


@dead.command()
@store_options
@json_option
@click.argument("letter", metavar="ID", type=LETTER)
def show(letter: str, as_json: bool, **flags: Any) -> None:
    """Show the dead letter ID: what was given up, why, and who lost it."""
    found = asdict(on_cell(flags, lambda cell: _letter(cell, letter)))
    if as_json:
        click.echo(json.dumps(found))
        return
    for name, value in found.items():
        if name != "at":
            click.echo(f"{name}: {(', '.join(value) if name == 'owners' else value) or '-'}")


@dead.command()
@store_options
@json_option
@click.argument("letter", metavar="ID", type=LETTER)
@accept_option
def requeue(letter: str, as_json: bool, accept_s: float, **flags: Any) -> None:
    """Submit the workflow of the dead letter ID again, with its time anew, and remove the letter; prints the new id.

    It begins from its start, with the definition, the inputs and the tenant it had. One that went on without what
    was given up, an optional stage or a copy that its join can spare, is refused; so is one that is too large for a
    document together with its definition, or for which there is no room. Then the letter stays: it goes when the
    workflow is accepted, and whoever asks again before makes no second one.
    """

    async def send(cell: Cell) -> None:
        entry = await _requeue(cell, letter)
        told.update(letter=letter, workflow=requeued(letter), entry=entry)
        if not as_json:
            click.echo(told["workflow"])
        if accept_s:
            async with at_most(accept_s, f"submission {entry} is not accepted", NOBODY):
                await until_accepted(cell, told)

    with telling(as_json) as told:
        on_cell(flags, send)


@dead.command()
@store_options
@json_option
@click.argument("letter", metavar="ID", type=LETTER)
def drop(letter: str, as_json: bool, **flags: Any) -> None:
    """Remove the dead letter ID; its workflow stays as it is."""
    if not on_cell(flags, lambda cell: cell.dead.drop(letter)):
        raise _gone(letter)
    click.echo(json.dumps({"letter": letter}) if as_json else f"dead letter {letter} is removed")


async def _letter(cell: Cell, letter: str) -> Letter:
    for found in await cell.dead.all(letter, letter):
        return found
    raise _gone(letter)


async def _requeue(cell: Cell, letter: str) -> str:
    found = await _letter(cell, letter)
    known = await cell.dead.workflow(found)
    if known is None:
        raise HexgenError(f"what was submitted as {found.workflow} is not kept (any more): submit it again yourself")
    status, document = known
    if status in ("running", "completed"):
        raise HexgenError(f"workflow {found.workflow} went on without it and is {status}: there is nothing to repeat")
    entry = await cell.dead.requeue(letter, document)
    if entry is None:
        raise _gone(letter)
    return entry


def _gone(letter: str) -> HexgenError:
    return HexgenError(f"there is no dead letter {letter} (any more): `hexgen-flow dead list` shows those there are")


def _print_table(found: Sequence[Letter]) -> None:
    """Within 80 columns: no lines drawn, long words folded."""
    from rich.console import Console  # takes its time, which other commands need not
    from rich.table import Table

    table = Table(box=None, padding=(0, 1, 0, 0))
    table.add_column("letter", no_wrap=True)
    for heading in ("workflow", "name", "tenant", "stage", "reason"):
        table.add_column(heading, overflow="fold")
    for one in found:
        table.add_row(*(text or "-" for text in (one.id, one.workflow, one.name, one.tenant, one.stage, one.reason)))
    Console().print(table)
