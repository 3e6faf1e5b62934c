"""The client against a real server without a coordinator: what it refuses to send, and what it makes of trouble."""

import asyncio
import logging
import queue
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from logging.handlers import QueueHandler
from pathlib import Path
from typing import Any

import msgpack
import pytest
import redis

from common.errors import InvalidDocument, StoreUnavailable
from common.store.cell import Cell
from common.store.embedded import EmbeddedServer
from common.store.keys import Keys
from hexgen_flow.client import Client, ClientError, InvalidValue, NotInTime, Refused, Rejected, Unreachable


@pytest.fixture
def client(server: EmbeddedServer, namespace: str) -> Iterator[Client]:
    with Client(server.url, namespace) as opened:
        yield opened


@pytest.fixture
def logged() -> Iterator["queue.Queue[logging.LogRecord]"]:
    """What the client logs."""
    records: queue.Queue[logging.LogRecord] = queue.Queue()
    handler = QueueHandler(records)
    logging.getLogger("hexgen.client").addHandler(handler)
    yield records
    logging.getLogger("hexgen.client").removeHandler(handler)


@pytest.fixture
def connection(server: EmbeddedServer) -> Iterator[Any]:
    with redis.Redis.from_url(server.url) as connected:
        yield connected


def tell(connection: Any, namespace: str, workflow: str, kind: str, /, **data: Any) -> None:
    """An event as a coordinator tells it."""
    connection.xadd(Keys(namespace).events(workflow), {"type": kind, "msgpack": msgpack.packb(data)})


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        ({"a": object()}, "inputs.a: is of type object"),
        ({"a": [0, {"b": 1 << 64}]}, "inputs.a.1.b: is an integer beyond 64 bits"),
        ({"a": -(1 << 63) - 1}, "inputs.a: is an integer beyond 64 bits"),
        ({"a": float("nan")}, "inputs.a: is nan, not a number"),
        ({"a": (1.0, float("-inf"))}, "inputs.a.1: is -inf, not a number"),
        ({"a": b"bytes"}, "inputs.a: is of type bytes"),
        ({"a": "half \ud800"}, "inputs.a: holds half a surrogate pair"),
        ({"a": {1: 2}}, "inputs.a: has the key 1; keys must be text"),
        ({"\udfff": 2}, "inputs: has the key '\\udfff'; keys must be text"),
    ],
)
def test_what_cannot_be_sent_is_refused_with_its_place(client: Client, inputs: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        client.submit("one", inputs)
    assert str(caught.value).startswith(said)


def test_what_can_just_be_sent_is_sent(client: Client, connection: Any, namespace: str) -> None:
    deep: Any = "core"
    for _ in range(30):  # within `inputs`, within the document
        deep = [deep]
    inputs = {"a": deep, "b": (1 << 64) - 1, "c": -(1 << 63), "d": (1, 2.5, None, True)}
    client.submit("one", inputs)
    ((_, fields),) = connection.xrange(Keys(namespace).submissions)
    assert msgpack.unpackb(fields[b"msgpack"])["inputs"] == inputs | {"d": [1, 2.5, None, True]}
    with pytest.raises(InvalidValue, match="nested deeper than 32 levels"):
        client.submit("one", {"a": [deep]})


def test_all_that_is_asked_is_sent(client: Client, connection: Any, namespace: str) -> None:
    given = {"slo_s": 5.0, "on_deadline": "cancel", "id": "order-1", "tenant": "acme", "stream": True}
    client.submit("one", **given)  # type: ignore[arg-type]
    client.submit("one")
    sent = [msgpack.unpackb(fields[b"msgpack"]) for _, fields in connection.xrange(Keys(namespace).submissions)]
    assert sent == [{"workflow": "one", "inputs": {}} | given, {"workflow": "one", "inputs": {}}]


def test_an_amendment_is_a_document_too(client: Client, connection: Any, namespace: str) -> None:
    entry = client.amend("order-1", slo_s=5)
    ((name, fields),) = connection.xrange(Keys(namespace).submissions)
    assert (name.decode(), msgpack.unpackb(fields[b"msgpack"])) == (entry, {"amend": "order-1", "slo_s": 5})


@pytest.mark.parametrize("namespace", ["", "a b", "a}", "-", "ä", "a:b", "a\n", "ok-1_"])
def test_a_namespace_is_as_the_coordinators_take_it(namespace: str) -> None:
    try:
        Keys(namespace)
    except InvalidDocument:
        with pytest.raises(InvalidValue, match=r"^namespace: "):
            Client(namespace=namespace)
    else:
        Client(namespace=namespace).close()


def test_trouble_with_redis_is_told_in_the_clients_own_words(server: EmbeddedServer) -> None:
    with pytest.raises(InvalidValue, match="url: "):
        Client("http://127.0.0.1")
    with Client("redis://127.0.0.1:1/0") as nowhere:
        for call in (lambda: nowhere.submit("one"), lambda: nowhere.cancel("x"), lambda: nowhere.result("x"),
                     lambda: nowhere.amend("x", slo_s=5)):  # fmt: skip
            with pytest.raises(Unreachable, match="Redis cannot be reached"):
                call()
        with pytest.raises(NotInTime, match="has not ended in time; Redis cannot be reached"):
            nowhere.wait("x", timeout_s=0.1)
    stranger = f"redis://default:wrong@127.0.0.1:{server.port}/0"
    with Client(stranger) as refused, pytest.raises(Refused, match="Redis refuses"):
        refused.wait("x", timeout_s=10)
    assert issubclass(NotInTime, TimeoutError)
    assert all(issubclass(kind, ClientError) for kind in (InvalidValue, Unreachable, NotInTime, Refused, Rejected))


def test_a_full_server_is_told(tmp_path: Path) -> None:
    with (
        EmbeddedServer.start(tmp_path, extra_args=("--maxmemory", "1")) as full,
        Client(full.url) as client,
        pytest.raises(Unreachable, match="does not serve now"),
    ):
        client.submit("one")


def cut_after_xadd(server: EmbeddedServer, listening: socket.socket) -> None:
    """Pass one connection after another to the server; end it instead of passing on the reply to an XADD."""
    while True:
        try:
            near, _ = listening.accept()
        except OSError:  # shut down
            return
        with near, socket.create_connection(("127.0.0.1", server.port)) as far:
            while asked := near.recv(65536):
                far.sendall(asked)
                reply = far.recv(65536)
                if b"XADD" in asked:
                    break
                near.sendall(reply)


def test_a_lost_reply_never_submits_twice(server: EmbeddedServer, connection: Any, namespace: str) -> None:
    """Neither the client nor the commands: without an id it would be two workflows."""

    async def from_the_command_line(url: str) -> None:
        cell = Cell.open(url, namespace)
        try:
            await cell.records.submit({"workflow": "one"})
        finally:
            await cell.close()

    with ThreadPoolExecutor(1) as pool, socket.create_server(("127.0.0.1", 0)) as listening:
        pool.submit(cut_after_xadd, server, listening)
        url = server.url.replace(f":{server.port}", f":{listening.getsockname()[1]}")
        try:
            with Client(url, namespace) as client, pytest.raises(Unreachable):
                client.submit("one")
            assert connection.xlen(Keys(namespace).submissions) == 1
            with pytest.raises(StoreUnavailable):
                asyncio.run(from_the_command_line(url))
            assert connection.xlen(Keys(namespace).submissions) == 2
        finally:
            listening.shutdown(socket.SHUT_RDWR)


@pytest.mark.strange_keys("it plays the coordinator itself")
def test_a_submission_stands_for_itself_alone(client: Client, connection: Any, namespace: str) -> None:
    """Its id is another document's: its result is not told, and it is not cancelled."""
    tell(connection, namespace, "order-1", "accepted", workflow="order-1")
    tell(connection, namespace, "order-1", "completed", workflow="order-1", status="completed", output="another's")
    connection.set(Keys(namespace).result("order-1"), msgpack.packb({"output": "another's"}))
    submitted = client.submit("one", id="order-1")
    assert client.result(submitted) is None  # not answered yet
    tell(connection, namespace, submitted.entry, "rejected", workflow=submitted.entry, field="id", error="is taken")
    connection.xdel(Keys(namespace).submissions, submitted.entry)
    for call in (client.wait, client.result, client.cancel, partial(client.amend, slo_s=5)):
        with pytest.raises(Rejected, match="rejected: id: is taken"):
            call(submitted)
    assert connection.xlen(Keys(namespace).submissions) == 0
    assert [event.type for event in client.events(submitted)] == ["rejected"]
    assert client.result("order-1") == {"output": "another's"}


@pytest.mark.strange_keys("it plays the coordinator itself")
def test_an_answer_that_is_no_longer_kept_was_no_refusal(client: Client, connection: Any, namespace: str) -> None:
    """A workflow may run for a week; answers are kept for a day, a refusal has told nothing else by then."""
    submitted = client.submit("one", id="order-1")
    connection.xdel(Keys(namespace).submissions, submitted.entry)
    tell(connection, namespace, "order-1", "completed", workflow="order-1", status="completed", output="mine")
    connection.set(Keys(namespace).result("order-1"), msgpack.packb({"output": "mine"}))
    assert client.result(submitted) == {"output": "mine"}
    assert client.wait(submitted, timeout_s=5)["output"] == "mine"


@pytest.mark.strange_keys("it plays the coordinator itself")
def test_a_rejection_under_the_entrys_id_is_told_by_result_too(client: Client, connection: Any, namespace: str) -> None:
    submitted = client.submit("one")
    assert client.result(submitted) is None
    tell(connection, namespace, submitted, "rejected", workflow=submitted, field="workflow", error="is not known")
    with pytest.raises(Rejected, match="workflow: is not known"):
        client.result(str(submitted))


def test_waiting_outlives_a_restart_of_redis(tmp_path: Path, logged: "queue.Queue[logging.LogRecord]") -> None:
    """What was seen is not seen again, what came after the restart is; the trouble is logged once."""
    first = EmbeddedServer.start(tmp_path)
    with first, Client(first.url, "n") as client, ThreadPoolExecutor(1) as pool:
        submitted = client.submit("one", id="order-1")
        with redis.Redis.from_url(first.url) as connection:
            tell(connection, "n", submitted.entry, "accepted", workflow="order-1")
            tell(connection, "n", "order-1", "accepted", workflow="order-1")
        events = client.events(submitted, timeout_s=60)
        assert next(events).type == "accepted"
        rest = pool.submit(list, events)
        first.stop()
        assert "trying again" in logged.get(timeout=30).getMessage()
        with (
            EmbeddedServer.start(tmp_path, port=first.port) as second,
            redis.Redis.from_url(second.url) as connection,
        ):
            tell(connection, "n", "order-1", "completed", workflow="order-1", output="done")
            assert [(event.type, event.data.get("output")) for event in rest.result()] == [("completed", "done")]
    assert logged.empty()


def test_options_that_change_what_is_read_are_refused() -> None:
    with pytest.raises(InvalidValue, match="url: protocol is not to be chosen"):
        Client("redis://127.0.0.1:1/0?protocol=3")
