"""The tool worker: RQ runs one constant function, which claims and runs the most urgent tool request.

Nothing that comes over RQ is trusted: a job is JSON with one ticket, or it is refused.
"""

import asyncio
import logging
import os
import secrets
import signal
import socket
import sys
import threading
from contextlib import suppress
from typing import Any

from rq import Queue, Worker
from rq.job import Job
from rq.serializers import JSONSerializer

from common.backoff import LONGEST_PAUSE_S, pause_s
from common.errors import StoreUnavailable
from common.health import Health
from common.settings import Settings
from common.store.client import connect_sync, translated
from common.store.keys import TICKET_FUNCTION, Keys
from common.store.offers import Offer
from common.store.schema import check_sync
from workers.tools import execution
from workers.tools.registry import names, preload

LONGEST_BEAT_S = 5
BEATS = "heartbeats"
RQ_LISTENS_LESS_S = 15
"""By so much less than its `worker_ttl` RQ waits for a job before it beats and waits again."""
log = logging.getLogger("hexgen.tools")


class TicketRefused(Exception):
    """A job that our relay did not write."""


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


class OnceAnOutage(logging.Filter):
    """RQ logs each of its tries, and a traceback where the store answers but does not serve. Of an outage, its
    beginning and its end are enough."""

    def __init__(self) -> None:
        super().__init__()
        self.tries = 0

    def filter(self, record: logging.LogRecord) -> bool:
        """RQ logs while it handles what has happened."""
        error = sys.exc_info()[1]
        if error is None:
            return True
        try:
            with translated():
                raise error
        except StoreUnavailable as trouble:
            self.away(trouble)
            return False
        except BaseException:
            return True

    def away(self, trouble: StoreUnavailable) -> None:
        """The store does not serve."""
        self.tries += 1
        if self.tries == 1:
            log.warning("tools: %s; trying again", trouble)

    def over(self) -> None:
        """The store has answered."""
        if self.tries:
            log.info("tools: back after %d failed tries", self.tries)
        self.tries = 0


class ToolWorker(Worker):  # type: ignore[misc]
    """RQ's worker, as patient with the store as ours. As it beats it offers its tools, until it is told to stop."""

    max_connection_wait_time = LONGEST_PAUSE_S
    told_to_stop = False
    offer: Offer
    health: Health

    def heartbeat(self, *args: Any, **options: Any) -> None:
        try:
            super().heartbeat(*args, **options)
            if not self.is_horse:
                self._tell()
        finally:
            if not self.is_horse:
                self.health.look()

    def handle_warm_shutdown_request(self) -> None:
        super().handle_warm_shutdown_request()
        self.told_to_stop = True

    def maintain_heartbeats(self, *args: Any) -> None:
        """A job goes on while the store is away: it hands in by itself."""
        with suppress(StoreUnavailable), translated():
            super().maintain_heartbeats(*args)

    def handle_work_horse_killed(self, job: Any, retpid: int, ret_val: int, rusage: Any) -> None:
        """The process of a job is gone. Told at once, it costs one attempt, not a lease for each."""
        assert _settings is not None
        asyncio.run(execution.report_death(_settings, os.waitstatus_to_exitcode(ret_val)))

    def _tell(self) -> None:
        """That the store has taken this is what makes a beat good: while a job runs RQ only lines its own up first."""
        with suppress(StoreUnavailable):
            if self.told_to_stop:
                self.offer.withdraw()
            else:
                self.offer.renew()
            _outage.over()
            self.health.good(BEATS)

    def register_death(self) -> None:
        with suppress(StoreUnavailable):
            self.offer.withdraw()
        with suppress(StoreUnavailable), translated():
            super().register_death()

    def bootstrap(self, *args: Any, **options: Any) -> None:
        super().bootstrap(*args, **options)
        log.info("tool worker %s is ready", self.name)

    def subscribe(self) -> None:
        """Takes no commands over the store, and so has no thread when it forks."""


_settings: Settings | None = None
_outage = OnceAnOutage()


def serve(settings: Settings) -> None:
    """Run tickets until SIGTERM; each in a process of its own, so that a tool that hangs can be ended.

    RQ gives up when the store goes away at the wrong moment: then it is started anew, until the store is back.
    """
    global _settings  # the forked job reads them
    _settings = settings
    preload()
    logging.getLogger("rq.worker").addFilter(_outage)
    log.info("tools: %s; databases: %s", ", ".join(names()), ", ".join(sorted(settings.databases)) or "none")
    try:
        _keep_working(settings)
    finally:
        log.info("tool worker has stopped")


def _keep_working(settings: Settings) -> None:
    health = Health((BEATS,), settings.lease_s, settings.health_file)
    while True:
        try:
            if _work(settings, health):
                return
        except StoreUnavailable as trouble:
            _outage.away(trouble)
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):  # RQ's handlers are those of a worker that is gone
                signal.signal(number, signal.SIG_DFL)
        health.look()
        threading.Event().wait(pause_s(_outage.tries))


def _work(settings: Settings, health: Health) -> bool:
    """Whether RQ ended because it was told to. Raises StoreUnavailable where it could not even begin."""
    with translated():
        connection = connect_sync(settings.redis_url)
        keys, beat_s = Keys(settings.namespace), max(1, min(LONGEST_BEAT_S, settings.lease_ms // 3000))
        check_sync(connection, keys)
        queue = Queue(keys.tickets, connection=connection, serializer=JSONSerializer, job_class=Ticket)
        worker = ToolWorker(
            [queue], name=f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}", connection=connection,
            serializer=JSONSerializer, job_class=Ticket, maintenance_interval=30, log_job_description=False,
            worker_ttl=beat_s + RQ_LISTENS_LESS_S, job_monitoring_interval=beat_s,
        )  # fmt: skip
        worker.health = health
        worker.offer = Offer(connection, keys, worker.name, names(), max(settings.lease_ms, 3000 * beat_s))
        worker.work(logging_level=logging.getLogger("rq").getEffectiveLevel())
    return worker.told_to_stop


def run_ticket(ticket: str) -> None:
    """Claim the most urgent tool request, if any is left, and run it. A ticket is a right, not an address."""
    assert _settings is not None
    hung = asyncio.run(execution.run(_settings, ticket))
    if hung:
        os._exit(1)  # its thread cannot be stopped; this process is the job's own
