"""A server that is there but does not serve: under load all come back by themselves, say so once, run nothing twice."""

import os
import secrets
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest
from counted import Counted, launch

LEASE_S = 3.0
LASTS_S = 1.5 * LEASE_S
LENGTHS = (110, 140, 170, 210, 250)
"""In tokens of 35 ms: from before the end of the trouble until well after it."""
State = Callable[[Counted], AbstractContextManager[None]]


@contextmanager
def readonly(cell: Counted) -> Iterator[None]:
    """As one that a Sentinel has made a replica."""
    cell.store.replicaof("127.0.0.1", 1)
    yield
    cell.store.replicaof("NO", "ONE")


@contextmanager
def full(cell: Counted) -> Iterator[None]:
    cell.store.config_set("maxmemory", 1)
    yield
    cell.store.config_set("maxmemory", 0)


@contextmanager
def misconfigured(cell: Counted) -> Iterator[None]:
    """It cannot save, and so takes no writes: there is a folder where the file should be."""
    obstacle = cell.folder / "redis" / "dump.rdb"
    (obstacle / "full").mkdir(parents=True)
    cell.store.config_set("save", "3600 1")
    cell.store.bgsave()
    cell.until_true(lambda: cell.store.info("persistence")["rdb_last_bgsave_status"] == "err")
    yield
    cell.store.config_set("save", "")
    (obstacle / "full").rmdir()
    obstacle.rmdir()


@contextmanager
def paused(cell: Counted) -> Iterator[None]:
    cell.store.client_pause(round(1000 * LASTS_S))
    yield


@contextmanager
def without_scripts(cell: Counted) -> Iterator[None]:
    cell.store.script_flush()
    yield
    cell.store.script_flush()


@contextmanager
def without_connections(cell: Counted) -> Iterator[None]:
    cell.store.client_kill_filter(_type="normal", skipme=True)
    yield


@contextmanager
def standing_still(cell: Counted) -> Iterator[None]:
    os.kill(cell.server.pid, signal.SIGSTOP)
    yield
    os.kill(cell.server.pid, signal.SIGCONT)


UNHEARD = {paused, without_scripts, standing_still}
"""Shorter than anybody waits for an answer, or mended with the same call: there may be nothing to tell."""
STATES: tuple[State, ...] = (
    readonly, full, misconfigured, paused, without_scripts, without_connections, standing_still,
)  # fmt: skip


@pytest.fixture(scope="module")
def cell(tmp_path_factory: pytest.TempPathFactory, program: Path | None) -> Iterator[Counted]:
    folder = tmp_path_factory.mktemp("states")
    with launch(folder, program=program) as server:
        namespace = f"test-{secrets.token_hex(4)}"
        with Counted(server, namespace, folder, HEXGEN_LEASE_S=str(LEASE_S)) as opened:
            opened.begin("--engine", "simulated", "--responder", "echo")
            yield opened


def under_load(cell: Counted) -> None:
    """Until requests run."""
    cell.submit_long(*LENGTHS, stream=True)
    cell.until_true(lambda: cell.count("zcard", cell.keys.leases) == len(LENGTHS))
    cell.submit(3)


@pytest.mark.slow
@pytest.mark.parametrize("state", STATES)
def test_all_come_back_and_nothing_runs_twice(cell: Counted, state: State) -> None:
    marks = cell.marks()
    under_load(cell)
    with state(cell):
        threading.Event().wait(LASTS_S)
    cell.settle()
    cell.submit(2)
    cell.settle()
    assert cell.faults() == []
    assert cell.run_twice() == {}
    told = cell.outages(marks)
    most = max(max(loops.values(), default=0) for loops in told.values())
    assert (0 if state in UNHEARD else 1) <= most <= 2, told
