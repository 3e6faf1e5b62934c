"""The worker process of one instance: starts the engine, registers, runs its queue, drains when told to stop."""

import asyncio
import logging
import os
import secrets
import signal
import socket
from collections.abc import Callable
from dataclasses import dataclass

from common.backoff import patiently
from common.errors import StoreUnavailable
from common.settings import Settings
from common.store.cell import Cell
from common.store.queues import Seat
from workers.engines.protocol import Engine
from workers.lease import LeaseKeeper
from workers.runner import Runner, run_until

log = logging.getLogger("hexgen.worker")


@dataclass(frozen=True, slots=True)
class InstanceOptions:
    """How an instance presents itself. `labels` are what stages may require; grace_s is the time for draining."""

    instance: str
    labels: tuple[str, ...] = ()
    grace_s: float = 30.0


async def run(settings: Settings, engine: Engine, options: InstanceOptions) -> None:
    """Serve until SIGTERM or SIGINT, then drain; a second one cuts the grace short.

    Raises EngineError, Superseded, StoreRefused.
    """
    try:
        info = await engine.start()
        stop = asyncio.Event()  # from here on; while the engine loads nothing is held, and a signal may simply kill
        _on_signal(stop.set)
        cell = Cell.open(settings.redis_url, settings.namespace)
        try:
            epoch = await patiently(
                lambda: cell.instances.register(
                    options.instance, info.profile, info.models, options.labels, info.features
                ),
                "register",
                stop.is_set,
            )
            log.info("instance %s is ready: %s, epoch %d", options.instance, info.profile.name, epoch)
            claimant = f"{options.instance}/{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"
            seat = Seat(options.instance, epoch, claimant)
            runner = Runner(cell, engine, info.profile, seat, settings.lease_ms)
            await _serve(settings, cell, engine, runner, seat, stop, options)
        finally:
            await cell.close()
    finally:
        await engine.close()


async def _serve(
    settings: Settings,
    cell: Cell,
    engine: Engine,
    runner: Runner,
    seat: Seat,
    stop: asyncio.Event,
    options: InstanceOptions,
) -> None:
    loop = asyncio.get_running_loop()

    def on_gone(request: str) -> None:
        loop.call_soon_threadsafe(runner.gone, request)

    def on_superseded() -> None:
        runner.supersede()
        loop.call_soon_threadsafe(stop.set)

    def load() -> dict[str, int]:
        held = engine.load()
        return {"running": held.running, "unprefilled_tokens": held.unprefilled_tokens, "kv_tokens": held.kv_tokens}

    _on_signal(lambda: runner.hurry() if stop.is_set() else stop.set())
    leases = LeaseKeeper(
        settings.redis_url,
        seat,
        settings.namespace,
        settings.lease_ms,
        on_gone=on_gone,
        on_superseded=on_superseded,
        load=load,
    )
    runner.attach(leases)
    leases.start()
    try:
        await run_until(runner, stop, options.grace_s)
        await leases.ended()
        await cell.instances.remove(options.instance, seat.epoch)
        log.info("instance %s is drained", options.instance)
    except StoreUnavailable as error:
        log.warning("%s; what instance %s holds is taken over when its leases end", error, options.instance)
    finally:
        await leases.ended()
    await engine.health()  # where it was the engine that ended, say so


def _on_signal(action: Callable[[], None]) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, action)
