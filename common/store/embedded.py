"""A Redis server of our own for trying and for tests: one child process, its data in a state directory.

Must not know what is stored, nor who connects. Deployments run a server of their own and never come here.
"""

import fcntl
import hashlib
import os
import secrets
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from common import clock
from common.lifeline import tied
from common.store.server_program import EmbeddedServerError, find_server

__all__ = ["EmbeddedServer", "EmbeddedServerError", "find_server"]

_READY_S = 30.0
_STOP_S = 10.0
_POLL_S = 0.01
_PING_S = 0.2
_PORT_RETRIES = 5
_LOG_TAIL_LINES = 15
_SOCKET_PATH_BYTES = 100
"""The kernel takes 107 bytes on Linux and 103 on macOS."""
_HIGHEST_PORT = 55535
"""A server with --cluster-enabled also takes the port 10000 above."""


class _PortTakenError(EmbeddedServerError):
    """Somebody took the port between our look and the server's bind."""


class EmbeddedServer:
    """A running server. Leaving the context stops it; on Linux it also dies with this process, however that ends.

    `url` and `socket_url` (redis:// and unix://, password included) stay the same over restarts in one state directory,
    `url` as long as nobody else takes its port. `version` is the server's own word, such as "valkey 9.1.2".
    """

    def __init__(
        self, program: Path, process: "subprocess.Popen[bytes]", port: int, socket_path: Path, password: str
    ) -> None:
        self.program = program
        self._process = process
        self.port = port
        self.pid = process.pid
        # With the user named: `redis-cli -u` of Redis 7.0 takes `:password` as that of a user without a name.
        self.url = f"redis://default:{password}@127.0.0.1:{port}/0"
        self.socket_url = f"unix://default:{password}@{quote(str(socket_path))}?db=0"
        self.version = ""

    @classmethod
    def start(
        cls,
        state_dir: Path,
        *,
        port: int = 0,
        appendonly: bool = True,
        extra_args: Sequence[str] = (),
        program: Path | None = None,
    ) -> Self:
        """Run a server on `state_dir` (made if missing) and wait until it answers.

        `port` 0 takes the last one again, or where that is taken a free one. `extra_args` are the server's own options,
        such as ("--maxmemory", "50mb"). Raises EmbeddedServerError with the end of the server's log if it does not come
        up, or if another one uses `state_dir`; RuntimeError outside the main thread.
        """
        program = program or find_server()
        state_dir = state_dir.resolve()
        state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        options = ["--appendonly", "yes" if appendonly else "no", *extra_args]
        with _held(state_dir) as hold:
            last = 0 if port else _last_port(state_dir)
            for attempt in range(0 if port else _PORT_RETRIES):
                with suppress(_PortTakenError):
                    choice = last if last and attempt == 0 else _free_port()
                    return cls._launch(program, state_dir, hold, choice, options)
            return cls._launch(program, state_dir, hold, port or _free_port(), options)

    @classmethod
    def _launch(cls, program: Path, state_dir: Path, hold: int, port: int, options: Sequence[str]) -> Self:
        socket_path, password = _socket_path(state_dir), _password(state_dir)
        fixed = {
            "--bind": "127.0.0.1",
            "--port": str(port),
            "--unixsocket": str(socket_path),
            "--unixsocketperm": "700",
            "--dir": str(state_dir),
            "--maxmemory-policy": "noeviction",
            "--save": "",
        }
        flat = [word for option in fixed.items() for word in option]
        log_path = state_dir / "server.log"
        with log_path.open("wb") as log:
            process = subprocess.Popen(
                tied([str(program), "-", *flat, *options]),
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                pass_fds=(hold,),
                start_new_session=True,  # Ctrl-C is for us: the server must still answer while others drain
            )
        server = cls(program, process, port, socket_path, password)
        try:
            _tell_password(process, password)
            server._wait_ready(log_path)
        except BaseException:
            server.stop()
            raise
        os.pwrite(hold, b"%-10d\n" % server.pid, 0)
        (state_dir / "port").write_text(str(port))
        return server

    def _wait_ready(self, log_path: Path) -> None:
        give_up_at = clock.monotonic_s() + _READY_S
        with redis.Redis.from_url(self.url, socket_timeout=_PING_S, retry=Retry(NoBackoff(), 0)) as client:
            while clock.monotonic_s() < give_up_at:
                with suppress(subprocess.TimeoutExpired):
                    code = self._process.wait(_POLL_S)
                    raise _failure(f"ended with code {code} before it answered", log_path)
                with suppress(redis.RedisError):  # not listening yet, loading, or another server on this port
                    client.ping()
                    self.version = _told_version(client)
                    return
        raise _failure(f"did not answer within {_READY_S:.0f} s", log_path)

    def wait(self) -> None:
        """Until the server ends by itself. Raises EmbeddedServerError then."""
        code = self._process.wait()
        raise EmbeddedServerError(f"The embedded server ended with code {code}.")

    def stop(self) -> None:
        """End the server and wait for it; data are kept if it ran with `appendonly`. Again is harmless."""
        self._process.terminate()
        try:
            self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


@contextmanager
def _held(state_dir: Path) -> Iterator[int]:
    """Lock the state directory. The server inherits the lock, so that it ends with the server and no sooner."""
    hold = os.open(state_dir / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        _lock(hold, state_dir)
        yield hold
    finally:
        os.close(hold)


def _lock(hold: int, state_dir: Path) -> None:
    try:
        fcntl.flock(hold, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(hold, 20, 0).decode().strip() or "unknown: it is starting"
        raise EmbeddedServerError(
            f"Another server (pid {holder}) uses {state_dir}: stop it, or choose another state directory."
        ) from None


def _password(state_dir: Path) -> str:
    """The server's password: made once per state directory, so that clients can come back after a restart."""
    path = state_dir / "password"
    if not path.exists():
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(secrets.token_hex(16))
    return path.read_text()


def _tell_password(process: "subprocess.Popen[bytes]", password: str) -> None:
    # By standard input: everybody on the host can read a command line.
    assert process.stdin is not None
    with suppress(BrokenPipeError), process.stdin as config:
        config.write(f"requirepass {password}\n".encode())


def _socket_path(state_dir: Path) -> Path:
    path = state_dir / "redis.sock"
    if len(os.fsencode(path)) <= _SOCKET_PATH_BYTES:
        return path
    short = hashlib.sha256(os.fsencode(state_dir)).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"hexgen-flow-{short}.sock"


def _last_port(state_dir: Path) -> int:
    """The port that was taken last in this state directory, which clients may know; 0 where none is known."""
    try:
        port = int((state_dir / "port").read_text())
    except (OSError, ValueError):
        return 0
    return port if 0 < port < 1 << 16 else 0


def _free_port() -> int:
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = int(probe.getsockname()[1])
        if port <= _HIGHEST_PORT:
            return port


def _told_version(client: redis.Redis) -> str:
    info: Any = client.info("server")
    return f"valkey {info['valkey_version']}" if "valkey_version" in info else f"redis {info['redis_version']}"


def _failure(what: str, log_path: Path) -> EmbeddedServerError:
    tail = "\n".join(log_path.read_text(errors="replace").splitlines()[-_LOG_TAIL_LINES:])
    kind = _PortTakenError if "Address already in use" in tail else EmbeddedServerError
    return kind(f"The embedded server {what}. The end of {log_path}:\n{tail}")
