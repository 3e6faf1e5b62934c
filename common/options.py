"""Command-line options that several commands share."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])


def store_options(command: Command) -> Command:
    """--redis and --namespace; left out, HEXGEN_REDIS_URL and HEXGEN_NAMESPACE count."""
    where = "redis://, rediss://, unix:// or redis+sentinel:// URL [env HEXGEN_REDIS_URL]"
    command = click.option("--redis", "redis_url", metavar="URL", help=where)(command)
    return click.option("--namespace", metavar="NAME", help="the cell's name [env HEXGEN_NAMESPACE]")(command)


def json_option(command: Command) -> Command:
    """--json: one JSON object on stdout and nothing else."""
    return click.option("--json", "as_json", is_flag=True, help="print JSON")(command)
