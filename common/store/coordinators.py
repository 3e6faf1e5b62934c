"""Which coordinators there are, and the policy of each: each says so itself, each time for a while. Knows no policy."""

from collections.abc import Iterable

from common.store.client import Client, now_ms, translated
from common.store.keys import Keys
from common.store.scripts import Scripts


class Coordinators:
    """Coordinators to each other."""

    def __init__(self, client: Client, keys: Keys) -> None:
        self._client = client
        self._keys = keys
        self._scripts = Scripts(client, keys.prefix)

    async def announce(self, name: str, policy: str, keep_ms: int) -> dict[str, str]:
        """This one is there for another keep_ms; the policies of all that are, by their names."""
        return _policies(await self._scripts.run("announce", f"{name}\n{policy}", keep_ms))

    async def withdraw(self, name: str, policy: str) -> None:
        """This one has stopped."""
        with translated():
            await self._client.zrem(self._keys.coordinators, f"{name}\n{policy}")

    async def all(self) -> dict[str, str]:
        """The policies of those that are there, by their names."""
        now = await now_ms(self._client)
        with translated():
            return _policies(await self._client.zrangebyscore(self._keys.coordinators, now, "+inf"))


def _policies(entries: Iterable[bytes]) -> dict[str, str]:
    parts = (entry.decode("utf-8", "replace").partition("\n") for entry in sorted(entries))
    return {name: policy for name, _, policy in parts}
