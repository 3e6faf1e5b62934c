"""Command-line options that several commands share, and what kinds of values there are."""

import math
from collections.abc import Callable
from typing import Any, TypeVar

import click

from common import names
from common.model import LINE, TOOLS

Command = TypeVar("Command", bound=Callable[..., Any])


class Rule(click.ParamType[str]):
    """A text that must keep a rule; `told` is the rule in words."""

    def __init__(self, name: str, keeps: Callable[[str], object], told: str) -> None:
        self.name, self._keeps, self._told = name, keeps, told

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = str(value)
        if not self._keeps(text):
            self.fail(f"{text!r} must be {self._told}", param, ctx)
        return text


class Assignment(click.ParamType[tuple[str, float]]):
    """NAME=NUMBER."""

    name = "NAME=NUMBER"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, float]:
        name, _, number = str(value).partition("=")
        try:
            return name, float(number)
        except ValueError:
            self.fail(f"{value!r} must be a name, =, and a number", param, ctx)


class Finite(click.FloatRange):
    """A range of numbers; NaN and infinity are in none."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number: float = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{number} must be a finite number", param, ctx)
        return number


WORD = Rule("word", names.is_word, names.WORD)
"""A label."""
INSTANCE = Rule("id", lambda text: names.is_word(text) and text not in (LINE, TOOLS),
                f"{names.WORD}, and not {LINE!r} or {TOOLS!r}, which are queues of their own")  # fmt: skip
"""An instance's id."""
MODEL = Rule("name", names.is_model, names.MODEL)
"""A model's name, as stages may ask for it."""


def store_options(command: Command) -> Command:
    """--redis and --namespace; left out, HEXGEN_REDIS_URL and HEXGEN_NAMESPACE count."""
    where = "redis://, rediss://, unix:// or redis+sentinel:// URL [env HEXGEN_REDIS_URL]"
    command = click.option("--redis", "redis_url", metavar="URL", help=where)(command)
    return click.option("--namespace", metavar="NAME", help="the cell's name [env HEXGEN_NAMESPACE]")(command)


def process_options(command: Command) -> Command:
    """--lease-s and --log-level, of processes that go on until they are told to stop."""
    lease = "seconds a claim lives without renewal [env HEXGEN_LEASE_S, default 30]"
    return log_option(click.option("--lease-s", type=float, help=lease)(command))


def log_option(command: Command) -> Command:
    """--log-level; left out, HEXGEN_LOG_LEVEL counts."""
    level = "DEBUG, INFO, WARNING or ERROR; DEBUG,redis=DEBUG also shows a library's [env HEXGEN_LOG_LEVEL]"
    return click.option("--log-level", metavar="LEVEL", help=level)(command)


def json_option(command: Command) -> Command:
    """--json: one JSON object on stdout and nothing else."""
    return click.option("--json", "as_json", is_flag=True, help="print JSON")(command)
