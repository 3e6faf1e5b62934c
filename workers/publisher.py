"""Tells the cell what an engine holds: soon after each change, and from time to time while it works.

On a best effort: whatever goes wrong here costs an old view of this instance, no request.
"""

import asyncio
import logging
from contextlib import suppress

from common import clock
from common.store.instances import Instances
from common.store.queues import Seat
from workers.observer import Observer

LEAST_S = 0.02
"""Between two publications."""
BUSY_S = 0.5
"""A working engine changes even if nobody comes or goes; and what could not be told is told so much later."""
IDLE_S = 5.0
"""What was told may be lost with a store's last second: taken to be full, an idle instance would wait for ever."""
log = logging.getLogger("hexgen.worker")


class Publisher:
    """Publishes for one seat."""

    def __init__(self, instances: Instances, observer: Observer, seat: Seat) -> None:
        self._instances = instances
        self._observer = observer
        self._seat = seat
        self._changed = asyncio.Event()
        self._told_cache = -1

    def changed(self) -> None:
        """There is something new to tell."""
        self._changed.set()

    async def run(self) -> None:
        """Publish until cancelled; at once for the first time."""
        while True:
            self._changed.clear()
            told = await self._tried()
            await clock.sleep(LEAST_S)
            with suppress(TimeoutError):
                async with asyncio.timeout(IDLE_S if told and not self._observer.busy else BUSY_S):
                    await self._changed.wait()

    async def _tried(self) -> bool:
        """Whether it could be told; the worker goes on in any case."""
        try:
            await self._publish()
        except Exception as error:  # whatever it is
            log.debug("instance %s cannot publish its load: %s", self._seat.instance, error)
            return False
        return True

    async def _publish(self) -> None:
        load = self._observer.load()
        cache = None if load.cache_version == self._told_cache else self._observer.cache()
        assert self._seat.epoch is not None
        if await self._instances.publish(self._seat.instance, self._seat.epoch, load, cache):
            self._told_cache = load.cache_version
