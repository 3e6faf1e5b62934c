"""What `simulate` and `plan` have in common: the options of a load, and a progress bar. Simulates nothing."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from common.options import Finite

Command = TypeVar("Command", bound=Callable[..., Any])
ABOVE_0 = Finite(0, min_open=True)
RATE = Finite(1e-6)
"""Workflows per second. Below, times grow so large that latencies are lost in their rounding."""
ARRIVALS = ("poisson", "gamma", "step", "file")


def load_options(command: Command) -> Command:
    """--trace, --prefix-cache, --workflows, --seeds, --arrivals."""
    for option in (
        click.option("--arrivals", type=click.Choice(ARRIVALS), default="poisson", show_default=True,
                     help="gamma: bursts; step: half way three times the rate; file: as recorded, at --rate"),
        click.option("--seeds", type=click.IntRange(1, 1000), default=5, show_default=True,
                     help="the same for all that is compared"),
        click.option("--workflows", type=click.IntRange(1, 1_000_000), default=500, show_default=True,
                     help="in each run"),
        click.option("--prefix-cache/--no-prefix-cache", default=False, show_default=True,
                     help="whether prompts share what the trace says, and engines keep it"),
        click.option("--trace", required=True, metavar="FILE", help="recorded workflows, or generated:NAME"),
    ):  # fmt: skip
        command = option(command)
    return command


@contextmanager
def progress(what: str) -> Iterator[Callable[[int, int], None]]:
    """A bar on stderr if that is a terminal; to be told (done, total)."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
