"""The window of workflows that completed, as coordinators record them, and how often new ones arrive."""

from collections.abc import Iterable

from common.recorded import Recorded, unpack
from common.store.client import Client, translated
from common.store.keys import Keys


class Traces:
    """Reading the window; `commit_step` writes it."""

    def __init__(self, client: Client, keys: Keys) -> None:
        self._client = client
        self._keys = keys

    async def window(self, most: int) -> list[Recorded]:
        """The newest records, in the order of arrival. One that cannot be read is left out."""
        with translated():
            entries = await self._client.xrevrange(self._keys.traces, count=most)
        return sorted(_readable(fields.get(b"record", b"") for _, fields in entries), key=lambda one: one.arrival_at)

    async def arrivals(self, most: int) -> tuple[int, list[int]]:
        """Now, and when the newest workflows arrived that run or completed, oldest first; in ms of Redis time."""
        with translated():
            pipeline = self._client.pipeline(transaction=False)
            pipeline.time()
            pipeline.zrevrange(self._keys.live, 0, most - 1, withscores=True)
            pipeline.xrevrange(self._keys.traces, count=most)
            (seconds, micros), live, entries = await pipeline.execute()
        ended = [one.arrival_at for one in _readable(fields.get(b"record", b"") for _, fields in entries)]
        times = sorted([*ended, *(int(score) for _, score in live)])
        return int(seconds * 1000 + micros // 1000), times[-most:]


def _readable(records: Iterable[bytes]) -> list[Recorded]:
    found = []
    for data in records:
        try:
            found.append(unpack(data))
        except Exception:  # whatever bytes can lead to
            continue
    return found
