"""What can be asked of a server and a namespace to see whether all is well. Judges nothing and changes nothing."""

import re
import statistics
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

from common import clock, wire
from common.store.client import Client, now_ms, translated
from common.store.keys import Keys
from common.store.scripts import Scripts, load

PINGS = 5
_CALLED = re.compile(r"(?:redis\.p?call|try)\('([A-Z]+)'")
_DIRECT = (
    "BZPOPMIN", "EVALSHA", "INFO", "PING", "SCARD", "SCRIPT LOAD", "TIME", "XCLAIM",
    "XGROUP CREATE", "XGROUP DELCONSUMER", "XINFO CONSUMERS", "XLEN", "XPENDING", "XREAD", "XREADGROUP", "XREVRANGE",
    "ZRANK", "ZREVRANGE",
)  # fmt: skip
"""What coordinators and workers send outside the operations, and in none of them."""
_ARGUMENTS = 8
"""More than any of them has before its last key: the server looks for keys there without counting first."""


class Queue(NamedTuple):
    """A stream of which each entry goes once it is settled: how many there are, and how long the oldest has been."""

    entries: int
    oldest_ms: int


class Checkup:
    """Questions to one namespace of one server."""

    def __init__(self, client: Client, keys: Keys) -> None:
        self._client = client
        self._keys = keys
        self._scripts = Scripts(client, keys.prefix)

    async def round_trip_ms(self) -> float:
        """The median time of an answer."""
        took = []
        for _ in range(PINGS):
            began_s = clock.monotonic_s()
            with translated():
                await self._client.ping()
            took.append(1000 * (clock.monotonic_s() - began_s))
        return statistics.median(took)

    async def ahead_ms(self) -> float:
        """By how much this host's clock is ahead of the server's; half the round trip at most is wrong with it."""
        before = clock.wall_ms()
        now = await now_ms(self._client)
        return (before + clock.wall_ms()) / 2 - now

    async def info(self) -> dict[str, Any]:
        """What INFO tells."""
        with translated():
            return dict(await self._client.info())

    async def setting(self, name: str) -> str:
        """A setting of the server. Raises StoreRefused where CONFIG is not permitted."""
        with translated():
            found = await self._client.config_get(name)
        value = next(iter(found.values()), "")
        return value.decode() if isinstance(value, bytes) else str(value)

    async def user(self) -> str:
        """The name of the user of this connection. Raises StoreRefused where that is not permitted."""
        with translated():
            name = await self._client.acl_whoami()
        return name.decode() if isinstance(name, bytes) else str(name)

    async def refused(self) -> list[str] | None:
        """Commands of coordinators and workers that the user may not run on their keys; None: it cannot be told."""
        commands = [(name, self._keys.prefix + "checkup") for name in commands_used()]
        commands.append(("RPUSH", f"rq:queue:{self._keys.tickets}"))
        packed = [wire.pack_for_lua([*name.split(), *[key] * _ARGUMENTS]) for name, key in commands]
        found = await self._scripts.run("rights", *packed)
        if found == [-1]:
            return None
        return [name if key.startswith(self._keys.prefix) else f"{name} on rq:*"
                for name, key in (commands[number - 1] for number in found)]  # fmt: skip

    async def leases_over(self, longer_than_ms: int) -> int:
        """How many leases ended so long ago and were not taken back."""
        now = await now_ms(self._client)
        with translated():
            return int(await self._client.zcount(self._keys.leases, "-inf", now - longer_than_ms))

    async def streams(self) -> dict[str, Queue]:
        """The streams that coordinators read, by name."""
        now = await now_ms(self._client)
        found = {}
        for name, key in (("submissions", self._keys.submissions), ("completions", self._keys.completions)):
            with translated():
                count, first = await self._client.xlen(key), await self._client.xrange(key, count=1)
            since = int(first[0][0].partition(b"-")[0]) if first else now
            found[name] = Queue(int(count), max(0, now - since))
        return found


@cache
def commands_used() -> tuple[str, ...]:
    """The commands that coordinators and workers send, by themselves and in operations."""
    names = [file.name.removesuffix(".lua") for file in files("common.store").joinpath("lua").iterdir()]
    sources = [load(name).source for name in names if name != "include"]
    return tuple(sorted({*_DIRECT, *(word for source in sources for word in _CALLED.findall(source))}))
