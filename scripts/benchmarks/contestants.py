"""Who takes part: the processes that run the jobs, and how the load is put on them. Must not start anything."""

import signal
import sys
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
_BIN = Path(sys.executable).parent


@dataclass(frozen=True, slots=True)
class Contestant:
    """`processes` and `driver` are command lines; the driver's goes on with chains, length and payload bytes.

    `successors`: who may enqueue the next request of a chain (see `noop_job`); the best of them counts.
    `on_parent_death` ends the processes should the benchmark be killed: a peer's must still end its children; ours have
    none, and would wait for the server, gone too, to hand back their work.
    """

    name: str
    processes: tuple[tuple[str, ...], ...]
    driver: tuple[str, ...]
    successors: tuple[str, ...]
    on_parent_death: signal.Signals


def _peer(name: str, *worker: str) -> Contestant:
    driver = (sys.executable, str(HERE / "drive.py"), name)
    return Contestant(name, ((sys.executable, "-m", *worker),), driver, ("job", "driver"), signal.SIGTERM)


def _ours() -> Contestant:
    coordinator = (str(_BIN / "hexgen-flow"), "coordinator", "--log-level", "WARNING")
    worker = (sys.executable, str(HERE / "noop_worker.py"))
    driver = (sys.executable, str(HERE / "drive_ours.py"))
    return Contestant("hexgen_flow", (coordinator, worker), driver, ("coordinator",), signal.SIGKILL)


_QUIET_CELERY = ("--without-gossip", "--without-mingle", "--without-heartbeat", "--loglevel", "WARNING")
CONTESTANTS = {
    contestant.name: contestant
    for contestant in (
        _ours(),
        _peer("rq", "rq.cli", "worker", "--quiet", "--worker-class", "rq.SimpleWorker", "bench"),
        # One process: solo saves Celery the pipe to a child of its own.
        _peer("celery", "celery", "-A", "peers.celery_peer", "worker", "--pool", "solo", *_QUIET_CELERY),
        _peer("dramatiq", "dramatiq", "peers.dramatiq_peer", "--processes", "1"),
        _peer("taskiq", "taskiq", "worker", "peers.taskiq_peer:broker", "--workers", "1", "--log-level", "WARNING"),
    )
}
