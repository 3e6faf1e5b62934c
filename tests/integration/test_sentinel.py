"""Sentinels that are asked for the server, by our processes and by the client, with one and the same URL."""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis
from redis.backoff import ConstantBackoff
from redis.retry import Retry
from redis.sentinel import SentinelManagedSSLConnection

from common.lifeline import tied
from common.store import client as client_module
from common.store.cell import Cell
from common.store.client import connect_sync
from common.store.embedded import EmbeddedServer, _free_port, find_server
from hexgen_flow.client import Client, InvalidValue, Unreachable

DATABASE = 3


@pytest.fixture(scope="module")
def hosts(server: EmbeddedServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Two Sentinels, the first of which is dead, as a URL has them, with the password."""
    port, password = _free_port(), redis.connection.parse_url(server.url)["password"]
    file = Path(tmp_path_factory.mktemp("sentinel")) / "sentinel.conf"
    watched = f"sentinel monitor main 127.0.0.1 {server.port} 1\nsentinel auth-pass main {password}\n"
    file.write_text(f"port {port}\nbind 127.0.0.1\nrequirepass {password}\n{watched}")
    process = subprocess.Popen(tied([str(find_server()), str(file), "--sentinel"]), stdout=subprocess.DEVNULL)
    patient = Retry(ConstantBackoff(0.05), 200)
    with redis.Redis(port=port, password=password, retry=patient) as connection:
        assert connection.ping()
    yield f":{password}@127.0.0.1:1,127.0.0.1:{port}"
    process.send_signal(signal.SIGTERM)
    process.wait()


async def test_all_find_the_server_and_its_database(hosts: str, server: EmbeddedServer, namespace: str) -> None:
    url = f"redis+sentinel://{hosts}/main/{DATABASE}"
    with Client(url, namespace) as client:
        client.submit("chain")
    submissions = f"{{hexgen:{namespace}}}:submissions"
    with connected(url) as connection:
        assert connection.info("server")["process_id"] == server.pid
        assert connection.xlen(submissions) == 1
    async with Cell.opened(url, namespace) as cell:
        assert (await cell.records.counts())["submitted"] == 1
    with redis.Redis.from_url(server.url.removesuffix("/0") + f"/{DATABASE}") as direct:
        assert direct.delete(submissions) == 1


async def test_a_sentinel_that_does_not_answer_is_asked_once(
    hosts: str, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "SENTINEL_ANSWER_S", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.setblocking(False)
        url = f"redis+sentinel://{hosts.replace(':1,', f':{silent.getsockname()[1]},')}/main"
        async with Cell.opened(url, namespace) as cell:
            assert await cell.records.counts()
        silent.accept()[0].close()
        with pytest.raises(BlockingIOError):
            silent.accept()


@contextmanager
def connected(url: str) -> Iterator[redis.Redis]:
    """As RQ is."""
    connection = connect_sync(url)
    yield connection
    for sentinel in connection.connection_pool.sentinel_manager.sentinels:
        sentinel.close()
    connection.close()


@pytest.mark.parametrize("whose", ["ours", "RQ's"])
async def test_a_command_sent_again_asks_for_the_master_again(
    hosts: str, server: EmbeddedServer, namespace: str, whose: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(client_module._LIMITS, "socket_timeout", 0.5)
    url, password, port = f"redis+sentinel://{hosts}/{namespace}", hosts.partition("@")[0][1:], hosts.rpartition(":")[2]
    (tmp_path / "password").write_text(password)
    with redis.Redis(port=int(port), password=password) as sentinel, EmbeddedServer.start(tmp_path) as silent:

        def watch(master: EmbeddedServer) -> None:
            sentinel.sentinel_monitor(namespace, "127.0.0.1", master.port, 1)
            sentinel.sentinel_set(namespace, "auth-pass", password)

        watch(silent)
        with connected(url) as connection:
            async with Cell.opened(url, namespace) as cell:

                async def count() -> int:
                    return await cell.client.incr(namespace) if whose == "ours" else connection.incr(namespace)

                assert await count() == 1
                os.kill(silent.pid, signal.SIGSTOP)
                sentinel.sentinel_remove(namespace)
                watch(server)
                assert await count() == 1
        os.kill(silent.pid, signal.SIGCONT)


class Interrupt(BaseException):
    pass


@pytest.mark.parametrize("whose", ["the client's", "RQ's"])
def test_a_reply_that_was_not_awaited_is_not_taken_for_the_next(hosts: str, namespace: str, whose: str) -> None:
    def interrupt(*_: object) -> None:
        raise Interrupt

    url = f"redis+sentinel://{hosts}/main"
    with Client(url, namespace) as client, connected(url) as connection:
        asked = client._redis if whose == "the client's" else connection
        asked.ping()
        before = signal.signal(signal.SIGALRM, interrupt)
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        with pytest.raises(Interrupt):
            asked.blpop(["nothing"], 0.5)
        signal.signal(signal.SIGALRM, before)
        time.sleep(0.6)  # until the reply has come
        assert asked.echo("next") == b"next"


def test_a_service_that_no_sentinel_knows_is_unreachable(hosts: str) -> None:
    with Client(f"redis+sentinel://{hosts}/other") as client, pytest.raises(Unreachable, match="other"):
        client.submit("chain")


@pytest.mark.parametrize("rest", ["h:26379", "h/main", "h:1,/main", "h:x/main", "h:1/main?decode_responses=true"])
def test_a_sentinel_url_that_cannot_be_used_is_refused(rest: str) -> None:
    with pytest.raises(InvalidValue, match=r"^url: "):
        Client(f"redis+sentinel://{rest}")


def test_tls_is_for_the_server_and_the_sentinels() -> None:
    with Client("rediss+sentinel://me:s%3Acret@h:1,i:2/main/3?ssl_cert_reqs=none") as client:
        pool = client._redis.connection_pool
        assert issubclass(pool.connection_class, SentinelManagedSSLConnection)
        asked = [one.connection_pool.connection_kwargs for one in pool.sentinel_manager.sentinels]
        assert [(one["host"], one["port"], one.get("db") or 0) for one in asked] == [("h", 1, 0), ("i", 2, 0)]
        for options in (pool.connection_kwargs, *asked):
            assert (options["username"], options["password"], options["ssl_cert_reqs"]) == ("me", "s:cret", "none")
        assert pool.connection_kwargs["db"] == DATABASE


def test_time_limits_of_the_url_are_for_the_server_and_the_sentinels() -> None:
    with Client("redis+sentinel://h:1/main?socket_timeout=3") as client:
        pool = client._redis.connection_pool
        asked = [one.connection_pool.connection_kwargs for one in pool.sentinel_manager.sentinels]
        assert [options["socket_timeout"] for options in (pool.connection_kwargs, *asked)] == [3, 3]
