"""The command line: composes the rooms' commands with those for users of a cell. Decides nothing."""

from importlib.metadata import version
from pathlib import Path
from typing import Any

import click

from common.options import json_option
from common.policy.registry import DEFAULT, names
from coordinator.cli import coordinator, workflow
from coordinator.commands.plan import plan
from coordinator.commands.simulate import simulate
from coordinator.commands.traces import trace
from coordinator.commands.tune import tune, tuner
from hexgen_flow.commands.dead import dead
from hexgen_flow.commands.doctor import doctor
from hexgen_flow.commands.drain import drain
from hexgen_flow.commands.instances import instances
from hexgen_flow.commands.limits import limits
from hexgen_flow.commands.look import events, result, status
from hexgen_flow.commands.purge import purge
from hexgen_flow.commands.shared import Root
from hexgen_flow.commands.submit import amend, cancel, submit
from hexgen_flow.server import server
from workers.cli import model, tools, worker

MODEL = Path(".cache/models/smollm2-135m")
WORKFLOWS = Path(__file__).parent / "workflows"


@click.group(cls=Root, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(version("hexgen-flow"), prog_name="hexgen-flow")
@click.pass_context
def main(context: click.Context) -> None:
    """Schedule multi-stage LLM workflows with deadlines on unequal GPUs."""
    context.obj = {"workflows": WORKFLOWS}


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
@click.option("--policy", type=click.Choice(names()), default=DEFAULT, show_default=True)
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


for command in (coordinator, worker, tools, workflow, model, server, simulate, tuner, tune, plan, trace,
                submit, status, result, events, amend, cancel, instances, dead, doctor, drain, limits,
                purge):  # fmt: skip
    main.add_command(command)
