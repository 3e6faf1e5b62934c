"""URLs and errors of the store, without a server."""

from types import SimpleNamespace

import pytest
from redis.asyncio.connection import SSLConnection
from redis.asyncio.sentinel import SentinelConnectionPool
from redis.exceptions import (
    AuthenticationError,
    BusyLoadingError,
    ConnectionError,
    NoPermissionError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
)
from rq import Worker

from common.errors import BadRecord, InvalidDocument, StoreRefused, StoreUnavailable
from common.store.client import BLOCK_S, connect, connect_blocking, connect_sync, translate, translated
from common.store.keys import Keys


def test_urls_of_all_kinds() -> None:
    plain = connect("redis://user:secret@127.0.0.1:7000/2").connection_pool.connection_kwargs
    assert (plain["host"], plain["port"], plain["db"], plain["username"]) == ("127.0.0.1", 7000, 2, "user")
    assert connect("unix:///run/redis.sock?db=1").connection_pool.connection_kwargs["path"] == "/run/redis.sock"
    assert issubclass(connect("rediss://127.0.0.1:7000/0").connection_pool.connection_class, SSLConnection)


def test_a_sentinel_url_names_hosts_and_service() -> None:
    client = connect("redis+sentinel://:p%40ss@10.0.0.1:26379,10.0.0.2:26380/main/3")
    pool = client.connection_pool
    assert isinstance(pool, SentinelConnectionPool)
    assert pool.service_name == "main"
    assert pool.connection_kwargs["db"] == 3
    assert pool.connection_kwargs["password"] == "p@ss"
    hosts = [sentinel.connection_pool.connection_kwargs for sentinel in pool.sentinel_manager.sentinels]
    assert [(host["host"], host["port"]) for host in hosts] == [("10.0.0.1", 26379), ("10.0.0.2", 26380)]


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("http://x", "one of redis://, rediss://, unix://, redis\\+sentinel://, rediss\\+sentinel://"),
        ("localhost:6379", "one of redis://"),
        ("redis://host/abc", "database's number: redis://HOST:PORT/0"),
        ("redis://host/1/2", "database's number"),
        ("redis://:pass/word@host:6379/0", "percent-encoded"),
        ("redis://host:70000", "port must be a number"),
        ("redis://host/0?db=x", "'db'"),
        ("redis://host/0?sokcet_timeout=3", "'sokcet_timeout'"),
        ("unix://", "names the socket's file"),
        ("redis+sentinel://h:26379", "names the service"),
        ("redis+sentinel://h/main", "hosts with ports"),
        ("redis+sentinel://h:x/main", "port must be a number"),
        ("redis+sentinel://h:26379/main/x", "database's number"),
        ("redis://127.0.0.1:1/0?protocol=3", "protocol is not to be chosen"),
        ("redis+sentinel://127.0.0.1:1/main?decode_responses=true", "decode_responses is not to be chosen"),
    ],
)
def test_a_bad_url_is_refused_in_a_sentence(url: str, said: str) -> None:
    for client in (connect, connect_blocking, connect_sync):
        with pytest.raises(StoreRefused, match=f"^redis URL: .*{said}") as caught:
            client(url)
        assert "word@" not in str(caught.value)


def test_rq_gets_a_client_that_does_not_wait_for_ever() -> None:
    """And raises its time-out for the one read that may take longer than an answer."""
    for url in ("redis://127.0.0.1:7000/0", "redis+sentinel://127.0.0.1:7000/main"):
        client = connect_sync(url)
        options = client.connection_pool.connection_kwargs
        assert (options["socket_timeout"], options["socket_connect_timeout"]) == (5.0, 5.0)
        assert options["retry"].get_retries() == 2
        waiting = Worker._set_connection(SimpleNamespace(connection_timeout=15), client)
        assert waiting.connection_pool.connection_kwargs["socket_timeout"] == 15


def test_a_blocking_read_outlasts_its_block_and_is_not_retried() -> None:
    options = connect_blocking("redis://127.0.0.1:7000/0").connection_pool.connection_kwargs
    assert options["socket_timeout"] == BLOCK_S + 5
    assert options["retry"].get_retries() == 0
    assert connect("redis://127.0.0.1:7000/0").connection_pool.connection_kwargs["retry"].get_retries() == 2


