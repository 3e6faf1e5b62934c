"""The roster: what becomes of instances, tool workers and other coordinators, told once per change; others act on it.

With each look it also reads what the tuner has chosen.
"""

import logging
from typing import NamedTuple

from common import clock
from common.logs import several
from coordinator.desk import Desk

LOOK_S = 1.0
KEEP_MS = 5000
"""So long a coordinator counts as there after its last look."""
SILENT = "is silent: nothing was heard of it for a lease, so what it ran is taken back when its leases run out"
log = logging.getLogger("hexgen.coordinator")


class Seen(NamedTuple):
    """One member as it was seen; a later epoch is a later incarnation."""

    status: str
    epoch: int = 0


class Roster:
    """Compares each look with the one before. What comes and goes between two looks is not seen."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._before: dict[str, Seen] | None = None
        self._until: dict[str, int] = {}
        self._silent: set[str] = set()
        self._differing: dict[str, str] = {}

    async def __call__(self) -> None:
        """One look, then a pause."""
        await self.look()
        await self.meet()
        await clock.sleep(LOOK_S)

    async def look(self) -> None:
        """Tell what has changed; the first time, who is there."""
        cell = self._desk.cell
        self._desk.take(await cell.tuning.parameters())
        now = {f"instance {known.id}": Seen(known.status, known.epoch) for known in await cell.instances.all()}
        now |= await self._tool_workers()
        before, self._before = self._before, now
        if before is None:
            log.info(
                "there are: %s", several(f"{name} ({seen.status})" for name, seen in now.items()) or "no instances"
            )
            return
        for name in sorted(before.keys() | now.keys()):
            if before.get(name) != now.get(name):
                self._tell(name, before.get(name), now.get(name))

    async def _tool_workers(self) -> dict[str, Seen]:
        """One that is not there any more has left before its time was over, or was found silent after that."""
        at, until = await self._desk.cell.offers.until()
        before, self._until = self._until, {f"tool worker {name}": ends for name, ends in until.items()}
        self._silent = {name for name, ends in before.items() if name not in self._until and ends <= at}
        return dict.fromkeys(self._until, Seen("ready"))

    async def meet(self) -> None:
        """Tell the other coordinators this one's policy, and warn of those that have another."""
        name, policy = self._desk.name, self._desk.settings.policy
        found = await self._desk.cell.coordinators.announce(name, policy, KEEP_MS)
        self._desk.others = {other: its for other, its in found.items() if other != name}
        before, self._differing = self._differing, {key: its for key, its in found.items() if its != policy}
        if self._differing.keys() - before.keys():
            log.warning(
                "policies differ: this coordinator, %s, has %s, but %s; give all of a cell the same", name, policy,
                several(f"{other} has {its}" for other, its in self._differing.items()),
            )  # fmt: skip
        elif before and not self._differing:
            log.info("policies differ no more: all coordinators have %s", policy)

    def _tell(self, name: str, before: Seen | None, now: Seen | None) -> None:
        silent = name in self._silent
        bad = silent or (now is not None and now.status in ("lost", "stalled"))
        change = SILENT if silent else _change(before, now)
        level = logging.WARNING if bad else logging.INFO
        self._desk.reports.tell(level, "changes of instances and tool workers", "%s %s", name, change)


def _change(before: Seen | None, now: Seen | None) -> str:
    if now is None:
        return "has left: it is not registered any more"
    if now.status == "lost":
        return "is lost: nothing was heard of it for a lease, so what it has queued is routed anew"
    if now.status == "stalled":
        return "is stalled: its engine makes no progress, so what it had is routed anew"
    if before is None:
        return f"has joined; it is {now.status}"
    if before.epoch != now.epoch:
        return f"has been started again; it is {now.status}"
    return "is back" if before.status in ("lost", "stalled") and now.status == "ready" else f"is {now.status}"
