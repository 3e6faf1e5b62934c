"""Which form a namespace's keys have: the first coordinator says so, and whoever knows only older forms keeps out."""

from typing import Any

import redis

from common.errors import StoreRefused
from common.store.client import Client, translated
from common.store.keys import Keys

SCHEMA = 1
"""The form of the keys that this version writes and reads. It grows when an older version could no longer read them."""
FIELD = "version"


class Schema:
    """The version of a namespace's keys."""

    def __init__(self, client: Client, keys: Keys) -> None:
        self._client = client
        self._keys = keys

    async def begin(self) -> None:
        """A namespace that has no version yet has this one's from now on. Raises StoreRefused as `check` does."""
        with translated():
            await self._client.hsetnx(self._keys.schema, FIELD, str(SCHEMA))
        await self.check()

    async def check(self) -> None:
        """Raises StoreRefused where the namespace has a version that is not known here."""
        _refuse_unknown(await self.read(), self._keys)

    async def read(self) -> bytes | None:
        """The version as it is written; None where no coordinator has begun."""
        with translated():
            found: bytes | None = await self._client.hget(self._keys.schema, FIELD)
        return found


def check_sync(connection: redis.Redis, keys: Keys) -> None:
    """As `Schema.check`, over a connection that RQ works on. Raises StoreUnavailable too."""
    with translated():
        found: Any = connection.hget(keys.schema, FIELD)
    _refuse_unknown(found, keys)


def _refuse_unknown(found: bytes | None, keys: Keys) -> None:
    """None is fine: nothing is there to be misread."""
    if found is not None and found != b"%d" % SCHEMA:
        raise StoreRefused(
            f"namespace {keys.namespace} has schema version {found.decode('utf-8', 'replace')}, and this hexgen-flow "
            f"knows {SCHEMA}: install the version its other processes have, or take another --namespace"
        )
