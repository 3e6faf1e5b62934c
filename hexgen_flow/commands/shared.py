"""What the commands share: a cell for as long as one runs, codes to leave with, durations as options."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click

from common import settings
from common.errors import HexgenError, InvalidDocument, StoreRefused, StoreUnavailable
from common.model import Json
from common.options import Finite
from common.store.cell import Cell
from common.submission import LONGEST_SLO_S

SECONDS = Finite(0, LONGEST_SLO_S, min_open=True)
SECONDS_OR_0 = Finite(0, LONGEST_SLO_S)
"""Durations as options, up to the longest there is."""


class NoAnswer(HexgenError):
    """There is no answer yet: no coordinator has given one, or the workflow has not ended. Later there may be."""


def exit_code(error: HexgenError) -> int:
    """2 for what was given, 3 for no answer, else 1: a workflow that did not complete, or what is not there."""
    if isinstance(error, InvalidDocument):
        return 2
    return 3 if isinstance(error, NoAnswer | StoreUnavailable | StoreRefused) else 1


class Root(click.Group):
    """Prints our errors as one sentence and leaves with their code; never a traceback."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except HexgenError as error:
            click.ClickException(str(error)).show()
            ctx.exit(exit_code(error))


def on_cell(flags: dict[str, Any], work: Callable[[Cell], Awaitable[Any]]) -> Any:
    """What this work on the cell of --redis and --namespace gives."""
    values = settings.load(**flags)

    async def run() -> Any:
        async with Cell.opened(values.redis_url, values.namespace) as cell:
            return await work(cell)

    return asyncio.run(run())


@contextmanager
def telling(as_json: bool) -> Iterator[dict[str, Json]]:
    """What is to be told, filled in as it becomes known. As JSON it is one object, however the command ends."""
    told: dict[str, Json] = {}
    try:
        yield told
    finally:
        if as_json and told:
            click.echo(json.dumps(told))


def note(text: str) -> None:
    """A line for the person who waits, beside the output."""
    click.echo(text, err=True)


def shown(value: Json) -> str:
    """A value for a terminal: text as it is, else JSON on several lines."""
    return value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)


def reason(kind: str, data: Json) -> str:
    """Why there is no output: how it ended, where, and what was said."""
    where = data.get("stage") or data.get("field")
    return f"{kind}: {f'{where}: ' if where else ''}{data.get('error', '')}"
