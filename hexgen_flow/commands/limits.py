"""The commands `limits`: what a cell takes in before it refuses submissions is shown, set and unset."""

import json
from collections.abc import Sequence
from typing import Any

import click

from common.options import Rule, json_option, store_options
from common.store.limits import Standing
from common.submission import IDENTIFIER, is_identifier
from hexgen_flow.commands.shared import on_cell

tenant_option = click.option(
    "--tenant", type=Rule("name", is_identifier, IDENTIFIER), help="for this tenant alone: workflows or tokens_per_s"
)


@click.group(invoke_without_command=True)
@store_options
@json_option
@click.pass_context
def limits(context: click.Context, /, as_json: bool, **flags: Any) -> None:
    """Show the limits of a cell and what is taken of each: beyond it submissions are refused, and told when to retry.

    \b
    workflows              running in the cell
    queued                 requests waiting in its queues
    submissions            without an answer
    tenant_workflows       running, of each tenant that has no limit of its own
    tenant_tokens_per_s    of each such tenant, one of an answer being two; a minute's at once
    """
    if context.invoked_subcommand is not None:
        context.default_map = {context.invoked_subcommand: {**flags, "as_json": as_json}}
        return
    found = on_cell(flags, lambda cell: cell.limits.standing())
    if as_json:
        click.echo(json.dumps([one._asdict() for one in found]))
    else:
        _print_table(found)


@limits.command("set")
@store_options
@json_option
@tenant_option
@click.argument("name")
@click.argument("value", type=int)
def set_(name: str, value: int, tenant: str | None, as_json: bool, **flags: Any) -> None:
    """Set the limit NAME to VALUE, for all coordinators, from the next submission on."""
    on_cell(flags, lambda cell: cell.limits.set(name, value, tenant))
    told = {"limit": name, "tenant": tenant, "most": value}
    click.echo(json.dumps(told) if as_json else f"{_named(name, tenant)} is {value}")


@limits.command()
@store_options
@json_option
@tenant_option
@click.argument("name")
def unset(name: str, tenant: str | None, as_json: bool, **flags: Any) -> None:
    """Take the limit NAME back: what holds where none is set holds again."""
    was_set = on_cell(flags, lambda cell: cell.limits.unset(name, tenant))
    told = {"limit": name, "tenant": tenant, "was_set": was_set}
    found = "not set any more" if was_set else "not set"
    click.echo(json.dumps(told) if as_json else f"{_named(name, tenant)} is {found}")


def _named(name: str, tenant: str | None) -> str:
    return name if tenant is None else f"{name} of tenant {tenant}"


def _print_table(found: Sequence[Standing]) -> None:
    """Within 80 columns: no lines drawn, long names folded."""
    from rich.console import Console  # takes its time, which other commands need not
    from rich.table import Table

    table = Table(box=None, padding=(0, 1, 0, 0))
    table.add_column("limit", no_wrap=True)
    table.add_column("tenant", overflow="fold")
    for heading in ("at most", "set", "now"):
        table.add_column(heading)
    for one in found:
        most, taken = ("-" if number is None else str(number) for number in (one.most, one.taken))
        table.add_row(one.limit, one.tenant or "-", most, "yes" if one.is_set else "default", taken)
    Console().print(table)
