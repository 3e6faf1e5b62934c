"""Commands of the workers' room: `worker`, `tools` and `model`."""

import asyncio
import json
from pathlib import Path
from typing import Any

import click

from common import logs, settings
from common.errors import HexgenError, InvalidDocument
from common.options import INSTANCE, MODEL, WORD, Finite, json_option, process_options, store_options
from common.profiles import PROFILES
from workers import service
from workers.breaker import STALL_S
from workers.engines.protocol import Engine, EngineError
from workers.tools import rq_worker

ENGINES = ("simulated", "vllm", "noop")


@click.command("worker")
@store_options
@click.option(
    "--instance",
    type=INSTANCE,
    required=True,
    help="this instance's id, unique in the cell; it keeps its queue over restarts",
)
@click.option("--engine", type=click.Choice(ENGINES), default="simulated", show_default=True)
@click.option("--profile", default="a100", show_default=True, help=f"simulated: {', '.join(sorted(PROFILES))}")
@click.option("--time-scale", type=Finite(0, min_open=True), default=1.0, show_default=True,
              help="simulated: how many times faster than the real engine")  # fmt: skip
@click.option("--prefix-cache/--no-prefix-cache", default=True, show_default=True,
              help="simulated: whether prompts that begin alike are computed once")  # fmt: skip
@click.option(
    "--responder", default="echo", show_default=True, help="simulated: who writes the answers, name or name:options"
)
@click.option("--model", "models", type=MODEL, multiple=True, help="a name this instance answers to (repeatable)")
@click.option("--label", "labels", type=WORD, multiple=True, help="a label that stages may require (repeatable)")
@click.option(
    "--grace-s",
    type=Finite(0),
    default=30.0,
    show_default=True,
    help="time to finish when told to stop; told again, it ends",
)
@click.option("--stall-s", type=Finite(0, min_open=True), default=STALL_S, show_default=True,
              help="an engine with work and no progress for so long gets none until it answers a probe")  # fmt: skip
@process_options
@click.argument("engine_args", nargs=-1, type=click.UNPROCESSED)
def worker(
    instance: str, engine: str, profile: str, time_scale: float, prefix_cache: bool, responder: str,
    models: tuple[str, ...], labels: tuple[str, ...], grace_s: float, stall_s: float, engine_args: tuple[str, ...],
    **flags: Any,
) -> None:  # fmt: skip
    """Run one instance: an engine and its queue. What follows -- goes to vLLM's engine arguments."""
    values = settings.load(**flags)
    logs.configure(values.log_level)
    if engine_args and engine != "vllm":
        raise InvalidDocument(engine_args[0], f"the {engine} engine takes no arguments after --")
    options = service.InstanceOptions(instance, labels, grace_s, stall_s)
    try:
        chosen = _engine(engine, profile, time_scale, prefix_cache, responder, models, engine_args)
        asyncio.run(service.run(values, chosen, options))
    except EngineError as error:
        raise HexgenError(f"engine {engine}: {error}") from None


def _engine(
    engine: str, profile: str, time_scale: float, prefix_cache: bool, responder: str, models: tuple[str, ...],
    engine_args: tuple[str, ...],
) -> Engine:  # fmt: skip
    """The engine asked for. Only the one chosen is imported: vLLM takes long."""
    if engine == "vllm":
        from workers.engines.vllm_engine import VllmEngine

        return VllmEngine(models, list(engine_args))
    if engine == "noop":
        from workers.engines.noop import NoopEngine

        return NoopEngine(models or ("default",))
    if profile not in PROFILES:
        raise InvalidDocument("--profile", f"{profile!r} is not one of {', '.join(sorted(PROFILES))}")
    from workers.engines.responders import load_responder
    from workers.engines.simulated import SimulatedEngine

    return SimulatedEngine(
        profile=PROFILES[profile],
        responder=load_responder(responder),
        models=models or ("default",),
        time_scale=time_scale,
        prefix_cache=prefix_cache,
    )


@click.command("tools")
@store_options
@click.option("--database", "databases", multiple=True, metavar="NAME=URL",
              help="a database that tools may use, by name (SQLAlchemy URL) [env HEXGEN_DATABASES, JSON]")  # fmt: skip
@process_options
def tools(databases: tuple[str, ...], **flags: Any) -> None:
    """Run tool stages (RQ worker)."""
    values = settings.load(**flags)
    logs.configure(values.log_level)
    for given in databases:
        name, found, url = given.partition("=")
        if not found or not name or "/" in name or not url:  # not repeated here: it may be a URL with a password
            raise InvalidDocument("--database", "must be NAME=URL")
        values.databases[name] = url
    rq_worker.serve(values)


@click.group("model")
def model() -> None:
    """Get small models for trying things out."""


@model.command()
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path))
@json_option
def smollm2(directory: Path, as_json: bool) -> None:
    """Make SmolLM2-135M-Instruct in DIRECTORY, as vLLM wants it (about 270 MB)."""
    from workers.models import make_smollm2

    make_smollm2(directory)
    click.echo(json.dumps({"directory": str(directory)}) if as_json else f"the model is in {directory}")
