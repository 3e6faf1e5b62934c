"""A TCP proxy that spoils connections on purpose: replies lost, black holes, resets, delays. Not a test itself.

Must not know what goes over it, but that a client asks and then waits for the reply.
"""

import asyncio
import socket
import struct
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass


@dataclass(slots=True)
class Line:
    """One connection: its number from 0 on, bytes passed both ways, and whether the client's request is under way."""

    number: int
    passed: int = 0
    asking: bool = False
    marked: bool = False


class Cut(Exception):
    """The connection is to be reset once `rest` has been passed on."""

    def __init__(self, rest: bytes = b"") -> None:
        super().__init__()
        self.rest = rest


Fault = Callable[[Line, bool, bytes], Awaitable[bytes]]
"""(line, whether it is the client's, data) -> what is passed on. Raises Cut."""


async def passing(line: Line, asks: bool, data: bytes) -> bytes:
    """No fault."""
    return data


async def black_hole(line: Line, asks: bool, data: bytes) -> bytes:
    """Nothing is passed on, ever: a line that meets it stays half-open, healed or not. New ones are still taken."""
    return await asyncio.get_running_loop().create_future()  # type: ignore[no-any-return]


def loses_replies(every: int) -> Fault:
    """Each `every`-th request, be it one command or a pipeline, goes through; its line is reset before the reply."""
    requests = 0

    async def fault(line: Line, asks: bool, data: bytes) -> bytes:
        nonlocal requests
        if not asks and line.marked:
            raise Cut
        if asks and not line.asking:
            requests += 1
            line.marked = requests % every == 0
        return data

    return fault


def resets(*after: int) -> Fault:
    """Lines are reset after so many bytes both ways, in the midst of a request or reply: each takes the next number."""

    async def fault(line: Line, asks: bool, data: bytes) -> bytes:
        left = max(0, after[line.number % len(after)] - line.passed)
        if len(data) >= left:
            raise Cut(data[:left])
        return data

    return fault


def delays(seconds: float) -> Fault:
    """All takes so long, each way."""

    async def fault(line: Line, asks: bool, data: bytes) -> bytes:
        await asyncio.sleep(seconds)
        return data

    return fault


def some(fault: Fault, every: int) -> Fault:
    """The fault meets each `every`-th line only."""

    async def sometimes(line: Line, asks: bool, data: bytes) -> bytes:
        return await (passing if line.number % every else fault)(line, asks, data)

    return sometimes


class Proxy:
    """Passes on to a port of this host, in a thread, while the context lasts. `fault` may be set at any time.

    `cuts` counts the lines that faults have reset.
    """

    def __init__(self, target: int) -> None:
        self.fault: Fault = passing
        self.port = 0
        self.cuts = 0
        self._target = target
        self._lines = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)

    def __enter__(self) -> "Proxy":
        self._thread.start()
        started = asyncio.run_coroutine_threadsafe(asyncio.start_server(self._taken, "127.0.0.1", 0), self._loop)
        self._server = started.result()
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def through(self, url: str) -> str:
        """The URL of what it passes on to, by way of it."""
        return url.replace(f":{self._target}/", f":{self.port}/")

    async def _close(self) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _taken(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = self._loop.create_task(self._serve(Line(self._lines), reader, writer))
        self._lines += 1
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, line: Line, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers = [writer]
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self._target)
            writers.append(back)
            asks, answers = self._pass(line, True, reader, back), self._pass(line, False, there, writer)
            pumps = [self._loop.create_task(pump) for pump in (asks, answers)]
            try:
                await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for pump in pumps:
                    pump.cancel()
                await asyncio.gather(*pumps, return_exceptions=True)
        except OSError:
            pass  # nobody listens there
        finally:
            for end in writers:
                _reset(end)

    async def _pass(self, line: Line, asks: bool, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        """Until that side ends, or a fault ends the line."""
        try:
            while data := await source.read(1 << 16):
                sink.write(await self.fault(line, asks, data))
                line.passed, line.asking = line.passed + len(data), asks
                await sink.drain()
        except Cut as cut:
            self.cuts += 1
            sink.write(cut.rest)


def _reset(writer: asyncio.StreamWriter) -> None:
    """Close at once, so that the other side sees a reset."""
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
