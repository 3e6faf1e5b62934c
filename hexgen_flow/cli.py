"""The command line: composes the rooms' commands with those for users of a cell. Decides nothing."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Collection
from importlib.metadata import version
from pathlib import Path
from typing import Any

import click

from common import settings
from common.errors import HexgenError, InvalidDocument
from common.model import Json
from common.options import json_option, store_options
from common.policy.registry import names
from common.store.cell import Cell
from coordinator.cli import coordinator, workflow
from coordinator.language.library import load_file
from hexgen_flow.client import ENDS
from hexgen_flow.server import server
from workers.cli import model, tools, worker

MODEL = Path(".cache/models/smollm2-135m")
WORKFLOWS = Path(__file__).parent / "workflows"


class Root(click.Group):
    """Prints our errors as one sentence and leaves with code 1; never a traceback."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except HexgenError as error:
            raise click.ClickException(str(error)) from None


@click.group(cls=Root, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(version("hexgen-flow"), prog_name="hexgen-flow")
@click.pass_context
def main(context: click.Context) -> None:
    """Schedule multi-stage LLM workflows with deadlines on unequal GPUs."""
    context.obj = {"workflows": WORKFLOWS}


def _on_cell(flags: dict[str, Any], work: Callable[[Cell], Awaitable[Any]]) -> Any:
    values = settings.load(**flags)

    async def run() -> Any:
        cell = Cell.open(values.redis_url, values.namespace)
        try:
            return await work(cell)
        finally:
            await cell.close()

    return asyncio.run(run())


@main.command()
@store_options
@json_option
@click.argument("name", metavar="WORKFLOW")
@click.option(
    "--input", "pairs", multiple=True, metavar="NAME=VALUE", help="an input; VALUE is text, or JSON where it parses"
)
@click.option("--slo-s", type=float, help="seconds until it should be done")
@click.option("--tenant", help="whose work it is")
@click.option("--id", "identifier", help="its id; the same id and document again is the same workflow")
@click.option("--wait", is_flag=True, help="wait for the end and print the result")
def submit(name: str, pairs: tuple[str, ...], as_json: bool, wait: bool, slo_s: float | None, tenant: str | None,
           identifier: str | None, **flags: Any) -> None:  # fmt: skip
    """Submit a workflow: the name of a registered one, or a definition FILE."""
    document: dict[str, Json] = {"workflow": _definition(name), "inputs": dict(_pair(pair) for pair in pairs)}
    given = {"slo_s": slo_s, "tenant": tenant, "id": identifier}
    document |= {key: value for key, value in given.items() if value is not None}

    async def send(cell: Cell) -> tuple[str, str | None, Json]:
        entry = await cell.records.submit(document)
        workflow = identifier or entry
        return (workflow, *(await _end(cell, entry, workflow) if wait else (None, None)))

    workflow, kind, data = _on_cell(flags, send)
    if not wait:
        click.echo(json.dumps({"workflow": workflow}) if as_json else workflow)
        return
    _print_end(workflow, kind, data, as_json)


def _definition(name: str) -> Json:
    path = Path(name)
    if path.suffix not in (".yaml", ".yml", ".json"):
        return name
    if not path.is_file():
        raise InvalidDocument(name, "there is no such file")
    return load_file(path).document


def _pair(pair: str) -> tuple[str, Json]:
    name, found, text = pair.partition("=")
    if not found:
        raise InvalidDocument("--input", f"{pair!r} is not NAME=VALUE")
    try:
        return name, json.loads(text)
    except ValueError:
        return name, text


async def _end(cell: Cell, entry: str, workflow: str) -> tuple[str, Json]:
    """How a submission ended. It is answered under its entry's id; a workflow with an id of its own goes on there."""
    answers = ENDS if entry == workflow else ("accepted", "rejected")
    kind, data = await _first(cell, entry, answers)
    return await _first(cell, workflow, ENDS) if kind == "accepted" else (kind, data)


async def _first(cell: Cell, workflow: str, kinds: Collection[str]) -> tuple[str, Json]:
    async for _, kind, data in cell.records.events(workflow):
        if kind in kinds:
            return kind, data
    raise AssertionError("events go on until there is an end")


def _print_end(workflow: str, kind: str | None, data: Any, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({"workflow": workflow, "status": kind, **data}))
    elif kind == "completed":
        output = data["output"]
        click.echo(output if isinstance(output, str) else json.dumps(output, indent=2, ensure_ascii=False))
    if kind != "completed":
        where = data.get("stage") or data.get("field")
        raise HexgenError(f"workflow {workflow} {kind}: {f'{where}: ' if where else ''}{data.get('error')}")


@main.command()
@store_options
@json_option
@click.argument("workflow", metavar="[WORKFLOW]", required=False)
def status(workflow: str | None, as_json: bool, **flags: Any) -> None:
    """How a workflow stands, stage by stage; without WORKFLOW, how the cell stands."""
    shown = _on_cell(flags, lambda cell: _status(cell, workflow))
    if as_json:
        click.echo(json.dumps(shown))
        return
    for name, value in shown.items():
        if isinstance(value, dict):
            click.echo(f"{name}:")
            for inner, text in value.items():
                click.echo(f"  {inner}: {text}")
        else:
            click.echo(f"{name}: {value}")


async def _status(cell: Cell, workflow: str | None) -> dict[str, Json]:
    if workflow is None:
        counts = await cell.records.counts()
        return {"namespace": cell.keys.namespace, **counts}
    found = await cell.records.workflow(workflow)
    if found is None:
        raise InvalidDocument("workflow", f"{workflow!r} is not known here (any more)")
    state, head, nodes = found
    stages = {
        key: " ".join(
            part for part in (node.status, node.phase if node.status == "running" else "", node.error) if part
        )
        for key, node in sorted(nodes.items())
    }
    times = {"arrival_at": head.slo.arrival_at, "deadline_at": head.slo.deadline_at}
    return {"workflow": workflow, "name": head.name, "tenant": head.tenant, "status": state, **times, "stages": stages}


@main.command()
@store_options
@json_option
@click.argument("workflow")
def result(workflow: str, as_json: bool, **flags: Any) -> None:
    """The result of a workflow that has ended."""
    found = _on_cell(flags, lambda cell: cell.records.result(workflow))
    if found is None:
        raise InvalidDocument("workflow", f"{workflow!r} has no result (yet, or any more)")
    _print_end(workflow, found["status"], {key: value for key, value in found.items() if key != "status"}, as_json)


@main.command()
@store_options
@json_option
@click.argument("workflow")
def events(workflow: str, as_json: bool, **flags: Any) -> None:
    """The events of a workflow, until it ends."""

    async def follow(cell: Cell) -> None:
        async for entry, kind, data in cell.records.events(workflow):
            if kind:
                shown = json.dumps(data, ensure_ascii=False)
                click.echo(
                    json.dumps({"id": entry, "type": kind, "data": data}) if as_json else f"{entry} {kind} {shown}"
                )
            if kind in ENDS:
                return

    _on_cell(flags, follow)


@main.command()
@store_options
@json_option
@click.argument("workflow")
@click.option("--reason", default="cancelled by request", show_default=True)
def cancel(workflow: str, reason: str, as_json: bool, **flags: Any) -> None:
    """End a running workflow; what it has queued is withdrawn, what runs is aborted."""
    if not _on_cell(flags, lambda cell: cell.inbox.cancel(workflow, reason)):
        raise InvalidDocument("workflow", f"no workflow {workflow!r} is running")
    click.echo(json.dumps({"workflow": workflow}) if as_json else f"{workflow} is being cancelled")


@main.command()
@store_options
@json_option
def instances(as_json: bool, **flags: Any) -> None:
    """The instances and the tool workers: what they are, serve, hold and have queued. Tool workers share one queue."""
    found = _on_cell(flags, _instances)
    if as_json:
        click.echo(json.dumps(found))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table("instance", "status", "profile", "serves", "labels", "queued", "backlog s", "running")
    for one in found:
        running = str(one["load"]["running"]) if one["load"] else "-"
        serves = (", ".join(one["models"]), ", ".join(one["labels"]))
        held = (str(one["queued"]), f"{one['backlog_s']:.1f}", running)
        table.add_row(one["instance"], one["status"], one["profile"], *serves, *held)
    Console().print(table)


async def _instances(cell: Cell) -> list[dict[str, Json]]:
    return [*await cell.instances.describe(), *await cell.offers.describe()]


@main.command("demo")
@json_option
@click.option("--engine", type=click.Choice(["simulated", "vllm"]), default="simulated", show_default=True)
@click.option("--workflows", type=click.IntRange(1, 10_000), default=None, help="how many [default 40, vllm 4]")
@click.option(
    "--rate", type=click.FloatRange(0, min_open=True), default=None, help="arrivals per second [default 1, vllm 0.1]"
)
@click.option("--time-scale", type=click.FloatRange(0, min_open=True), default=20.0, show_default=True,
              help="simulated: how many times faster than the real engines")  # fmt: skip
@click.option("--slo-s", type=float, default=None, help="each workflow's SLO in seconds [default 15, vllm 600]")
@click.option("--policy", type=click.Choice(names()), default="hexgen", show_default=True)
@click.option(
    "--error-rate", type=click.FloatRange(0, 1), default=0.3, show_default=True, help="simulated: wrong candidates"
)
@click.option("--seed", type=int, default=1, show_default=True)
@click.option("--data", type=click.Path(exists=True, file_okay=False, path_type=Path), help="your BIRD folder")
@click.option("--model-dir", type=click.Path(file_okay=False, path_type=Path), default=MODEL, show_default=True,
              help="vllm: the model's folder")  # fmt: skip
@click.option("--max-tokens", type=click.IntRange(1), help="cap every answer at so many tokens [vllm 64]")
@click.option(
    "--keep", type=click.Path(file_okay=False, path_type=Path), help="keep databases, logs and state in this folder"
)
def demo(as_json: bool, keep: Path | None, **options: Any) -> None:
    """Run text2sql workflows over unequal instances on this machine, every part a process of its own."""
    from hexgen_flow.demo_screen import show

    show(options, keep, as_json)


for command in (coordinator, worker, tools, workflow, model, server):
    main.add_command(command)
