"""The tool worker: RQ runs one constant function, which claims the most urgent tool request and runs its tool.

Nothing that comes over RQ is trusted: a job is JSON with one ticket, or it is refused.
"""

import asyncio
import logging
import os
import secrets
import signal
import socket
import threading
from contextlib import suppress
from typing import Any

from rq import Queue, Worker
from rq.job import Job
from rq.serializers import JSONSerializer

from common import clock, wire
from common.backoff import LONGEST_PAUSE_S, patiently, pause_s
from common.errors import InvalidDocument, StoreUnavailable
from common.events import Outcome
from common.model import TOOLS, Claim, ToolCall
from common.settings import Settings
from common.store.cell import Cell
from common.store.client import connect_sync, translated
from common.store.keys import TICKET_FUNCTION, Keys
from common.store.offers import Offer
from common.store.queues import Room, Seat
from workers.lease import LeaseKeeper
from workers.tools.registry import ToolContext, ToolError, load, names, preload

MAX_OUTPUT_BYTES = 8 << 20
LATE_S = 5.0
"""So much later than its time limit a tool's process is ended that did not get to hand in that it was reached."""
LONGEST_BEAT_S = 5
RQ_LISTENS_LESS_S = 15
"""By so much less than its `worker_ttl` RQ waits for a job before it beats and waits again."""
ONE = Room(requests=1, prefill_tokens=1, kv_tokens=1)
log = logging.getLogger("hexgen.tools")


class TicketRefused(Exception):
    """A job that our relay did not write."""


class ToolFailed(Exception):
    """What is reported of a tool that failed."""

    def __init__(self, message: str, *, retryable: bool) -> None:
        super().__init__(message)
        self.retryable = retryable


class Ticket(Job):  # type: ignore[misc]
    """A job that can only be a ticket: no other function, no callback, no web hook, whatever its record says."""

    def restore(self, raw_data: Any) -> None:
        super().restore(raw_data)
        self._success_callback_name = self._failure_callback_name = self._stopped_callback_name = None
        self.webhooks: list[Any] = []

    def _execute(self) -> None:
        if self.func_name != TICKET_FUNCTION or self.kwargs or len(self.args) != 1:
            raise TicketRefused(f"job {self.id} asks for {self.func_name!r}; only tickets are run")
        run_ticket(str(self.args[0]))


class ToolWorker(Worker):  # type: ignore[misc]
    """RQ's worker, as patient with the store as ours. As it beats it offers its tools, until it is told to stop."""

    max_connection_wait_time = LONGEST_PAUSE_S
    told_to_stop = False
    offer: Offer

    def heartbeat(self, *args: Any, **options: Any) -> None:
        super().heartbeat(*args, **options)
        if not self.is_horse:
            self._tell()

    def handle_warm_shutdown_request(self) -> None:
        super().handle_warm_shutdown_request()
        self.told_to_stop = True

    def maintain_heartbeats(self, *args: Any) -> None:
        """A job goes on while the store is away: it hands in by itself."""
        with suppress(StoreUnavailable), translated():
            super().maintain_heartbeats(*args)

    def _tell(self) -> None:
        with suppress(StoreUnavailable):
            if self.told_to_stop:
                self.offer.withdraw()
            else:
                self.offer.renew()

    def register_death(self) -> None:
        with suppress(StoreUnavailable):
            self.offer.withdraw()
        with suppress(StoreUnavailable), translated():
            super().register_death()

    def subscribe(self) -> None:
        """Takes no commands over the store, and so has no thread when it forks."""


_settings: Settings | None = None


def serve(settings: Settings) -> None:
    """Run tickets until SIGTERM; each in a process of its own, so that a tool that hangs can be ended.

    RQ gives up when the store goes away at the wrong moment: then it is started anew, until the store is back.
    """
    global _settings  # the forked job reads them
    _settings = settings
    preload()
    failures = 0
    while True:
        try:
            if _work(settings):
                return
            failures = 0
        except StoreUnavailable as error:
            failures += 1
            if failures == 1:
                log.warning("tools: %s; trying again", error)
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):  # RQ's handlers are those of a worker that is gone
                signal.signal(number, signal.SIG_DFL)
        threading.Event().wait(pause_s(failures))


