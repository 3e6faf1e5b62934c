"""The processes of one cell and what is done to them. Must not know workflows, nor whether what it does is survived."""

import heapq
import json
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import redis

from common.store.embedded import EmbeddedServer
from common.store.keys import Keys
from hexgen_flow.processes import Processes

ROLES = {"coordinator": 2, "worker": 4, "tools": 1}
LEASE_S = 2.0
READY_S = 120.0
DRAIN_S = 60.0
SERVER_OPTIONS = ("--appendfsync", "always", "--auto-aof-rewrite-percentage", "0")
"""What was answered is on disk; and the file tells all that ever took effect."""


class ChaosCell:
    """Coordinators, workers with simulated engines, a tool worker and their Redis. Use in the main thread."""

    def __init__(self, folder: Path, keys: Keys, chance: Random, environment: Mapping[str, str]) -> None:
        self._folder, self._keys, self._random = folder, keys, chance
        self._server = EmbeddedServer.start(folder / "redis", extra_args=SERVER_OPTIONS)
        self.url = self._server.url
        self.store = redis.Redis.from_url(self.url)
        cell = {"HEXGEN_REDIS_URL": self.url, "HEXGEN_NAMESPACE": keys.namespace, "HEXGEN_LEASE_S": str(LEASE_S)}
        kept = {"HEXGEN_KEEP_DONE_S": "86400", "HEXGEN_LEASE_LOSSES": "100"}  # faults are no fault of a request
        self._processes = Processes(folder / "logs", cell | kept | dict(environment))
        self._pids: dict[str, int] = {}
        self._stopped: list[tuple[float, str]] = []
        self._count = 0
        self.faults: Counter[str] = Counter()

    def __enter__(self) -> "ChaosCell":
        return self

    def __exit__(self, *_: object) -> None:
        self._processes.stop()
        self.store.close()
        self._server.stop()

    @property
    def state(self) -> Path:
        """Where the server keeps its append-only file."""
        return self._folder / "redis"

    def start(self, workflows: tuple[dict[str, Any], ...]) -> None:
        """Start all, the coordinators with these definitions, and wait until all are there."""
        (self._folder / "workflows").mkdir()
        for workflow in workflows:
            (self._folder / "workflows" / f"{workflow['name']}.json").write_text(json.dumps(workflow))
        for role, count in ROLES.items():
            for _ in range(count):
                self._start_new(role)
        read: Any = self.store
        give_up_at = time.monotonic() + READY_S
        there = (self._keys.coordinators, self._keys.instances, self._keys.offers)
        while [read.zcard(key) for key in there] != list(ROLES.values()):
            self.check()
            if time.monotonic() > give_up_at:
                raise TimeoutError(f"the processes were not ready within {READY_S:.0f} s")
            time.sleep(0.1)

    def check(self) -> None:
        """Raise HexgenError if a process has ended by itself."""
        self._processes.check()

    def inject(self, kind: str) -> bool:
        """One fault of that kind; False where nobody is there that it could meet."""
        self.wake(time.monotonic())
        verb, _, role = kind.partition(" ")
        if role in ROLES:
            stopped = {name for _, name in self._stopped}
            names = sorted(name for name in self._pids if name.startswith(role) and name not in stopped)
            if not names:
                return False
            self._deeds[verb](self, self._random.choice(names))
        else:
            self._server_deeds[kind](self)
        self.faults[kind] += 1
        return True

    def wake(self, until: float = float("inf")) -> None:
        """SIGCONT for those whose pause is over by then."""
        while self._stopped and self._stopped[0][0] <= until:
            self._signal(heapq.heappop(self._stopped)[1], signal.SIGCONT)

    # -- what can be done to a process

    def _restart(self, name: str) -> None:
        self._kill(name)
        self._start(name)

    def _replace(self, name: str) -> None:
        """Killed for good. Another one joins, under a name that was never there."""
        self._kill(name)
        self._start_new(name.partition("-")[0])

    def _stop(self, name: str) -> None:
        self._signal(name, signal.SIGSTOP)
        heapq.heappush(self._stopped, (time.monotonic() + LEASE_S * self._random.uniform(1.2, 2.5), name))

    def _drain(self, name: str) -> None:
        code = self._processes.stop_one(name, DRAIN_S)
        if code not in (0, -signal.SIGTERM):  # the latter where it has just begun to start
            raise RuntimeError(f"{name} was told to stop and ended with code {code}: see {self._folder / 'logs'}")
        self._start(name)

    _deeds: Mapping[str, Callable[["ChaosCell", str], None]] = {
        "kill": _restart, "kill-for-good": _replace, "stop": _stop, "drain": _drain,
    }  # fmt: skip

    # -- and to the server

    def _kill_server(self) -> None:
        os.kill(self._server.pid, signal.SIGKILL)
        self._server.stop()
        time.sleep(self._random.uniform(0.0, LEASE_S))
        self._server = EmbeddedServer.start(self.state, port=self._server.port, extra_args=SERVER_OPTIONS)

    def _flush_scripts(self) -> None:
        self.store.script_flush()

    _server_deeds: Mapping[str, Callable[["ChaosCell"], None]] = {
        "kill redis": _kill_server, "flush scripts": _flush_scripts,
    }  # fmt: skip

    def _start_new(self, role: str) -> None:
        self._count += 1
        self._start(f"{role}-{self._count}")

    def _start(self, name: str) -> None:
        role = name.partition("-")[0]
        simulated = ["--time-scale", "20", "--responder", "echo:500", "--grace-s", "1"]
        options = {
            "coordinator": ["--workflows", str(self._folder / "workflows")],
            "worker": ["--instance", name, *simulated],
        }
        self._pids[name] = self._processes.start(name, [role, *options.get(role, [])])

    def _kill(self, name: str) -> None:
        self._signal(name, signal.SIGKILL)
        self._processes.ended(name, DRAIN_S)
        del self._pids[name]

    def _signal(self, name: str, number: signal.Signals) -> None:
        """To the process and those it has started: a tool runs in a process of its own."""
        for pid in _tree(self._pids[name]):
            with suppress(ProcessLookupError):
                os.kill(pid, number)


_VERBS = ("kill", "stop", "drain")
KINDS = (
    *(f"{verb} {role}" for verb in _VERBS for role in ROLES), "kill-for-good worker", "kill redis", "flush scripts",
)  # fmt: skip


def _tree(pid: int) -> list[int]:
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        children = []
    return [pid, *(inner for child in children for inner in _tree(int(child)))]
