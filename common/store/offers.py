"""Which tool workers there are and which tools each of them has. A worker says so itself, each time for a while."""

from collections.abc import Iterable

import redis

from common.model import TOOLS, Json
from common.store.client import Client, now_ms, translated
from common.store.keys import Keys
from common.store.scripts import load


class Offer:
    """One tool worker's own word, over the connection RQ works on: RQ has no asynchronous face."""

    def __init__(self, connection: redis.Redis, keys: Keys, worker: str, tools: Iterable[str], keep_ms: int) -> None:
        self._connection, self._keys, self._keep_ms = connection, keys, keep_ms
        self._entry = "\n".join([worker, *sorted(tools)])

    def renew(self) -> None:
        """It can be counted on for another keep_ms. Raises StoreUnavailable or StoreRefused."""
        with translated():
            self._connection.eval(load("offer").source, 1, self._keys.prefix, self._entry, self._keep_ms)

    def withdraw(self) -> None:
        """It takes no more requests. Raises StoreUnavailable or StoreRefused."""
        with translated():
            self._connection.zrem(self._keys.offers, self._entry)


class Offers:
    """The coordinators' side."""

    def __init__(self, client: Client, keys: Keys) -> None:
        self._client = client
        self._keys = keys

    async def all(self) -> dict[str, frozenset[str]]:
        """The tools of each tool worker that was not found silent."""
        with translated():
            found = await self._client.zrange(self._keys.offers, 0, -1)
        offers = sorted(entry.decode("utf-8", "replace").split("\n") for entry in found)
        return {worker: frozenset(tools) for worker, *tools in offers}

    async def until(self) -> tuple[int, dict[str, int]]:
        """Redis time after the look, and until when each has asked to be counted on; both in ms."""
        with translated():
            found = await self._client.zrange(self._keys.offers, 0, -1, withscores=True)
        return await now_ms(self._client), {
            entry.decode("utf-8", "replace").partition("\n")[0]: int(score) for entry, score in found
        }

    async def forget_silent(self) -> int:
        """Count no longer on those whose time is over by Redis's clock; how many that were."""
        now = await now_ms(self._client)
        with translated():
            return int(await self._client.zremrangebyscore(self._keys.offers, "-inf", now))

    async def describe(self) -> list[dict[str, Json]]:
        """All there is to show of each, in the form of an instance. They share one queue."""
        with translated():
            queued = await self._client.zcard(self._keys.queue(TOOLS))
            backlog_ms = int(await self._client.hget(self._keys.backlog, TOOLS) or 0)
        return [
            {
                "instance": worker,
                "status": "ready",
                "heard_s": None,
                "profile": TOOLS,
                "models": sorted(tools),
                "labels": [],
                "queued": queued,
                "backlog_s": backlog_ms / 1000,
                "load": None,
            }
            for worker, tools in (await self.all()).items()
        ]
