"""The relay: as many tickets in RQ as tool requests wait. A ticket carries no work, only the right to claim some.

Whatever RQ loses or doubles is harmless: a ticket claims through the same fenced operation as any worker, a lost one is
replaced, and one too many finds nothing.
"""

import asyncio

from rq import Queue
from rq.serializers import JSONSerializer

from common.store.client import connect_sync, translated
from common.store.keys import TICKET_FUNCTION
from coordinator.desk import Desk
from coordinator.language.grammar import LONGEST_ATTEMPT_S

TICKET_LOST_MS = 10_000
TICKET_RUNS_S = int(LONGEST_ATTEMPT_S) + 60
"""The tool worker holds to a request's own time limit; RQ must never be the first to end it."""


class Relay:
    """Writes tickets; one is lost when it is neither used nor in RQ's queue after `lost_ms`.

    RQ has no asynchronous face: its calls run in a thread.
    """

    def __init__(self, desk: Desk, lost_ms: int = TICKET_LOST_MS) -> None:
        self._desk = desk
        self._lost_ms = lost_ms
        connection = connect_sync(desk.settings.redis_url)
        self._queue = Queue(desk.cell.keys.tickets, connection=connection, serializer=JSONSerializer)

    async def __call__(self) -> None:
        """Wait for tool requests and relay them."""
        await self._desk.cell.queues.wait_tools()
        await self.relay()

    async def relay(self) -> None:
        """Write the tickets that are missing now. Only then RQ's keys are looked at: in a cluster others have them."""
        if not await self._desk.cell.queues.has_to_relay():
            return
        while tickets := await self._desk.cell.queues.to_relay(await asyncio.to_thread(self._count), self._lost_ms):
            await asyncio.to_thread(self._write, tickets)

    def _count(self) -> int:
        with translated():
            return int(self._queue.count)

    def _write(self, tickets: list[str]) -> None:
        """All in one transaction. RQ names the jobs itself: what counts is the ticket in them."""
        with translated():
            self._queue.enqueue_many(
                Queue.prepare_data(
                    TICKET_FUNCTION, args=(ticket,), timeout=TICKET_RUNS_S, ttl=3600, result_ttl=0, failure_ttl=60
                )
                for ticket in tickets
            )
