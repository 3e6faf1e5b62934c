"""The commands that send a document and tell what came of it: `submit`, `cancel` and `amend`."""

import os.path
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import click

from common import wire
from common.backoff import patiently
from common.errors import HexgenError, InvalidDocument
from common.model import Json
from common.options import json_option, store_options
from common.store.cell import Cell
from coordinator.language.compiler import compile_definition
from coordinator.language.definition import Definition
from coordinator.language.errors import DefinitionError
from coordinator.language.library import load_file
from hexgen_flow.client import ENDS
from hexgen_flow.commands import inputs
from hexgen_flow.commands.following import absent, at_most, find, follow, listen
from hexgen_flow.commands.shared import SECONDS, SECONDS_OR_0, note, on_cell, reason, shown, telling

ACCEPT_S = 10.0
NOBODY = ": is a coordinator running?"


class Asking(NamedTuple):
    """What can be asked of a running workflow: the key of its document, the event that tells of it, and its name."""

    key: str
    event: str
    what: str


CANCEL = Asking("cancel", "cancelled", "cancellation")
AMEND = Asking("amend", "amended", "amendment")

accept_option = click.option(
    "--accept-timeout-s", "accept_s", type=SECONDS_OR_0, default=ACCEPT_S, show_default=True,
    help="wait so long for a coordinator's answer; 0: not at all",
)  # fmt: skip


@click.command()
@store_options
@json_option
@click.argument("name", metavar="WORKFLOW")
@click.option("--input", "pairs", multiple=True, metavar="NAME=VALUE",
              help="an input: text where a string is declared; else JSON where it parses, else text")  # fmt: skip
@click.option("--inputs", "file", type=click.Path(path_type=Path), help="a mapping of inputs, YAML or JSON; -: stdin")
@click.option("--slo-s", type=SECONDS, help="seconds until it should be done")
@click.option("--on-deadline", type=click.Choice(["continue", "cancel"]),
              help="what becomes of it once that time is over  [default: continue]")  # fmt: skip
@click.option("--tenant", help="whose work it is")
@click.option("--id", "identifier", help="its id; the same id and document again is the same workflow")
@accept_option
@click.option("--wait", is_flag=True, help="wait for the end and print the result")
@click.option("--timeout-s", type=SECONDS, help="with --wait: give up after so long; the workflow goes on")
def submit(name: str, pairs: tuple[str, ...], file: Path | None, as_json: bool, slo_s: float | None,
           on_deadline: str | None, tenant: str | None, identifier: str | None, accept_s: float, wait: bool,
           timeout_s: float | None, **flags: Any) -> None:  # fmt: skip
    """Submit a workflow, a definition in a file or the name of a registered one; prints its id."""
    if timeout_s is not None and not wait:
        raise InvalidDocument("--timeout-s", "is for --wait")
    definition = _definition(name)
    texts, given = inputs.read_pairs(pairs), inputs.read_file(file)
    options = {"slo_s": slo_s, "on_deadline": on_deadline, "tenant": tenant, "id": identifier}
    document: dict[str, Json] = {key: value for key, value in options.items() if value is not None}

    async def send(cell: Cell) -> None:
        types = await _types(cell, name, definition) if texts else {}
        document["workflow"] = definition.document if definition else name
        document["inputs"] = inputs.together(given, texts, types)
        wire.check_json(document)
        entry = await cell.records.submit(document)
        told.update(workflow=identifier or entry, entry=entry)
        if wait or not as_json:
            click.echo(told["workflow"], err=wait)
        if wait:
            async with at_most(timeout_s, f"workflow {told['workflow']} has not ended"):
                await _until_end(cell, told)
        elif accept_s:
            async with at_most(accept_s, f"submission {entry} is not accepted", NOBODY):
                await until_accepted(cell, told)

    with telling(as_json) as told:
        on_cell(flags, send)
    if wait and not as_json:
        click.echo(shown(told["output"]))


def _definition(name: str) -> Definition | None:
    """The definition in a file, if there is one; else this is a name. Raises InvalidDocument."""
    if os.path.isfile(name):
        return load_file(Path(name))
    if Path(name).suffix in (".yaml", ".yml", ".json") or "/" in name:
        raise InvalidDocument(name, "there is no such file")
    return None


async def _types(cell: Cell, name: str, definition: Definition | None) -> dict[str, str]:
    """The types of the inputs that are declared, as far as that is known here."""
    if definition is None:
        digest = await cell.records.digest_of(name)
        document = await cell.records.definition(digest) if digest else None
        with suppress(DefinitionError):  # another version's, whose coordinators know more
            definition = None if document is None else compile_definition(document)
    return {spec.name: spec.type for spec in definition.inputs} if definition else {}


