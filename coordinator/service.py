"""The coordinator process: opens the store, registers definitions, keeps its loops running until told to stop."""

import asyncio
import logging
import signal
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from common.backoff import keep, patiently
from common.errors import HexgenError, StoreRefused
from common.health import Health
from common.settings import Settings
from common.store.cell import Cell
from common.tasks import end
from coordinator.desk import Desk
from coordinator.language.definition import Definition
from coordinator.loops.completions import completions
from coordinator.loops.intake import intake
from coordinator.loops.janitor import Janitor
from coordinator.loops.planner import Planner
from coordinator.loops.recoverer import promoter, recoverer
from coordinator.loops.relay import Relay
from coordinator.loops.roster import Roster

log = logging.getLogger("hexgen.coordinator")


async def run(settings: Settings, definitions: Sequence[Definition]) -> None:
    """Coordinate until SIGTERM or SIGINT. Several coordinators may run on one cell."""
    cell = Cell.open(settings.redis_url, settings.namespace)
    desk = Desk(cell, settings, definitions)
    try:
        await patiently(cell.inbox.prepare, "start")
        await patiently(desk.own.register, "start")
        await patiently(lambda: look_at_server(cell), "start")
        log.info("coordinator %s is ready: policy %s, namespace %s", desk.name, settings.policy, settings.namespace)
        await _until_stopped(desk)
        desk.reports.sum_up()
        with suppress(HexgenError):
            await cell.coordinators.withdraw(desk.name, settings.policy)
        log.info("coordinator %s has stopped; what it was doing is taken over", desk.name)
    finally:
        await cell.close()


async def look_at_server(cell: Cell) -> None:
    """Warn of settings of the server with which workflows can be lost."""
    try:
        server = await cell.records.server()
    except StoreRefused as error:
        log.warning("%s; so nobody checks here that it has maxmemory-policy noeviction and appendonly yes", error)
        return
    if server["maxmemory_policy"] not in (None, "noeviction"):
        log.warning(
            "Redis has maxmemory-policy %s: when it is full it will throw away workflows; set it to noeviction",
            server["maxmemory_policy"],
        )
    if server["aof_enabled"] == 0:
        log.warning("Redis has no append-only file: when it restarts all workflows are lost; set appendonly to yes")


async def _until_stopped(desk: Desk) -> None:
    relay = Relay(desk)
    turns: dict[str, Callable[[], Awaitable[None]]] = {
        "intake": lambda: intake(desk),
        "completions": lambda: completions(desk),
        "completions too": lambda: completions(desk),
        "recoverer": lambda: recoverer(desk),
        "promoter": lambda: promoter(desk),
        "planner": Planner(desk),
        "janitor": Janitor(desk),
        "relay": relay,
        "roster": Roster(desk),
    }
    health = Health(turns, desk.settings.lease_s, desk.settings.health_file)
    loops = [asyncio.create_task(keep(name, turn, health.good), name=name) for name, turn in turns.items()]
    loops.append(asyncio.create_task(health.watch()))
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    stopped = asyncio.create_task(stop.wait())
    await asyncio.wait([stopped, *loops], return_when=asyncio.FIRST_COMPLETED)
    await end(stopped, *loops)
