"""Keeps leases alive from a thread and connections of its own, so that a busy engine never costs a worker its leases.

While the store is unreachable it goes on trying and nothing is aborted: the fence keeps a late result from counting.
"""

import asyncio
import logging
import threading
from collections.abc import Callable

from common import clock
from common.backoff import pause_s
from common.errors import HexgenError, SeatLost
from common.store.cell import Cell
from common.store.queues import Seat

HANGS_S = 60.0
"""A main loop that has had no turn for so long runs nothing any more: others must get what it holds."""
log = logging.getLogger("hexgen.lease")


class LeaseKeeper(threading.Thread):
    """Renews what is held every third of a lease; it is the instance's heartbeat too. Nothing while the main loop, in
    which it is made, hangs.

    Four are called in this thread: on_renewed() at each renewal, on_draining() too if the instance is to end,
    on_gone(request) for one whose lease is lost or whose workflow has ended, and on_seat_lost(why) at most once, as its
    last deed.
    """

    def __init__(
        self,
        url: str,
        seat: Seat,
        namespace: str,
        lease_ms: int,
        *,
        on_gone: Callable[[str], None],
        on_seat_lost: Callable[[SeatLost], None],
        on_draining: Callable[[], None] = lambda: None,
        on_renewed: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(name="lease-keeper", daemon=True)
        self._url, self._seat, self._namespace, self._lease_ms = url, seat, namespace, lease_ms
        self._on_gone, self._on_seat_lost = on_gone, on_seat_lost
        self._on_draining, self._on_renewed = on_draining, on_renewed
        self._held: dict[str, int] = {}
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._loop = asyncio.get_running_loop()
        self._unanswered_since: float | None = None

    def hold(self, request: str, token: int) -> None:
        """Keep this lease alive from now on."""
        with self._lock:
            self._held[request] = token

    def drop(self, request: str, token: int) -> bool:
        """Let this lease end, and no later one of the same request. Whether it was held."""
        with self._lock:
            if self._held.get(request) != token:
                return False
            del self._held[request]
            return True

    def held(self) -> dict[str, int]:
        """What is being kept: request -> token."""
        with self._lock:
            return dict(self._held)

    def stop(self) -> None:
        """End the thread; returns at once."""
        self._stopped.set()

    async def ended(self) -> None:
        """End the thread and wait for it: nothing is renewed any more."""
        self.stop()
        await asyncio.to_thread(self.join)

    def run(self) -> None:
        asyncio.run(self._keep())

    async def _keep(self) -> None:
        cell = Cell.open(self._url, self._namespace)
        failures = 0
        try:
            while not await asyncio.to_thread(self._stopped.wait, self._pause_s(failures)):
                if self._hangs():
                    continue
                try:
                    await self._renew(cell)
                    if failures:
                        log.info("leases are renewed again, after %d tries that failed", failures)
                    failures = 0
                except SeatLost as error:
                    self._on_seat_lost(error)
                    return
                except HexgenError as error:
                    failures += 1
                    if failures == 1:
                        log.warning("leases cannot be renewed: %s; trying again, nothing is aborted", error)
                except Exception:  # whatever it is: without this thread every lease would be lost
                    failures += 1
                    log.exception("leases could not be renewed; trying again")
        finally:
            await cell.close()

    def _hangs(self) -> bool:
        """Whether the main loop has not answered for long; it is asked each time."""
        now, since = clock.monotonic_s(), self._unanswered_since
        if since is not None:
            return now - since > HANGS_S
        self._unanswered_since = now
        self._loop.call_soon_threadsafe(self._answer)
        return False

    def _answer(self) -> None:
        self._unanswered_since = None

    def _pause_s(self, failures: int) -> float:
        """A store that comes back gives everybody one lease: it must be met within that."""
        usual_s = self._lease_ms / 3000
        return min(pause_s(failures), usual_s) if failures else usual_s

    async def _renew(self, cell: Cell) -> None:
        held = self.held()
        status, gone = await cell.queues.renew(self._seat, self._lease_ms, list(held.items()))
        self._on_renewed()
        for request in gone:
            if self.drop(request, held[request]):
                self._on_gone(request)
        if status == "draining":
            self._on_draining()
