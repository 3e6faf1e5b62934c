"""Sentinels that are asked for the server, by our processes and by the client, with one and the same URL."""

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from redis.backoff import ConstantBackoff
from redis.retry import Retry
from redis.sentinel import SentinelManagedSSLConnection

from common.lifeline import tied
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
    connection = connect_sync(url)
    assert connection.info("server")["process_id"] == server.pid
    assert connection.xlen(submissions) == 1
    for sentinel in connection.connection_pool.sentinel_manager.sentinels:
        sentinel.close()
    connection.close()
    async with Cell.opened(url, namespace) as cell:
        assert (await cell.records.counts())["submitted"] == 1
    with redis.Redis.from_url(server.url.removesuffix("/0") + f"/{DATABASE}") as direct:
        assert direct.delete(submissions) == 1


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
        assert pool.connection_class is SentinelManagedSSLConnection
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
