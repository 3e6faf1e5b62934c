"""The master is lost under load, killed, and stopped until another has taken over: all come back by themselves."""

import importlib
import json
import logging
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import redis
from deployment import Deployment
from programs import debian_redis
from sentinels import Sentinels, wait_until

from common.store.keys import Keys
from hexgen_flow.client import Client, Unreachable

log = logging.getLogger(__name__)
PROOFS = Path(__file__).resolve().parents[2] / "scripts" / "proofs"
LEASE_S = 5.0
GOES_ON = 10
"""As many workflows completed under a master say that it is served."""
LOST_AT_MOST = 16
"""As many as are live at a time, since replication is asynchronous: on a busy machine one now and then."""
SIMULATED = ("--time-scale", "20", "--responder", "echo:500")


@pytest.fixture
def proofs(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(PROOFS)
    return importlib.import_module


@pytest.fixture
def masters(tmp_path: Path, program: Path | None) -> Iterator[Sentinels]:
    with Sentinels(tmp_path / "redis", program or debian_redis(tmp_path)) as running:
        yield running


class Watch:
    """How long the cell has stood still each time."""

    def __init__(self, store: "redis.Redis", keys: Keys) -> None:
        self._store, self._keys = store, keys
        self.stood_still_s: list[float] = []

    def goes_on(self, since: float) -> None:
        """Until so many more have completed; since: when it may have stood still, monotonic."""
        before = self._completed()
        wait_until("a workflow completed", lambda: self._completed() > before)
        self.stood_still_s.append(round(time.monotonic() - since, 1))
        wait_until("workflows completed", lambda: self._completed() >= before + GOES_ON)

    def _completed(self) -> int:
        with suppress(redis.RedisError):
            told: Any = self._store.hget(self._keys.ended, "completed")
            return int(told or 0)
        return 0


@pytest.mark.slow
def test_two_failovers_under_load(masters: Sentinels, namespace: str, tmp_path: Path, proofs: Any) -> None:
    load_module, checks, keys = proofs("chaos_load"), proofs("chaos_checks"), Keys(namespace)
    environment = {
        "HEXGEN_LEASE_S": str(LEASE_S),
        "HEXGEN_DATABASES": json.dumps(load_module.databases(tmp_path)),
    }
    with masters.connected() as store, Deployment(masters, namespace, tmp_path, **environment) as cell:
        cell.define(*load_module.WORKFLOWS)
        cell.coordinator("second", "--workflows", str(tmp_path / "workflows"))
        for name in ("one", "two"):
            cell.worker(name, *SIMULATED)
        cell.tools()
        load, watch = load_module.Load(masters.url, store, keys, 1), Watch(store, keys)
        load.start()
        watch.goes_on(time.monotonic())
        killed_at = time.monotonic()
        masters.signal("a", signal.SIGKILL)
        masters.until_master("b")
        watch.goes_on(killed_at)
        masters.start("a")
        masters.until_replica("a")
        with Client(masters.url, namespace) as idle:
            idle.submit("loop", {"text": "before"}, id="before")
            idle.wait("before", timeout_s=60)  # it is connected to the one that is stopped now
            stopped_at = time.monotonic()
            masters.signal("b", signal.SIGSTOP)
            masters.until_master("c")
            watch.goes_on(stopped_at)
            masters.signal("b", signal.SIGCONT)
            wait_until("b answers", lambda: masters.told("b")["role"] != "")
            after = _submit(idle, "after")  # b still takes itself for the master, and must not take it
        masters.until_replica("b")
        watch.goes_on(time.monotonic())
        load.stop()
        answers = load.answers | {name: load_module.answer("loop", name) for name in ("before", "after")}
        wait_until("no residue", lambda: _residue(checks, store, keys) == [])
        cell.processes.check()
        found = checks.Findings()
        checks.judge(cell.client, answers, load.cancelled, found)
        ledger = proofs("ledger").Ledger(keys.prefix)
        ledger.read(tmp_path / "redis" / "c")  # which was there all the time, and has the history that counts
        found.double_effects += ledger.double_effects()
        figures = {
            "workflows": len(answers), **found.ends, "requests": ledger.served, "lost": len(found.lost),
            "double_effects": len(found.double_effects), "stood_still_s": watch.stood_still_s[1:3],
            "refused_by_the_old_master": after,
        }  # fmt: skip
        log.info(json.dumps(figures))
        assert ledger.ended.total() == sum(found.ends.values())  # it has seen all of it
        assert found.double_effects == found.wrong == []
        assert [line for line in found.lost if "its last event: []" not in line] == []  # begun and not ended
        assert len(found.lost) <= LOST_AT_MOST
        assert after > 0
        for name in ("coordinator", "second", "one", "two"):
            assert "Traceback" not in cell.log(name)


def _submit(client: Client, name: str) -> int:
    """Submit until it is answered; how often it was not."""
    for refusals in range(1000):
        with suppress(Unreachable):
            client.submit("loop", {"text": name}, id=name)
            return refusals
        time.sleep(0.02)
    raise AssertionError("no master takes submissions")


def _residue(checks: Any, store: "redis.Redis", keys: Keys) -> list[str]:
    try:
        found: list[str] = checks.residue(store, keys)
    except redis.RedisError as error:
        found = [str(error)]
    return found
