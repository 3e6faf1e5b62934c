"""Commands of the coordinator's room: `coordinator`, and `workflow` for definitions."""

import asyncio
import json
from pathlib import Path
from typing import Any

import click

from common import logs, settings
from common.errors import HexgenError
from common.options import Assignment, Finite, json_option, process_options, store_options
from common.policy.registry import DEFAULT, names
from common.store.cell import Cell
from coordinator import service
from coordinator.language.compiler import compile_definition
from coordinator.language.definition import Definition, GroupBody, LlmBody, StageSpec
from coordinator.language.errors import clipped
from coordinator.language.library import load_file, load_library

EXPRESSION_CHARACTERS = 60


@click.command("coordinator")
@store_options
@click.option("--policy", type=click.Choice(names()), help=f"scheduling policy [default {DEFAULT}]")
@click.option("--alpha", type=Finite(0, 1), help="hexgen's balance of execution and queueing time [default 0.5]")
@click.option("--parameter", "parameters", type=Assignment(), multiple=True,
              help="another number of the policy, such as harm=2.5; may be given more than once")  # fmt: skip
@click.option("--workflows", "folder", type=click.Path(exists=True, file_okay=False, path_type=Path),
              help="register every definition in this folder at start")  # fmt: skip
@process_options
@click.pass_context
def coordinator(
    context: click.Context, /, folder: Path | None, parameters: tuple[tuple[str, float], ...], **flags: Any
) -> None:
    """Run a coordinator: it accepts submissions and dispatches requests. Several may run at once."""
    values = settings.load(parameters=dict(parameters) or None, **flags)
    logs.configure(values.log_level)
    library = load_library(context.obj["workflows"], *([folder] if folder else []))
    asyncio.run(service.run(values, list(library.values())))


@click.group("workflow")
def workflow() -> None:
    """Check, register and look at workflow definitions."""


@workflow.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@json_option
def check(file: Path, as_json: bool) -> None:
    """Compile FILE and name its first fault, or say what it holds."""
    definition = load_file(file)
    shown = {"name": definition.name, "digest": definition.digest, "stages": sorted(definition.stages)}
    count = len(definition.stages)
    told = f"{definition.name}: {count} {'stage' if count == 1 else 'stages'}, no fault"
    click.echo(json.dumps(shown) if as_json else told)


@workflow.command()
@store_options
@json_option
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
def register(file: Path, as_json: bool, **flags: Any) -> None:
    """Make FILE the current version of its name; running workflows keep the version they began with."""
    definition = load_file(file)
    asyncio.run(_register(settings.load(**flags), definition))
    shown = {"name": definition.name, "digest": definition.digest}
    click.echo(json.dumps(shown) if as_json else f"{definition.name} is now version {definition.digest[:12]}")


@workflow.command("list")
@store_options
@json_option
def list_(as_json: bool, **flags: Any) -> None:
    """List registered names and their current versions."""
    found = asyncio.run(_registered(settings.load(**flags)))
    if as_json:
        click.echo(json.dumps(found))
    for name, digest in [] if as_json else found.items():
        click.echo(f"{name}  {digest[:12]}")


@workflow.command()
@store_options
@json_option
@click.argument("name")
def show(name: str, as_json: bool, **flags: Any) -> None:
    """Show the current version of NAME: its inputs and stages, one a line; with --json all of it."""
    document = asyncio.run(_document(settings.load(**flags), name))
    if as_json:
        click.echo(json.dumps(document))
        return
    definition = compile_definition(document)
    click.echo(f"{definition.name}  {definition.digest[:12]}")
    if definition.inputs:
        click.echo("inputs:")
    for given in definition.inputs:
        default = json.dumps(given.default, ensure_ascii=False)
        click.echo(f"  {given.name}: {given.type}, " + ("required" if given.required else f"default {_line(default)}"))
    click.echo("stages:")
    for spec in definition.root.stages:
        _show_stage(spec, 1)


def _show_stage(spec: StageSpec, depth: int) -> None:
    body = spec.body
    kind = "group" if isinstance(body, GroupBody) else "llm" if isinstance(body, LlmBody) else body.tool
    marks = [f"after {', '.join(spec.needs)}"] if spec.needs else []
    marks += [f"when {_line(spec.when.source)}"] if spec.when else []
    marks += [f"for each of {_line(spec.for_each.source)}"] if spec.for_each else []
    marks += [f"while {_line(spec.repeat.condition.source)} (at most {spec.repeat.most})"] if spec.repeat else []
    click.echo(", ".join(["  " * depth + f"{spec.name}: {kind}", *marks]))
    for inner in body.stages if isinstance(body, GroupBody) else ():
        _show_stage(inner, depth + 1)


def _line(source: str) -> str:
    """As much of an expression or a value as fits on a line beside others."""
    return clipped(" ".join(source.split()), EXPRESSION_CHARACTERS)


async def _register(values: settings.Settings, definition: Definition) -> None:
    async with Cell.opened(values.redis_url, values.namespace) as cell:
        await cell.records.register(definition.name, definition.digest, definition.document, values.keep_definition_ms)


async def _registered(values: settings.Settings) -> dict[str, str]:
    async with Cell.opened(values.redis_url, values.namespace) as cell:
        return await cell.records.registered()


async def _document(values: settings.Settings, name: str) -> dict[str, Any]:
    async with Cell.opened(values.redis_url, values.namespace) as cell:
        digest = await cell.records.digest_of(name)
        document = await cell.records.definition(digest) if digest else None
    if document is None:
        raise HexgenError(f"no workflow is registered as {name!r}")
    return dict(document)
