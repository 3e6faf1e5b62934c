"""The worker process of one instance: starts the engine, registers, runs its queue, drains when told to stop."""

import asyncio
import logging
import os
import secrets
import signal
import socket
from dataclasses import dataclass

from common.backoff import patiently
from common.errors import SeatLost, StoreUnavailable, Unregistered
from common.health import Health
from common.settings import Settings
from common.store.cell import Cell
from common.store.queues import Seat
from common.tasks import end
from workers.breaker import STALL_S
from workers.engines.protocol import Engine, EngineInfo
from workers.lease import LeaseKeeper
from workers.observer import Observer
from workers.runner import Runner, run_until

RENEWALS = "renewals"
"""The one loop of a worker that always has something to do with the store. It asks the main loop too, each time."""
log = logging.getLogger("hexgen.worker")


@dataclass(frozen=True, slots=True)
class InstanceOptions:
    """How an instance presents itself. `labels` are what stages may require; grace_s is the time for draining.

    stall_s: so long its engine may have work and make no progress, see `Breaker`.
    """

    instance: str
    labels: tuple[str, ...] = ()
    grace_s: float = 30.0
    stall_s: float = STALL_S


async def run(settings: Settings, engine: Engine, options: InstanceOptions) -> None:
    """Serve until SIGTERM or SIGINT, then drain; a second one cuts the grace short.

    Raises EngineError, Superseded, StoreRefused, and StoreUnavailable if told to stop before it could register.
    """
    try:
        log.info("instance %s starts its engine", options.instance)
        info = await engine.start()
        cell = Cell.open(settings.redis_url, settings.namespace)
        service = _Service(settings, cell, engine, info, options)
        for number in (signal.SIGTERM, signal.SIGINT):  # until now nothing was held, and a signal might simply kill
            asyncio.get_running_loop().add_signal_handler(number, service.told_to_stop)
        try:
            await service.serve()
        finally:
            await cell.close()
            log.info("instance %s has stopped", options.instance)
        await engine.health()  # where it was the engine that ended, say so
    finally:
        await engine.close()


class _Service:
    def __init__(
        self, settings: Settings, cell: Cell, engine: Engine, info: EngineInfo, options: InstanceOptions
    ) -> None:
        self._settings, self._cell, self._engine = settings, cell, engine
        self._info, self._options = info, options
        self._observer = Observer(engine, info)
        self._health = Health((RENEWALS,), settings.lease_s, settings.health_file)
        self._stop = asyncio.Event()
        self._runner: Runner | None = None

    def told_to_stop(self) -> None:
        """Once, and what runs may finish; twice, and it may not."""
        if self._stop.is_set() and self._runner is not None:
            self._runner.hurry()
        self._stop.set()

    def _drained_from_outside(self) -> None:
        """As told once; a draining instance is told so again and again, also one that drains of its own accord."""
        if not (self._stop.is_set() or (self._runner is not None and self._runner.draining)):
            log.info("instance %s is marked draining: it finishes what runs and ends", self._options.instance)
            self._stop.set()

    async def serve(self) -> None:
        """Register and run until told to stop; again, where the registration has not lasted as long as this process."""
        watching = asyncio.create_task(self._health.watch())
        try:
            await self._serve_registered()
        finally:
            await end(watching)

    async def _serve_registered(self) -> None:
        while True:
            seat = await self._register()
            try:
                await self._serve(seat)
                self._tell()
                return
            except Unregistered as error:
                if self._stop.is_set():
                    return
                log.warning("%s: the data of namespace %s is gone, or it was silent for a day; what it ran counts "
                            "no more; it registers again", error, self._settings.namespace)  # fmt: skip

    async def _register(self) -> Seat:
        info, options, cell = self._info, self._options, self._cell

        async def register() -> int:
            await cell.schema.check()
            return await cell.instances.register(
                options.instance, info.profile, info.models, options.labels, info.features
            )

        epoch = await patiently(register, "register", self._stop.is_set)
        log.info("instance %s is ready: %s, epoch %d", options.instance, info.profile.name, epoch)
        claimant = f"{options.instance}/{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"
        return Seat(options.instance, epoch, claimant)

    async def _serve(self, seat: Seat) -> None:
        settings, cell, options = self._settings, self._cell, self._options
        self._runner = runner = Runner(cell, self._engine, self._observer, seat, settings.lease_ms, options.stall_s)
        loop = asyncio.get_running_loop()

        def on_gone(request: str) -> None:
            loop.call_soon_threadsafe(runner.gone, request)

        def on_seat_lost(why: SeatLost) -> None:
            loop.call_soon_threadsafe(runner.lose_seat, why)

        def on_draining() -> None:
            loop.call_soon_threadsafe(self._drained_from_outside)

        leases = LeaseKeeper(
            settings.redis_url, seat, settings.namespace, settings.lease_ms,
            on_gone=on_gone, on_seat_lost=on_seat_lost, on_draining=on_draining,
            on_renewed=lambda: self._health.good(RENEWALS),
        )  # fmt: skip
        runner.attach(leases)
        leases.start()
        try:
            await run_until(runner, self._stop, options.grace_s)
            await leases.ended()
            await cell.instances.remove(seat.instance, seat.epoch)
        except StoreUnavailable as error:
            log.warning("%s; what instance %s holds is taken over when its leases end", error, seat.instance)
        finally:
            await leases.ended()

    def _tell(self) -> None:
        seen = self._observer
        log.info(
            "instance %s has run %d requests; %.1f %% of its time it had nothing to prefill while one waited",
            self._options.instance, seen.requests, 100 * seen.idle_prefill,
        )  # fmt: skip