async def until_accepted(cell: Cell, told: dict[str, Json]) -> None:
    """Until the submission is answered; adds what is told. Raises HexgenError if it is refused."""
    async for _, kind, data in follow(cell, told["entry"]):
        if kind == "accepted":
            told["deadline_at"] = data["deadline_at"]
            return
        if kind == "rejected":
            told.update({"status": kind} | {key: value for key, value in data.items() if key != "workflow"})
            raise HexgenError(f"submission {told['entry']} {reason(kind, data)}")


async def _until_end(cell: Cell, told: dict[str, Json]) -> None:
    """Until the workflow has ended; adds its result. Raises HexgenError if it did not complete."""
    await until_accepted(cell, told)
    async for _, kind, data in follow(cell, told["workflow"]):
        if kind == "waiting":
            note(f"waiting: stage {data['stage']}: {data['reason']}")
        if kind in ENDS:
            told.update(data)
            if kind != "completed":
                raise HexgenError(f"workflow {told['workflow']} {reason(kind, data)}")
            return


@click.command()
@store_options
@json_option
@click.argument("workflow")
@click.option("--reason", "why", default="cancelled by request", show_default=True)
@accept_option
def cancel(workflow: str, why: str, as_json: bool, accept_s: float, **flags: Any) -> None:
    """End a workflow: what it has queued is withdrawn, what runs is aborted."""

    async def send(cell: Cell) -> None:
        if await _ask(cell, CANCEL, workflow, {"reason": why}, accept_s, told):
            told["status"] = "cancelled"

    with telling(as_json) as told:
        on_cell(flags, send)
    if not as_json:
        click.echo(f"{told['workflow']} is {'cancelled' if accept_s else 'to be cancelled'}")


@click.command()
@store_options
@json_option
@click.argument("workflow")
@click.option("--slo-s", type=SECONDS, required=True, help="seconds from its arrival until it should be done")
@accept_option
def amend(workflow: str, slo_s: float, as_json: bool, accept_s: float, **flags: Any) -> None:
    """Give a running workflow another SLO: what it has waiting goes to the place that follows from it."""

    async def send(cell: Cell) -> None:
        if await _ask(cell, AMEND, workflow, {"slo_s": slo_s}, accept_s, told):
            told["deadline_at"], told["slo_s"] = await _holding(cell, told["workflow"])

    with telling(as_json) as told:
        on_cell(flags, send)
    if not as_json:
        held_s = told.get("slo_s", slo_s)
        by = "" if round(1000 * held_s) == round(1000 * slo_s) else ", by a later amendment"
        click.echo(f"{told['workflow']} {'has' if accept_s else 'is to have'} an SLO of {held_s:g} s{by}")


async def _holding(cell: Cell, workflow: str) -> tuple[int, float]:
    """The deadline, in ms, and the SLO, in s, that a workflow has now."""
    head = await patiently(partial(cell.records.head, workflow), "deadline")
    if head is None:
        raise absent(await find(cell, workflow), "cannot be amended")
    return head.slo.deadline_at, (head.slo.deadline_at - head.slo.arrival_at) / 1000


async def _ask(
    cell: Cell, asking: Asking, name: str, more: dict[str, Json], accept_s: float, told: dict[str, Json]
) -> Json:
    """The data of the event that tells that it was carried out; None if that is not waited for. Raises HexgenError."""
    found = await find(cell, name)
    if found.status not in ("running", "submitted"):
        raise absent(found, f"cannot be {asking.event}")
    after = await cell.records.last_event(found.workflow)
    document = {asking.key: found.workflow, **more}
    wire.check_json(document)
    entry = await cell.records.submit(document)
    told.update(workflow=found.workflow, entry=entry)
    if not accept_s:
        return None
    async with at_most(accept_s, f"{asking.what} {entry} is not carried out", NOBODY):
        return await _until_told(cell, found.workflow, after, entry, asking.event, more.get("slo_s"))


async def _until_told(cell: Cell, workflow: str, after: str, entry: str, kind: str, slo_s: float | None) -> Json:
    """The data of the event of this kind. Raises HexgenError where what is asked is refused, or comes too late.

    slo_s: of the amendment that is meant: another one's may be told before.
    """
    async for event in listen(cell, {workflow: after, entry: "0"}):
        if event is not None and event[2] == kind and (slo_s is None or await _gives(cell, workflow, event[3], slo_s)):
            return event[3]
        if event is not None and event[2] in ENDS:
            raise absent(await find(cell, workflow), f"cannot be {kind}")
    raise AssertionError("it listens without end")


async def _gives(cell: Cell, workflow: str, amended: Json, slo_s: float) -> bool:
    """Whether that event tells of this SLO."""
    deadline_at, held_s = await _holding(cell, workflow)
    return bool(amended["deadline_at"] - round(1000 * slo_s) == deadline_at - round(1000 * held_s))
