"""What is known of an id, and what happens to it: reads that outlive a short absence of Redis. Prints notes only."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial

from common.backoff import patiently
from common.errors import HexgenError
from common.model import Json
from common.store.cell import Cell
from hexgen_flow.commands.shared import NoAnswer, note, reason

QUIET_S = 3.0
"""After so long without an event, it is looked whether there can be any."""
ABSENT = {
    "submitted": "{} is submitted, not accepted yet: is a coordinator running?",
    "unknown": "nothing is known of {} here (yet, or any more)",
}


@dataclass(frozen=True, slots=True)
class Found:
    """What is known of an id: the workflow's own id and status, or `submitted`, `rejected` (and why) or `unknown`."""

    workflow: str
    status: str
    data: Json


def absent(found: Found, wanted: str) -> HexgenError:
    """Why a workflow is not what it is wanted to be, or what is wanted of it not there."""
    if found.status == "rejected":
        return HexgenError(f"submission {found.workflow} {reason(found.status, found.data)}")
    if found.status == "unknown":
        return HexgenError(ABSENT["unknown"].format(found.workflow))
    if found.status == "submitted":
        return NoAnswer(ABSENT["submitted"].format(found.workflow))
    kind = NoAnswer if found.status == "running" else HexgenError
    return kind(f"workflow {found.workflow} {wanted}: it is {found.status}")


async def find(cell: Cell, name: str) -> Found:
    """What is known of a workflow, by its id or by that of the entry it was submitted with."""
    found = await _settled(cell, name)
    if found is None and await cell.records.is_unread(name):
        return Found(name, "submitted", {})
    # Once more: it may have been answered in between.
    return found or await _settled(cell, name) or Found(name, "unknown", {})


async def _settled(cell: Cell, name: str) -> Found | None:
    status = await cell.records.status(name)
    if status is not None:
        return Found(name, status, {})
    kind, data = await cell.records.first(name) or ("", {})
    if kind == "rejected":
        return Found(name, kind, data)
    other = data.get("workflow", name) if kind == "accepted" else name
    return None if other == name else await _settled(cell, other)


async def listen(cell: Cell, after: Mapping[str, str]) -> AsyncIterator[tuple[str, str, str, Json] | None]:
    """Events of several ids as (name, id, type, data), each after the id given, without end; None when it is quiet."""
    seen = dict(after)
    while True:
        events = await patiently(partial(cell.records.look, dict(seen), QUIET_S), "events")
        for name, entry, kind, data in events:
            seen[name] = entry
            yield name, entry, kind, data
        if not events:
            yield None
        _stop_if_asked()


def _stop_if_asked() -> None:
    """The Redis library sends under `asyncio.wait_for`, which in Python 3.11 can lose a cancellation."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


async def follow(cell: Cell, name: str) -> AsyncIterator[tuple[str, str, Json]]:
    """Events of an id as (id, type, data), without end; while there can be none, a note says why."""
    said = ""
    async for event in listen(cell, {name: "0"}):
        if event is not None:
            yield event[1:]
            continue
        found = await patiently(partial(find, cell, name), "events")
        why = ABSENT.get(found.status, "").format(name)
        if why and why != said:
            note(why)
        said = why


@asynccontextmanager
async def at_most(timeout_s: float | None, what: str, hint: str = "") -> AsyncIterator[None]:
    """Give up after so many seconds (None: never). Raises NoAnswer with these words."""
    try:
        async with asyncio.timeout(timeout_s):
            yield
    except TimeoutError:
        raise NoAnswer(f"{what} within {timeout_s:g} s{hint}") from None
