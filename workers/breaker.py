"""Takes an engine that makes no progress out of service, and back in once it answers a probe.

Progress is what comes out of an engine: iterations and pieces of answers, not what it says of its health. Must not know
queues and leases: what it means to leave and to come back is told by whoever makes it.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import aclosing

from common import clock
from common.model import LlmCall, Sampling
from workers.engines.protocol import Engine, EngineCall
from workers.observer import Observer

STALL_S = 60.0
"""Without any progress, unless told otherwise. Compiling something late, an engine may take a while."""
LOOKS = 12
"""So many in that time. Looks are counted, not seconds: this process may have been the one that stood still."""
FIRST_PROBE = 1 / 32
"""Of that time, until the first probe; twice as long until each further one, up to all of it."""
log = logging.getLogger("hexgen.worker")


class Breaker:
    """Watches one engine. It stalls when it has had work for stall_s in all since its last progress, and made none.

    leave() takes all work from it, and may be called again while it is stalled; come_back() lets it have work again.
    """

    def __init__(
        self,
        engine: Engine,
        observer: Observer,
        stall_s: float,
        leave: Callable[[], Awaitable[None]],
        come_back: Callable[[], Awaitable[None]],
    ) -> None:
        self._engine, self._observer, self._stall_s = engine, observer, stall_s
        self._leave, self._come_back = leave, come_back
        self._probes = 0

    async def run(self) -> None:
        """Watch until cancelled. Raises what leave and come_back do."""
        while True:
            await self._stalled()
            log.warning("the engine has had work for %g s and made no progress: it gets none until it answers a probe",
                        self._stall_s)  # fmt: skip
            pause_s = self._stall_s * FIRST_PROBE
            await self._leave()
            await clock.sleep(pause_s)
            while not await self._answers():
                await self._leave()  # of what came in while it left
                pause_s = min(2 * pause_s, self._stall_s)
                await clock.sleep(pause_s)
            await self._come_back()
            log.info("the engine answers again, after %g s or more without progress; it gets work", self._stall_s)

    async def _stalled(self) -> None:
        """Return once it is. Time without work counts neither way: calls may come and be given up one by one."""
        seen, idle_looks = self._observer.advances, 0
        while idle_looks <= LOOKS:  # the work may have come just before the first of them
            await clock.sleep(self._stall_s / LOOKS)
            if self._observer.advances != seen:
                seen, idle_looks = self._observer.advances, 0
            elif self._engine.load().running:
                idle_looks += 1

    async def _answers(self) -> bool:
        """Whether a tiny request is answered in stall_s."""
        self._probes += 1
        probe = EngineCall(f"probe-{self._probes}", LlmCall("Hello", None, None, Sampling(max_tokens=1)), "probe")
        reason = None
        try:
            async with asyncio.timeout(self._stall_s), aclosing(self._engine.generate(probe)) as chunks:
                async for chunk in chunks:
                    reason = chunk.finish_reason
        except Exception as error:  # whatever an engine in this state raises, the time-out too
            log.debug("probe %d failed: %s: %s", self._probes, type(error).__name__, error)
            return False
        return reason in ("stop", "length")
