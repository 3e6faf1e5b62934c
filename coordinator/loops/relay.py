"""The relay: each queued tool request gets one ticket in RQ. A ticket carries no work, only the right to claim some.

Whatever RQ loses or doubles is harmless: a ticket claims through the same fenced operation as any worker, a lost one is
written again, and one that comes too late finds nothing.
"""

import asyncio

from rq import Queue
from rq.exceptions import DuplicateJobError
from rq.serializers import JSONSerializer

from common.store.client import connect_sync, translated
from common.store.keys import TICKET_FUNCTION
from coordinator.desk import Desk
from coordinator.language.grammar import LONGEST_ATTEMPT_S

TICKET_LOST_MS = 10_000
TICKET_RUNS_S = int(LONGEST_ATTEMPT_S) + 60
"""The tool worker holds to a request's own time limit; RQ must never be the first to end it."""


class Relay:
    """Writes tickets. RQ has no asynchronous face: its calls run in a thread."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        connection = connect_sync(desk.settings.redis_url)
        self._queue = Queue(desk.cell.keys.tickets, connection=connection, serializer=JSONSerializer)

    async def __call__(self) -> None:
        """Wait for tool requests and relay them."""
        queues = self._desk.cell.queues
        await queues.wait_tools()
        while tickets := await queues.to_relay(TICKET_LOST_MS):
            await asyncio.to_thread(self._write, tickets)

    def _write(self, tickets: list[str]) -> None:
        with translated():
            for ticket in tickets:
                self._enqueue(ticket)

    def _enqueue(self, ticket: str) -> None:
        """Also one that was relayed before: RQ refuses a second ticket of that id while the first is there."""
        try:
            self._queue.enqueue_call(
                TICKET_FUNCTION,
                args=(ticket,),
                job_id=ticket,
                unique=True,
                timeout=TICKET_RUNS_S,
                ttl=3600,
                result_ttl=0,
                failure_ttl=60,
            )
        except DuplicateJobError:
            return
