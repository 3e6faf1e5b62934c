"""Redis servers that replicate, and Sentinels that make another one the master. Not a test itself."""

import os
import secrets
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Self

import redis

from common.lifeline import tied
from common.store.client import connect_sync
from common.store.embedded import EmbeddedServer, _free_port

SERVICE = "main"
SENTINELS = 3
PRIORITIES = {"a": 100, "b": 10, "c": 20}
"""Of those that can become the master the lowest does: after "a" it is "b", after that "c"."""
WAITS_S = 120.0
SENTINEL = """port {port}
bind 127.0.0.1
dir {folder}
requirepass {password}
sentinel monitor {service} 127.0.0.1 {master} 2
sentinel auth-pass {service} {password}
sentinel down-after-milliseconds {service} 1000
sentinel failover-timeout {service} 5000
"""


def wait_until(what: str, held: Callable[[], bool], timeout_s: float = WAITS_S) -> None:
    """Look again until it holds. Raises AssertionError after timeout_s."""
    until = time.monotonic() + timeout_s
    while not held():
        assert time.monotonic() < until, f"not in {timeout_s:.0f} s: {what}"
        time.sleep(0.05)


class Sentinels:
    """Three servers, "a" at first their master, and three Sentinels. A master without a replica takes no writes."""

    def __init__(self, folder: Path, program: Path) -> None:
        self._folder, self._program, self._password = folder, program, secrets.token_hex(16)
        self._processes: list[subprocess.Popen[bytes]] = []
        self.servers: dict[str, EmbeddedServer] = {}
        self._ports = [_free_port() for _ in range(SENTINELS)]
        hosts = ",".join(f"127.0.0.1:{port}" for port in self._ports)
        self.url = f"redis+sentinel://:{self._password}@{hosts}/{SERVICE}/0"

    def __enter__(self) -> Self:
        with ExitStack() as undo:
            undo.callback(self._stop)
            self.start("a")
            for name in ("b", "c"):
                self.start(name, "--replicaof", "127.0.0.1", str(self.servers["a"].port))
            wait_until("two replicas", lambda: self.told("a").get("min_slaves_good_slaves") == 2)
            for port in self._ports:
                self._start_sentinel(port)
            wait_until("Sentinels that know each other", lambda: self._others() == [SENTINELS - 1] * SENTINELS)
            undo.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def start(self, name: str, *options: str) -> None:
        """Start a server, or start it again where it was: as what it was started as."""
        state, before = self._folder / name, self.servers.get(name)
        state.mkdir(parents=True, exist_ok=True)
        (state / "password").write_text(self._password)
        fixed = {"masterauth": self._password, "replica-priority": str(PRIORITIES[name]), "min-replicas-to-write": "1",
                 "repl-diskless-sync-delay": "0", "auto-aof-rewrite-percentage": "0"}  # fmt: skip
        flat = [word for option, value in fixed.items() for word in (f"--{option}", value)]
        port = before.port if before else 0
        self.servers[name] = EmbeddedServer.start(state, port=port, program=self._program, extra_args=[*flat, *options])

    def signal(self, name: str, number: signal.Signals) -> None:
        os.kill(self.servers[name].pid, number)
        if number == signal.SIGKILL:
            self.servers[name].stop()

    def told(self, name: str) -> dict[str, Any]:
        """What a server says of its replication; its role is "" while it does not answer."""
        with redis.Redis.from_url(self.servers[name].url, socket_timeout=1) as connection, suppress(redis.RedisError):
            told: Any = connection.info("replication")
            return dict(told)
        return {"role": ""}

    def until_master(self, name: str) -> None:
        """Until all Sentinels take this server for the master, and it takes writes."""
        port = self.servers[name].port
        wait_until(f"master {name}", lambda: [state.get("port") for state in self._states()] == [port] * SENTINELS)
        wait_until(f"a replica of {name}", lambda: self.told(name).get("min_slaves_good_slaves", 0) > 0)

    def until_replica(self, name: str) -> None:
        wait_until(f"replica {name}", lambda: self.told(name).get("master_link_status") == "up")

    @contextmanager
    def connected(self) -> Iterator["redis.Redis"]:
        """A connection to whichever is the master."""
        connection = connect_sync(self.url)
        try:
            yield connection
        finally:
            pool: Any = connection.connection_pool
            for sentinel in pool.sentinel_manager.sentinels:
                sentinel.close()
            connection.close()

    def _start_sentinel(self, port: int) -> None:
        folder = self._folder / f"sentinel-{port}"
        folder.mkdir()
        file = folder / "sentinel.conf"
        file.write_text(
            SENTINEL.format(port=port, folder=folder, password=self._password, service=SERVICE,
                            master=self.servers["a"].port)
        )  # fmt: skip
        command = tied([str(self._program), str(file), "--sentinel"])
        with (folder / "log").open("wb") as log:
            self._processes.append(subprocess.Popen(command, stdout=log, stderr=log))

    def _states(self) -> list[dict[str, Any]]:
        """What each Sentinel says of the service."""
        states = []
        for port in self._ports:
            with redis.Redis(port=port, password=self._password) as connection, suppress(redis.RedisError):
                told: Any = connection.sentinel_master(SERVICE)
                states.append(dict(told))
        return states

    def _others(self) -> list[int]:
        return [int(state["num-other-sentinels"]) for state in self._states()]

    def _stop(self) -> None:
        for process in self._processes:
            process.terminate()
            process.wait()
        for server in self.servers.values():
            with suppress(ProcessLookupError):
                os.kill(server.pid, signal.SIGCONT)
            server.stop()
