"""Takeover: what others have read and never settled, each entry by itself. Decides nothing about workflows.

A coordinator that dies leaves all it had read. Those that take it over one by one, and count, find out what killed it.
"""

import logging
from collections.abc import Awaitable, Callable

from common.errors import StoreRefused, StoreUnavailable
from common.store.inbox import Entry, Stale
from coordinator.desk import Desk
from coordinator.loops import completions, intake

DEATHS = 3
"""An entry that was read so many times, its reader being gone each time, is given up."""
Work = Callable[[Desk, Entry], Awaitable[object]]
GiveUp = Callable[[Desk, Entry, str, str], Awaitable[object]]


async def take_over(desk: Desk, spare: bool = False) -> None:
    """All stale entries: a coordinator settles one in milliseconds; a third of a lease later it has lost its reader.

    spare: none is given up yet; the store was away, and readers that seem to be gone may just have to come back.
    """
    keys = desk.cell.keys
    await _each(desk, keys.submissions, intake.take, intake.give_up, spare)
    await _each(desk, keys.completions, _step, completions.give_up, spare)


async def _step(desk: Desk, entry: Entry) -> None:
    await completions.handle(desk, [entry])


async def _each(desk: Desk, stream: str, work: Work, give_up: GiveUp, spare: bool) -> None:
    inbox, idle_ms = desk.cell.inbox, desk.settings.lease_ms // 3
    found = await inbox.stale(stream, idle_ms)
    # What this one has read before, it has survived: then the store was away.
    doomed = {stale.entry for stale in found if stale.reads >= DEATHS and stale.reader != desk.name}
    alive = await desk.cell.coordinators.all() if doomed else {}
    for stale in found:
        if stale.entry in doomed and (spare or stale.reader in alive):
            continue  # still at work on it, or not yet known to be gone
        entry = await inbox.take_over(stream, desk.name, idle_ms, stale)
        if entry is None:
            continue
        try:
            if stale.entry in doomed:
                await give_up(desk, entry, _fault(desk, stale), stale.reader)
            else:
                await work(desk, entry)
        except (StoreUnavailable, StoreRefused):
            raise
        except Exception:  # it waits for its next turn, and those behind it do not wait with it
            told = "entries that could not be taken over"
            desk.reports.tell(logging.ERROR, told, "entry %s could not be taken over", stale.entry, trace=True)
        finally:  # whatever has happened, it has not killed this one
            await inbox.forgive(stream, stale, idle_ms)


def _fault(desk: Desk, stale: Stale) -> str:
    fault = f"{stale.reads} coordinators died while they worked on it"
    told = "entry %s, last read by %s: %s; it is given up"
    desk.reports.tell(logging.ERROR, "dead letters", told, stale.entry, stale.reader, fault)
    return fault