def _work(settings: Settings) -> bool:
    """Whether RQ ended because it was told to. Raises StoreUnavailable where it could not even begin."""
    with translated():
        connection = connect_sync(settings.redis_url)
        keys, beat_s = Keys(settings.namespace), max(1, min(LONGEST_BEAT_S, settings.lease_ms // 3000))
        queue = Queue(keys.tickets, connection=connection, serializer=JSONSerializer, job_class=Ticket)
        worker = ToolWorker(
            [queue], name=f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}", connection=connection,
            serializer=JSONSerializer, job_class=Ticket, maintenance_interval=30, log_job_description=False,
            worker_ttl=beat_s + RQ_LISTENS_LESS_S, job_monitoring_interval=beat_s,
        )  # fmt: skip
        worker.offer = Offer(connection, keys, worker.name, names(), max(settings.lease_ms, 3000 * beat_s))
        worker.work(logging_level="WARNING")
    return worker.told_to_stop


def run_ticket(ticket: str) -> None:
    """Claim the most urgent tool request, if any is left, and run it. A ticket is a right, not an address."""
    assert _settings is not None
    hung = asyncio.run(_run(_settings, ticket))
    if hung:
        os._exit(1)  # its thread cannot be stopped; this process is the job's own


async def _run(settings: Settings, ticket: str) -> bool:
    seat = Seat(TOOLS, None, f"tools/{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}")
    cell = Cell.open(settings.redis_url, settings.namespace)
    try:
        claims = await patiently(lambda: cell.queues.claim(seat, ticket, settings.lease_ms, ONE), f"ticket {ticket}")
        return await _run_claim(settings, cell, seat, claims[0]) if claims else False
    finally:
        await cell.close()


async def _give_back(cell: Cell, claim: Claim) -> None:
    """Coordinators that count this worker in will not queue it again until all tool workers have the tool."""
    log.warning("request %s: stage %s asks for a tool that is not installed here", claim.request, claim.stage)
    await patiently(lambda: cell.queues.release([(claim.request, claim.token)]), "give back")


async def _run_claim(settings: Settings, cell: Cell, seat: Seat, claim: Claim) -> bool:
    """Run one request under a kept lease and hand in what came of it. True when the tool did not stop in time."""
    assert isinstance(claim.call, ToolCall)
    if claim.call.tool not in names():
        await _give_back(cell, claim)
        return False
    leases = LeaseKeeper(
        settings.redis_url, seat, settings.namespace, settings.lease_ms,
        on_gone=lambda request: log.info("request %s is no longer ours", request),
        on_superseded=lambda: None, load=lambda: None,
    )  # fmt: skip
    leases.hold(claim.request, claim.token)
    leases.start()
    started = clock.monotonic_s()
    outcome: Outcome | BaseException
    hung = False
    _end_process_in(claim.timeout_s + LATE_S)
    try:
        output = await asyncio.wait_for(_in_thread(settings, claim), claim.timeout_s)
        run_ms = round(1000 * (clock.monotonic_s() - started))
        outcome = Outcome(output, TOOLS, max(0, claim.claimed_at - claim.enqueued_at), run_ms)
    except TimeoutError:
        hung = True
        outcome = ToolFailed(f"the tool ran longer than timeout_s = {claim.timeout_s:g}", retryable=True)
    except ToolFailed as error:
        outcome = error
    _end_process_in(0)
    await patiently(lambda: cell.queues.finish([(claim.request, claim.token, outcome)]), "hand in")
    leases.stop()
    return hung


def _end_process_in(seconds: float) -> None:
    """The kernel ends this process then: a tool may let no other thread run. 0 takes it back, and RQ's alarm too."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, seconds)


async def _in_thread(settings: Settings, claim: Claim) -> Any:
    """The tool's value, from a daemon thread: one that hangs must not hold up the end of this process.

    Raises ToolFailed.
    """
    assert isinstance(claim.call, ToolCall)
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Any] = loop.create_future()

    def settle(value: Any, error: ToolFailed | None) -> None:
        if not done.done():
            done.set_exception(error) if error else done.set_result(value)

    def work(call: ToolCall) -> None:
        try:
            value = _kept(load(call.tool)(call.args, ToolContext(settings.databases, claim.timeout_s)))
            loop.call_soon_threadsafe(settle, value, None)
        except ToolError as error:
            loop.call_soon_threadsafe(settle, None, ToolFailed(str(error), retryable=False))
        except BaseException as error:  # SystemExit and StopIteration too, which would break what waits here
            log.exception("request %s: the tool failed", claim.request)
            failed = ToolFailed(f"the tool raised {type(error).__name__}: {error}", retryable=True)
            loop.call_soon_threadsafe(settle, None, failed)

    threading.Thread(target=work, args=(claim.call,), daemon=True).start()
    return await done


def _kept(value: Any) -> Any:
    """What a tool returned, if it can be written down. Raises ToolError."""
    try:
        wire.check_json(value)
    except InvalidDocument as error:
        raise ToolError(f"what the tool returned cannot be kept: {error}") from None
    size = len(wire.pack(value))
    if size > MAX_OUTPUT_BYTES:
        raise ToolError(f"what the tool returned has {size} bytes; at most {MAX_OUTPUT_BYTES} are kept")
    return value
