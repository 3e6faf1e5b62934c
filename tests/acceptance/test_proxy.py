"""The proxy that the network's faults are made with: each does what it says, to a real client of a real server."""

import time
from collections.abc import Iterator

import proxy
import pytest
import redis
from proxy import Proxy
from redis.backoff import NoBackoff
from redis.retry import Retry

from common.store.embedded import EmbeddedServer

BIG = b"x" * 100_000


@pytest.fixture
def spoilt(server: EmbeddedServer) -> Iterator[Proxy]:
    with Proxy(server.port) as opened:
        yield opened


@pytest.fixture
def key(server: EmbeddedServer, namespace: str) -> Iterator[str]:
    yield namespace
    with redis.Redis.from_url(server.url) as direct:
        direct.delete(namespace)


def connect(server: EmbeddedServer, spoilt: Proxy, timeout_s: float = 10) -> "redis.Redis":
    return redis.Redis.from_url(
        server.url.replace(f":{server.port}/", f":{spoilt.port}/"),
        socket_timeout=timeout_s,
        retry=Retry(NoBackoff(), 0),
    )


def test_without_a_fault_all_is_passed_on(server: EmbeddedServer, spoilt: Proxy, key: str) -> None:
    with connect(server, spoilt) as client:
        client.set(key, BIG)
        assert client.get(key) == BIG


def test_a_request_whose_reply_is_lost_has_taken_effect(server: EmbeddedServer, spoilt: Proxy, key: str) -> None:
    with connect(server, spoilt) as client:
        client.incr(key)
        spoilt.fault = proxy.loses_replies(every=2)
        assert client.incr(key) == 2
        with pytest.raises(redis.ConnectionError):
            client.incr(key)
        spoilt.fault = proxy.passing
        assert client.get(key) == b"3"
        assert spoilt.cuts == 1


@pytest.mark.slow
def test_a_black_hole_answers_nothing_and_its_lines_stay_half_open(
    server: EmbeddedServer, spoilt: Proxy, key: str
) -> None:
    with connect(server, spoilt, 1) as client, connect(server, spoilt, 1) as later:
        client.ping()
        spoilt.fault = proxy.black_hole
        with pytest.raises(redis.TimeoutError):
            client.incr(key)
        with pytest.raises(redis.TimeoutError):
            later.ping()  # taken, and never answered
        spoilt.fault = proxy.passing
        assert client.incr(key) == 1  # on a new line; the first one never came through


def test_a_line_is_reset_at_a_byte(server: EmbeddedServer, spoilt: Proxy, key: str) -> None:
    with redis.Redis.from_url(server.url) as direct:
        direct.set(key, BIG)
        with connect(server, spoilt) as client:
            client.ping()
            spoilt.fault = proxy.resets(len(BIG) // 2)
            with pytest.raises(redis.ConnectionError):
                client.get(key)
            with pytest.raises(redis.ConnectionError):
                client.append(key, BIG)  # not even half of it has arrived
        assert direct.strlen(key) == len(BIG)


def test_a_delay_is_for_each_way(server: EmbeddedServer, spoilt: Proxy) -> None:
    with connect(server, spoilt) as client:
        client.ping()
        spoilt.fault, began = proxy.delays(0.1), time.monotonic()
        client.ping()
        assert time.monotonic() - began >= 0.2


def test_a_fault_may_be_for_some_lines(server: EmbeddedServer, spoilt: Proxy) -> None:
    spoilt.fault = proxy.some(proxy.black_hole, every=2)
    with connect(server, spoilt, 1) as first, connect(server, spoilt) as second:
        with pytest.raises(redis.TimeoutError):
            first.ping()
        assert second.ping()


def test_a_server_that_is_not_there_is_not_there_behind_it(server: EmbeddedServer) -> None:
    with Proxy(1) as nowhere, connect(server, nowhere) as client, pytest.raises(redis.ConnectionError):
        client.ping()
