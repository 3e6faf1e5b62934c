"""The tuner's process: an RQ worker of its own that, as it beats, enqueues a round when one is due, and runs it.

Rounds run in this process: what the simulator has compiled stays there. Nothing that comes over RQ is trusted: a job
carries nothing, and any other function is refused.
"""

import asyncio
import logging
import os
import secrets
import signal
import socket
import threading
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from rq import Queue, SimpleWorker
from rq.exceptions import DuplicateJobError
from rq.job import Job
from rq.serializers import JSONSerializer

from common import clock
from common.backoff import LONGEST_PAUSE_S, pause_s
from common.errors import HexgenError, StoreUnavailable
from common.settings import Settings
from common.store.cell import Cell
from common.store.client import connect_sync, translated
from common.store.keys import Keys
from common.store.schema import check_sync
from coordinator.loops.round import Plan, due, tune_once
from coordinator.replay import warm

ROUND_FUNCTION = "coordinator.loops.tuner.run_round"
ROUND_RUNS_S = 120
BEAT_S = 5
RQ_LISTENS_LESS_S = 15
"""By so much less than its `worker_ttl` RQ waits for a job before it beats and waits again."""
log = logging.getLogger("hexgen.tuner")


class RoundRefused(Exception):
    """A job that no tuner wrote."""


class Round(Job):  # type: ignore[misc]
    """A job that can only be a round: no other function, no arguments, no callback, whatever its record says."""

    def restore(self, raw_data: Any) -> None:
        super().restore(raw_data)
        self._success_callback_name = self._failure_callback_name = self._stopped_callback_name = None
        self.webhooks: list[Any] = []

    def _execute(self) -> None:
        if self.func_name != ROUND_FUNCTION or self.args or self.kwargs:
            raise RoundRefused(f"job {self.id} asks for {self.func_name!r}; only rounds of the tuner are run")
        run_round()


class TunerWorker(SimpleWorker):  # type: ignore[misc]
    """RQ's worker without forks."""

    max_connection_wait_time = LONGEST_PAUSE_S
    told_to_stop = False

    def heartbeat(self, *args: Any, **options: Any) -> None:
        super().heartbeat(*args, **options)
        if not self.get_current_job_id():
            with suppress(StoreUnavailable):
                asyncio.run(self._enqueue_if_due())

    async def _enqueue_if_due(self) -> None:
        assert _work is not None
        async with Cell.opened(_work.settings.redis_url, _work.settings.namespace) as cell:
            if not await due(cell, _work.plan):
                return
            beat = await cell.records.now_ms() // (1000 * BEAT_S)
        with suppress(DuplicateJobError), translated():  # one a beat, however many tuners there are
            self.queues[0].enqueue(
                ROUND_FUNCTION, job_id=f"{self.queues[0].name}-{beat}", unique=True, job_timeout=ROUND_RUNS_S,
                ttl=4 * BEAT_S, result_ttl=0, failure_ttl=60,
            )  # fmt: skip

    def handle_warm_shutdown_request(self) -> None:
        super().handle_warm_shutdown_request()
        self.told_to_stop = True

    def subscribe(self) -> None:
        """Takes no commands over the store, and so has no thread."""


@dataclass(slots=True)
class _Work:
    """What the rounds of this process need: RQ hands them nothing. counted_s: CPU time that rounds have told of."""

    settings: Settings
    plan: Plan
    counted_s: float = 0.0


_work: _Work | None = None


def serve(settings: Settings, plan: Plan) -> None:
    """Run rounds until SIGTERM, behind everything else on this machine. Raises HexgenError without numba.

    RQ gives up when the store goes away at the wrong moment: then it is started anew.
    """
    global _work  # the jobs read it
    _work = _Work(settings, plan)
    os.nice(10)
    began_s = clock.monotonic_s()
    if not warm():
        raise HexgenError("without numba a replay takes 300 times as long; install it: pip install 'hexgen-flow[sim]'")
    log.info("the simulator was made ready in %.1f s", clock.monotonic_s() - began_s)
    _work.counted_s = clock.cpu_s()
    log.info("the tuner of namespace %s is ready%s", settings.namespace, ", in shadow mode" if plan.shadow else "")
    failures = 0
    while not _served(settings):
        failures += 1
        for number in (signal.SIGINT, signal.SIGTERM):  # RQ's handlers are those of a worker that is gone
            signal.signal(number, signal.SIG_DFL)
        threading.Event().wait(pause_s(failures))
    log.info("the tuner has stopped")


def _served(settings: Settings) -> bool:
    """Whether RQ ended because it was told to."""
    with suppress(StoreUnavailable), translated():
        connection, keys = connect_sync(settings.redis_url), Keys(settings.namespace)
        check_sync(connection, keys)
        queue = Queue(keys.tuner, connection=connection, serializer=JSONSerializer, job_class=Round)
        worker = TunerWorker(
            [queue], name=f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}", connection=connection,
            serializer=JSONSerializer, job_class=Round, maintenance_interval=30, log_job_description=False,
            worker_ttl=BEAT_S + RQ_LISTENS_LESS_S,
        )  # fmt: skip
        worker.work(logging_level=logging.getLogger("rq").getEffectiveLevel())
        return bool(worker.told_to_stop)
    return False


def run_round() -> None:
    """One round, if it is still due: a job may have waited behind another's."""
    assert _work is not None
    asyncio.run(_round(_work))


async def _round(work: _Work) -> None:
    async with Cell.opened(work.settings.redis_url, work.settings.namespace) as cell:
        if await due(cell, work.plan):
            told = await tune_once(cell, work.settings, work.plan, work.counted_s)
            work.counted_s = clock.cpu_s()
            log.info("%s: %s (policy %s, %s)", told["action"], told["reason"], told["policy"], told["values"])
