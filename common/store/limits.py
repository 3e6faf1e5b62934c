"""Limits on what a cell takes in: set and read here, kept by the operations at the instant at which they count.

They lie in Redis, so they hold for all coordinators together, from the next submission on.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Self

from common.errors import InvalidDocument
from common.model import LINE, TOOLS
from common.store.client import Client, translated
from common.store.keys import Keys

DEFAULTS = {"workflows": 20_000, "queued": 200_000, "submissions": 20_000}
"""Of the whole cell, with what holds where none is set: running workflows, requests that wait in queues, submissions
without an answer."""
OF_ANY_TENANT = ("tenant_workflows", "tenant_tokens_per_s")
"""Of each tenant that has none of its own; where none is set there is none."""
OF_ONE_TENANT = ("workflows", "tokens_per_s")
MOST = 10**12


class Full(NamedTuple):
    """A limit that leaves no room: how much is taken, what it is set to, and after how many ms there may be room.

    Of a rate of tokens both are the rate; of the server's memory they are bytes.
    """

    limit: str
    taken: int
    most: int
    wait_ms: int

    @property
    def over(self) -> int:
        """How much is taken beyond it."""
        return self.taken - self.most

    @property
    def is_tenants(self) -> bool:
        """Whether it is a tenant's own: others find room."""
        return self.limit.startswith("tenant_")

    @classmethod
    def of(cls, reply: Sequence[Any]) -> Self:
        """As the operations tell it."""
        return cls(reply[0].decode(), *map(int, reply[1:]))


class Standing(NamedTuple):
    """A limit as it stands. `most` None: there is none; `taken` None: it is a rate, or one of any tenant."""

    limit: str
    tenant: str | None
    most: int | None
    is_set: bool
    taken: int | None


class Limits:
    """The operators' side."""

    def __init__(self, client: Client, keys: Keys) -> None:
        self._client = client
        self._keys = keys

    async def set(self, name: str, value: int, tenant: str | None = None) -> None:
        """From now on. Raises InvalidDocument where there is no such limit, or it cannot have that value."""
        field, least = _field(name, tenant), 1 if name.endswith("_per_s") else 0
        if not least <= value <= MOST:
            raise InvalidDocument(name, f"{value} must be a whole number from {least} to {MOST}")
        with translated():
            await self._client.hset(self._keys.limits, field, value)

    async def unset(self, name: str, tenant: str | None = None) -> bool:
        """Back to what holds where none is set; False where none was. Raises InvalidDocument."""
        field = _field(name, tenant)
        with translated():
            return bool(await self._client.hdel(self._keys.limits, field))

    async def standing(self) -> list[Standing]:
        """Those of the cell, of any tenant, and of single tenants, with how much of each is taken."""
        keys = self._keys
        with translated():
            found = _numbers(await self._client.hgetall(keys.limits))
            running = _numbers(await self._client.hgetall(keys.running))
            taken = {
                "workflows": await self._client.zcard(keys.live),
                "queued": await self._queued(),
                "submissions": await self._client.xlen(keys.submissions),
            }
        rows = [
            Standing(name, None, found.get(name, most), name in found, taken[name]) for name, most in DEFAULTS.items()
        ]
        rows += [Standing(name, None, found.get(name), name in found, None) for name in OF_ANY_TENANT]
        for name, most in sorted(found.items()):
            limit, colon, tenant = name.partition(":")
            if colon:
                theirs = running.get(tenant, 0) if limit == "workflows" else None
                rows.append(Standing(limit, tenant, most, True, theirs))
        return rows

    async def _queued(self) -> int:
        keys = self._keys
        names = [*await self._client.zrange(keys.instances, 0, -1), *await self._client.smembers(keys.lanes)]
        pipeline = self._client.pipeline(transaction=False)
        for name in (LINE, TOOLS, *(name.decode() for name in names)):
            pipeline.zcard(keys.queue(name))
        return sum(await pipeline.execute())


def _numbers(found: Mapping[bytes, bytes]) -> dict[str, int]:
    """What is no number counts as not there, as for the operations."""
    return {name.decode("utf-8", "replace"): int(value) for name, value in found.items() if value.isdigit()}


def _field(name: str, tenant: str | None) -> str:
    """Where it lies. Raises InvalidDocument."""
    names = (*DEFAULTS, *OF_ANY_TENANT) if tenant is None else OF_ONE_TENANT
    if name not in names:
        whose = "" if tenant is None else " of one tenant"
        raise InvalidDocument("NAME", f"there is no limit {name!r}{whose}; there are: {', '.join(names)}")
    return name if tenant is None else f"{name}:{tenant}"
