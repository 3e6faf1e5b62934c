"""Forgetting workflows that have ended before their time to live is over."""

from collections.abc import AsyncIterator, Sequence

from common.store.client import Client, translated
from common.store.keys import Keys
from common.store.scripts import Call, Scripts

PAGE = 500


class Retention:
    """The operators' side of what is kept."""

    def __init__(self, client: Client, keys: Keys) -> None:
        self._client = client
        self._keys = keys
        self._scripts = Scripts(client, keys.prefix)

    async def purge(self, workflows: Sequence[str]) -> int:
        """Forget those of these workflows that have ended; how many that were."""
        return sum(await self._scripts.run_many([Call("purge", (workflow,)) for workflow in workflows]))

    async def kept(self) -> AsyncIterator[list[str]]:
        """The ids of all workflows of which there is a state, page by page; one may come twice."""
        prefix = self._keys.workflow("")
        cursor = -1
        while cursor:
            with translated():
                cursor, found = await self._client.scan(max(cursor, 0), f"{prefix}*", PAGE, _type="hash")
            names = [key.decode("utf-8", "replace").removeprefix(prefix) for key in found]
            yield [name for name in names if ":" not in name]
