"""A tool worker whose beats do not reach the store: it says so once, idle or at work, and lets its file grow old."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import redis
from rq import Queue
from rq.serializers import JSONSerializer

from common import clock
from common.health import LEAST_S, Health
from common.store.client import connect_sync
from common.store.embedded import EmbeddedServer
from common.store.keys import TICKET_FUNCTION, Keys
from common.store.offers import Offer
from workers.tools.rq_worker import BEATS, Ticket, ToolWorker

Beat = Callable[[], None]


@pytest.fixture
def own_server(tmp_path: Path, program: Path | None) -> Iterator[EmbeddedServer]:
    with EmbeddedServer.start(tmp_path / "redis", program=program) as running:
        yield running


@pytest.fixture
def worker(own_server: EmbeddedServer, namespace: str, tmp_path: Path) -> ToolWorker:
    connection, keys = connect_sync(own_server.url), Keys(namespace)
    queue = Queue(keys.tickets, connection=connection, serializer=JSONSerializer, job_class=Ticket)
    made = ToolWorker([queue], connection=connection, serializer=JSONSerializer, job_class=Ticket)
    made.health = Health((BEATS,), 1.0, str(tmp_path / "healthy"))
    made.offer = Offer(connection, keys, made.name, ["t"], 60_000)
    made.register_birth()
    return made


def idle(worker: ToolWorker) -> Beat:
    def beat() -> None:
        with suppress(redis.RedisError):  # RQ tries again
            worker.heartbeat()

    return beat


def at_work(worker: ToolWorker) -> Beat:
    job = worker.queues[0].enqueue(TICKET_FUNCTION, "ticket")
    execution = worker.prepare_execution(job)
    return lambda: worker.maintain_heartbeats(job, execution)


@pytest.mark.parametrize("doing", [idle, at_work])
def test_it_tells_when_it_is_not_well_and_when_it_is_again(
    own_server: EmbeddedServer, worker: ToolWorker, tmp_path: Path, doing: Callable[[ToolWorker], Beat],
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    caplog.set_level("INFO", "hexgen.health")
    file, beat, now = tmp_path / "healthy", doing(worker), clock.monotonic_s()
    monkeypatch.setattr(clock, "monotonic_s", lambda: now)
    beat()
    assert file.exists()
    with redis.Redis.from_url(own_server.url) as store:
        store.replicaof("127.0.0.1", 1)
        file.unlink()
        for _ in range(3):
            now += LEAST_S + 1
            beat()
        assert not file.exists()
        store.replicaof("NO", "ONE")
        for _ in range(2):
            beat()
    assert file.exists()
    told = [record.getMessage() for record in caplog.records if record.name == "hexgen.health"]
    assert told == [f"unhealthy: no good turn for {LEAST_S:g} s of {BEATS}", "healthy again"]
