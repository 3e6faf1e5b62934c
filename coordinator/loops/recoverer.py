"""Recovery: what the dead left behind. Stale entries, expired leases, silent instances, delayed nodes that are due."""

import logging

from common import clock
from common.model import TOOLS
from common.store.queues import Loss
from coordinator.desk import Desk
from coordinator.loops.takeover import take_over

TICK_S = 0.2
log = logging.getLogger("hexgen.recoverer")


async def promoter(desk: Desk) -> None:
    """Wake delayed nodes that are due, however many."""
    while await desk.cell.queues.promote():
        pass
    await clock.sleep(TICK_S)


async def recoverer(desk: Desk) -> None:
    """One look around, then a pause of a tenth of a lease, at most a second."""
    all_could_come_back = await _expired_leases(desk)
    if all_could_come_back:
        await _silent_instances(desk)
        await _silent_tool_workers(desk)
    await take_over(desk, spare=not all_could_come_back)
    await clock.sleep(min(1.0, desk.settings.lease_s / 10))


async def _expired_leases(desk: Desk) -> bool:
    """All of them. False while a restarted server gives everybody time to come back: then nobody is silent either."""
    while lost := await desk.cell.queues.reap(desk.settings.lease_ms, desk.settings.lease_losses):
        for loss in lost:
            _tell(desk, loss)
    return lost is not None


def _tell(desk: Desk, loss: Loss) -> None:
    most = desk.settings.lease_losses
    if loss.losses < most:
        kind, then = "requests lost with their claimants", "it is routed anew"
    else:
        kind, then = "dead letters", "it is a dead letter"
    what = f"the engine of {loss.claimant} {loss.engine}" if loss.engine else f"the lease of {loss.claimant} ran out"
    desk.reports.tell(
        logging.WARNING, kind, "request %s of workflow %s, stage %s: %s, loss %d of %d; %s",
        loss.request, loss.workflow, loss.node, what, loss.losses, most, then,
    )  # fmt: skip


async def _silent_instances(desk: Desk) -> None:
    for instance in await desk.cell.instances.silent(desk.settings.lease_ms):
        moved = await desk.cell.instances.evacuate(instance, "lost")
        if moved:
            desk.reports.tell(
                logging.WARNING, "lost instances with a queue",
                "instance %s is lost: %d queued requests are routed anew", instance, moved,
            )  # fmt: skip


async def _silent_tool_workers(desk: Desk) -> None:
    await desk.cell.offers.forget_silent()
    if not await desk.cell.offers.all():
        moved = await desk.cell.instances.evacuate(TOOLS, "lost")
        if moved:
            log.warning("no tool worker is left; %d queued tool requests wait for one", moved)
