"""Housekeeping: sum up reports, register again what the store has lost, share what was learned, forget who is gone."""

from common import clock
from common.store.records import Page, pages
from coordinator.desk import Desk
from coordinator.estimates import MOST_NAMES, WINDOW

PAUSE_S = 2.0
FORGET_S = 24 * 3600.0


class Janitor:
    """Remembers what was learned and not answered by the store: it may have arrived, so it is sent again as it was."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._untold: list[Page] = []

    async def __call__(self) -> None:
        """One round, then a pause."""
        desk = self._desk
        desk.reports.sum_up()
        await desk.own.restore()
        await self._share()
        for instance in await desk.cell.instances.silent(int(FORGET_S * 1000)):
            await desk.cell.instances.remove(instance)
        await desk.cell.instances.forget_counts()
        await desk.cell.instances.forget_tenants()
        await desk.cell.inbox.forget_ended()
        await desk.cell.inbox.forget_consumers(int(FORGET_S * 1000))
        await clock.sleep(PAUSE_S)

    async def _share(self) -> None:
        records, estimates = self._desk.cell.records, self._desk.estimates
        self._untold = self._untold or pages(estimates.take_added())
        while self._untold:
            await records.learn(self._untold[0], WINDOW, MOST_NAMES)
            del self._untold[0]
        estimates.replace(await records.learned())
