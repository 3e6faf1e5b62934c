"""Redis, coordinator and two workers on hosts of their own; a host is cut off for longer than a lease, and healed."""

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import redis
from deployment import Deployment, chain, check_once
from hosts import Hosts
from sentinels import wait_until

from common.store.embedded import EmbeddedServer
from common.store.keys import Keys

PROOFS = Path(__file__).resolve().parents[2] / "scripts" / "proofs"
STAGES = 2
SIMULATED = ("--time-scale", "4", "--responder", "echo:400", "--profile", "a100")
OPTIONS = ("--bind", "0.0.0.0", "--auto-aof-rewrite-percentage", "0")


class Reached(NamedTuple):
    """From here the server is reached by its socket."""

    url: str


class Cell(NamedTuple):
    hosts: Hosts
    processes: Deployment
    store: "redis.Redis"
    keys: Keys

    def submit(self, count: int) -> list[str]:
        return [self.processes.client.submit(f"chain{STAGES}", {"text": f"{n}"}, slo_s=600) for n in range(count)]

    def status(self, instance: str) -> str:
        told: Any = self.store.hget(self.keys.instance(instance), "status")
        return str(told.decode())

    def served(self, instance: str) -> int:
        told: Any = self.store.hget(self.keys.served, instance)
        return int(told or 0)

    def running(self, *instances: str) -> bool:
        return any(self.store.scard(self.keys.claimed(instance)) for instance in instances)

    def ended_once(self, workflows: list[str]) -> None:
        for workflow in workflows:
            check_once(self.processes.events(workflow, timeout_s=120), STAGES)


@pytest.fixture
def cell(namespace: str, tmp_path: Path, program: Path | None) -> Iterator[Cell]:
    with Hosts("redis", "coordinator", "one", "two") as hosts:
        with hosts.on("redis"):
            server = EmbeddedServer.start(tmp_path / "redis", program=program, extra_args=OPTIONS)
        url = server.url.replace("127.0.0.1", hosts.address("redis"))
        there = Reached(server.socket_url)
        with server, Deployment(there, namespace, tmp_path, HEXGEN_REDIS_URL=url) as processes:
            with hosts.on("coordinator"):
                processes.define(chain(STAGES))
            for name in ("one", "two"):
                with hosts.on(name):
                    processes.worker(name, *SIMULATED)
            with redis.Redis.from_url(server.socket_url) as store:
                yield Cell(hosts, processes, store, Keys(namespace))


@pytest.mark.slow
def test_a_worker_is_cut_off_and_joins_again(cell: Cell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workflows = cell.submit(12)
    wait_until("worker one has work", lambda: cell.running("one"))
    cell.hosts.cut("one")
    cell.ended_once(workflows)  # on the other one
    assert cell.status("one") == "lost"
    before = cell.served("one")
    cell.hosts.heal("one")
    wait_until("it hands in late", lambda: "this has no effect" in cell.processes.log("one"))
    wait_until("it is back", lambda: cell.status("one") == "ready")
    assert cell.served("one") == before
    later = cell.submit(12)
    cell.ended_once(later)
    assert cell.served("one") > before
    cell.processes.processes.check()
    monkeypatch.syspath_prepend(PROOFS)
    ledger = importlib.import_module("ledger").Ledger(cell.keys.prefix)
    ledger.read(tmp_path / "redis")
    assert ledger.double_effects() == []
    assert ledger.served == STAGES * len(workflows + later)


@pytest.mark.slow
def test_the_coordinator_is_cut_off_and_goes_on(cell: Cell) -> None:
    workflows = cell.submit(6)
    wait_until("the workers have work", lambda: cell.running("one", "two"))
    cell.hosts.cut("coordinator")
    workflows += cell.submit(6)
    wait_until("the coordinator is not counted on", lambda: not _announced(cell))
    wait_until("the workers have nothing left to do", lambda: not cell.running("one", "two"))
    assert cell.store.zcard(cell.keys.live) > 0
    cell.hosts.heal("coordinator")
    cell.ended_once(workflows)
    assert [cell.status(name) for name in ("one", "two")] == ["ready", "ready"]
    cell.processes.processes.check()


def _announced(cell: Cell) -> bool:
    now: Any = cell.store.time()
    return bool(cell.store.zcount(cell.keys.coordinators, 1000 * now[0], "+inf"))
