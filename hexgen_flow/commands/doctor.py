"""The command `doctor`: looks at the server and the cell and says in plain words what is wrong and what to do."""

import asyncio
import json
from collections import defaultdict
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Any, TypeVar

import click

from common import settings
from common.errors import HexgenError, StoreRefused, StoreUnavailable
from common.options import json_option, store_options
from common.settings import Settings
from common.store.cell import Cell
from coordinator.language.compiler import compile_definition
from coordinator.language.definition import ToolBody
from coordinator.language.errors import DefinitionError
from hexgen_flow.commands import checks
from hexgen_flow.commands.checks import Finding

T = TypeVar("T")


@click.command()
@store_options
@json_option
@click.pass_context
def doctor(context: click.Context, /, as_json: bool, **flags: Any) -> None:
    """Check the server and the cell: each finding is ok, a warning or a fault; leaves with 1 if there is a fault.

    Run it as the coordinators are, on their host, with their URL, user and settings.
    """
    values = settings.load(**flags)
    findings = asyncio.run(examine(values))
    counts = {state: sum(one.state == state for one in findings) for state in ("fault", "warning")}
    if as_json:
        told = {"faults": counts["fault"], "warnings": counts["warning"], "checks": [asdict(one) for one in findings]}
        click.echo(json.dumps({"namespace": values.namespace, **told}))
    else:
        _print(findings)
    context.exit(1 if counts["fault"] else 0)


def _print(findings: Sequence[Finding]) -> None:
    for one in findings:
        click.echo(f"{one.state:<9}{one.check:<14}{one.found}")
        if one.advice:
            click.echo(f"{'':<23}-> {one.advice}")


async def examine(values: Settings) -> list[Finding]:
    """All findings; where the server does not answer there is one."""
    async with Cell.opened(values.redis_url, values.namespace) as cell:
        try:
            first = checks.answer(await cell.checkup.round_trip_ms())
        except (StoreUnavailable, StoreRefused) as error:
            return [Finding("server", "fault", str(error), "start it, or correct --redis / HEXGEN_REDIS_URL")]
        return [first, *await _server(cell), *await _cell(cell, values)]


async def _server(cell: Cell) -> list[Finding]:
    checkup = cell.checkup
    info = await _permitted(checkup.info()) or {}
    fsync = await _permitted(checkup.setting("appendfsync"))
    return [
        checks.version(info),
        checks.memory(info),
        checks.persistence(info, fsync),
        checks.cluster(info),
        await _found("clock", _clock(cell)),
        await _found("rights", _rights(cell)),
    ]


async def _permitted(asked: Awaitable[T]) -> T | None:
    """None where the user may not ask that."""
    with suppress(StoreRefused):
        return await asked
    return None


async def _cell(cell: Cell, values: Settings) -> list[Finding]:
    looks = {
        "schema": _schema(cell),
        "coordinators": _coordinators(cell),
        "instances": _instances(cell, values),
        "tools": _tools(cell),
        "leases": _leases(cell, values),
        "streams": _streams(cell, values),
        "dead letters": _dead_letters(cell),
    }
    return [await _found(check, look) for check, look in looks.items()]


async def _found(check: str, look: Awaitable[Finding]) -> Finding:
    """What it finds; where it cannot even look, that is the fault."""
    try:
        return await look
    except HexgenError as error:
        return Finding(check, "fault", str(error), "without that, this cannot be checked, nor can coordinators work")
    except ValueError as error:
        return Finding(check, "fault", f"what Redis holds of it is not ours: {error}", "find out who writes there")


async def _clock(cell: Cell) -> Finding:
    return checks.clocks(await cell.checkup.ahead_ms())


async def _rights(cell: Cell) -> Finding:
    name = await _permitted(cell.checkup.user())
    return checks.rights("this user" if name is None else f"user {name}", await cell.checkup.refused())


async def _schema(cell: Cell) -> Finding:
    found = await cell.schema.read()
    if found is None:
        return Finding("schema", "warning", "no coordinator has ever begun here", checks.COORDINATOR)
    try:
        await cell.schema.check()
    except StoreRefused as error:
        said, _, advice = str(error).partition(": ")
        return Finding("schema", "fault", said, advice)
    return Finding("schema", "ok", f"version {found.decode()}")


async def _coordinators(cell: Cell) -> Finding:
    return checks.coordinators(await cell.coordinators.all())


async def _instances(cell: Cell, values: Settings) -> Finding:
    return checks.instances(await cell.instances.describe(), values.lease_s)


async def _tools(cell: Cell) -> Finding:
    users: defaultdict[str, list[str]] = defaultdict(list)
    for name, digest in (await cell.records.registered()).items():
        with suppress(DefinitionError):  # another version's, whose coordinators know more
            stages = compile_definition(await cell.records.definition(digest)).stages.values()
            for tool in sorted({spec.body.tool for spec in stages if isinstance(spec.body, ToolBody)}):
                users[tool].append(name)
    return checks.tools(users, await cell.offers.all())


async def _leases(cell: Cell, values: Settings) -> Finding:
    """A restarted server gives each lease as long again."""
    return checks.leases(await cell.checkup.leases_over(2 * values.lease_ms))


async def _streams(cell: Cell, values: Settings) -> Finding:
    return checks.streams(await cell.checkup.streams(), values.lease_ms)


async def _dead_letters(cell: Cell) -> Finding:
    return checks.dead_letters((await cell.records.counts())["dead"])