@pytest.mark.parametrize(
    "error",
    [
        ConnectionError("refused"),
        BusyLoadingError("LOADING Redis is loading"),
        ReadOnlyError("You can't write against a read only replica."),
        OutOfMemoryError("command not allowed when used memory > 'maxmemory'."),
        ResponseError("MASTERDOWN Link with MASTER is down"),
        ResponseError("MISCONF Redis is configured to save RDB snapshots, but it's unable to persist to disk"),
        ResponseError("Error running script (call to f_1): @user_script:1: @user_script: 1: -OOM command not allowed"),
        ResponseError(
            "Command # 1 (SREM rq:workers rq:worker:w (1)) of pipeline caused error: MISCONF Redis is configured"
        ),
        ResponseError("Command # 2 (HSET k f v) of pipeline caused error: ('MISCONF Redis is configured to save',)"),
        NoScriptError("No matching script. Please use EVAL."),
        ResponseError("Command # 1 (SADD a b) of pipeline caused error: NOREPLICAS Not enough good replicas to write."),
        ResponseError("Command # 2 (GET a) of pipeline caused error: ('MASTERDOWN Link with MASTER is down',)"),
    ],
)
def test_trouble_that_passes_is_unavailable(error: RedisError) -> None:
    assert isinstance(translate(error), StoreUnavailable)


@pytest.mark.parametrize(
    "error",
    [
        AuthenticationError("WRONGPASS"),
        NoPermissionError("NOPERM"),
        ResponseError("ACL failure in script: No permissions to access a key script: on @user_script:1."),
        ResponseError("@user_script: 1: The user executing the script can't run this command or subcommand"),
        ResponseError("unknown command 'XAUTOCLAIM'"),
    ],
)
def test_trouble_that_needs_a_person_is_refused(error: RedisError) -> None:
    assert isinstance(translate(error), StoreRefused)


@pytest.mark.parametrize(
    "text",
    [
        "WRONGTYPE Operation against a key holding the wrong kind of value",
        "user_script:1: attempt to perform arithmetic on a nil value script: on @user_script:1.",
        "Error running script (call to f_1): @user_script:1: user_script:1: Bad data format in input.",
    ],
)
def test_what_an_operation_cannot_work_with_is_a_bad_record(text: str) -> None:
    assert isinstance(translate(ResponseError(text)), BadRecord)


def test_a_code_counts_only_where_codes_stand() -> None:
    """Not in what the message quotes."""
    quoted = "user_script:2: attempt to perform arithmetic on field 'OOM' (a nil value) script: on @user_script:2."
    assert isinstance(translate(ResponseError(quoted)), BadRecord)
    for text in (
        "unknown command 'BUSY'",
        "no Command # 1 (X) of pipeline caused error: BUSY",
        "unknown command 'user_script'",
        "Invalid stream ID: WRONGTYPE",
    ):
        assert isinstance(translate(ResponseError(text)), StoreRefused)


@pytest.mark.parametrize(
    "error",
    [
        OSError("no route to host"),
        RuntimeError("Event loop is closed"),
        RuntimeError("unable to perform operation on <TCPTransport closed=True>; the handler is closed"),
        RuntimeError("Cannot call write() after write_eof()"),
    ],
)
def test_errors_of_the_network_are_unavailable(error: Exception) -> None:
    with pytest.raises(StoreUnavailable), translated():
        raise error


@pytest.mark.parametrize(
    "error", [RecursionError("too deep, or closed"), NotImplementedError("closed"), RuntimeError("read() called twice")]
)
def test_errors_of_the_program_stay_what_they_are(error: Exception) -> None:
    with pytest.raises(type(error)) as caught, translated():
        raise error
    assert caught.value is error


@pytest.mark.parametrize("namespace", ["", "a b", "{x}", "ä", "a:b"])
def test_a_namespace_that_breaks_the_hash_tag_is_refused(namespace: str) -> None:
    with pytest.raises(InvalidDocument, match="namespace"):
        Keys(namespace)


def test_all_keys_share_one_hash_tag() -> None:
    keys = Keys("acme-1")
    names = [value for name, value in vars(keys).items() if name not in ("namespace", "prefix")]
    names += [
        keys.workflow("w"),
        keys.events("w"),
        keys.request("r"),
        keys.queue("i"),
        keys.wake("i"),
        keys.instance("i"),
    ]
    assert all(name.startswith("{hexgen:acme-1}:") for name in names)
    assert len(set(names)) == len(names)
