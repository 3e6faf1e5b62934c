"""A server has become a replica, and its name leads to another one: whoever is connected follows the name."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest
import redis
from operations_bench import PROFILE

from common.errors import StoreUnavailable
from common.store.cell import Cell
from common.store.client import connect_sync, translated
from common.store.embedded import EmbeddedServer
from hexgen_flow.client import Client, Unreachable


class Name:
    """A TCP address that leads to a server, and can lead new connections to another. What is connected stays so."""

    def __init__(self) -> None:
        self.leads_to = self.port = 0
        self._lines: set[asyncio.Task[None]] = set()

    async def connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from_server, to_server = await asyncio.open_connection("127.0.0.1", self.leads_to)
        for line in (_carry(reader, to_server), _carry(from_server, writer)):
            self._lines.add(asyncio.create_task(line))

    async def end(self) -> None:
        for line in self._lines:
            line.cancel()
        await asyncio.gather(*self._lines, return_exceptions=True)


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with closing(writer), suppress(OSError):
        while data := await reader.read(1 << 16):
            writer.write(data)


@pytest.fixture
async def name() -> AsyncIterator[Name]:
    made = Name()
    listener = await asyncio.start_server(made.connect, "127.0.0.1", 0)
    made.port = listener.sockets[0].getsockname()[1]
    yield made
    listener.close()
    await made.end()
    await asyncio.sleep(0)  # closed transports go in the next turn of the loop


@pytest.fixture
def servers(tmp_path: Path, program: Path | None) -> Iterator[list[EmbeddedServer]]:
    """Two with one password."""
    running = []
    for folder in (tmp_path / "first", tmp_path / "second"):
        folder.mkdir()
        (folder / "password").write_text("secret")
        running.append(EmbeddedServer.start(folder, program=program))
    yield running
    for server in running:
        os.kill(server.pid, signal.SIGKILL)  # 6.2 takes its time to end as a replica
        server.stop()


@pytest.fixture
def url(name: Name, servers: list[EmbeddedServer]) -> str:
    name.leads_to = servers[0].port
    return servers[0].url.replace(f":{servers[0].port}/", f":{name.port}/")


@pytest.fixture
def move(name: Name, servers: list[EmbeddedServer]) -> Callable[[], None]:
    def move() -> None:
        """The first server becomes a replica of the second, and the name leads to that."""
        with redis.Redis.from_url(servers[0].url) as first:
            first.config_set("masterauth", "secret")
            first.replicaof("127.0.0.1", servers[1].port)
        name.leads_to = servers[1].port

    return move


async def test_operations_and_commands_go_on_at_once(url: str, namespace: str, move: Callable[[], None]) -> None:
    async with Cell.opened(url, namespace) as cell:
        await cell.instances.register("a", PROFILE, ["m"], [], [])
        move()
        await cell.instances.register("a", PROFILE, ["m"], [], [])  # an operation, which 6.2 tells in its own way
        await cell.records.submit({"workflow": "chain"})


async def test_a_blocking_read_fails_once(url: str, namespace: str, move: Callable[[], None]) -> None:
    async with Cell.opened(url, namespace) as cell:
        await cell.inbox.prepare()
        await cell.records.submit({"workflow": "chain"})
        assert len(await cell.inbox.read(cell.keys.submissions, "c", 10)) == 1
        move()
        with pytest.raises(StoreUnavailable):
            await cell.inbox.read(cell.keys.submissions, "c", 10)
        assert await cell.inbox.read(cell.keys.submissions, "c", 10) == []  # it makes the group, which is not there
        await cell.records.submit({"workflow": "chain"})
        assert len(await cell.inbox.read(cell.keys.submissions, "c", 10)) == 1


async def test_rqs_connection_and_the_client(
    url: str, namespace: str, move: Callable[[], None], servers: list[EmbeddedServer]
) -> None:
    with connect_sync(url) as connection, Client(url, namespace) as client:

        def use() -> None:
            with translated():
                connection.set("x", 1)
            client.submit("chain")

        await asyncio.to_thread(use)
        move()
        with pytest.raises(Unreachable):
            await asyncio.to_thread(use)  # the client does not send again by itself
        await asyncio.to_thread(use)
    with redis.Redis.from_url(servers[1].url) as second:
        assert second.xlen(f"{{hexgen:{namespace}}}:submissions") == 1
