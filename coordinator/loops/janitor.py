"""Housekeeping: sum up reports, register again what the store has lost, share what was learned, forget who is gone."""

from common import clock
from common.errors import HexgenError
from coordinator.desk import Desk
from coordinator.estimates import WINDOW

PAUSE_S = 2.0
FORGET_S = 24 * 3600.0


async def janitor(desk: Desk) -> None:
    """One round, then a pause."""
    desk.reports.sum_up()
    await desk.own.restore()
    added = desk.estimates.take_added()
    try:
        await desk.cell.records.learn(added, WINDOW)
    except HexgenError:
        desk.estimates.give_back(added)
        raise
    desk.estimates.replace(await desk.cell.records.learned())
    for instance in await desk.cell.instances.silent(int(FORGET_S * 1000)):
        await desk.cell.instances.remove(instance)
    await desk.cell.instances.forget_tenants()
    await desk.cell.inbox.forget_consumers(int(FORGET_S * 1000))
    await clock.sleep(PAUSE_S)
