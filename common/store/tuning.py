"""What the tuner has chosen, which coordinators read, and the record of all it decided. Knows no policy."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from common import wire
from common.errors import InvalidDocument
from common.model import Json
from common.store.client import Client, translated
from common.store.keys import Keys
from common.store.scripts import Scripts, call_id

KEEP_DECISIONS = 2000


@dataclass(frozen=True, slots=True)
class Parameters:
    """The values in force for one policy. Version 0: none were ever chosen. `since` in ms of Redis time.

    `memory` is the tuner's own, for its next decision.
    """

    version: int = 0
    policy: str = ""
    values: Mapping[str, float] = field(default_factory=dict)
    since: int = 0
    memory: Json = None


NONE = Parameters()


class Tuning:
    """Both sides: the tuner decides, coordinators read."""

    def __init__(self, client: Client, blocking: Client, keys: Keys) -> None:
        self._client = client
        self._blocking = blocking
        self._keys = keys
        self._scripts = Scripts(client, keys.prefix)

    async def parameters(self) -> Parameters:
        """What is in force. What cannot be read counts as nothing chosen."""
        with translated():
            fields = await self._client.hgetall(self._keys.parameters)
        try:
            return _parameters(fields)
        except (InvalidDocument, ValueError, TypeError, AttributeError):
            return NONE

    async def decide(
        self, version: int, told: Json, memory: Json, policy: str = "", values: Mapping[str, float] | None = None
    ) -> int:
        """Tell a decision, and with a policy let its values take effect. The version then, or -1: another has decided
        since `version`, and nothing is written.
        """
        texts = [wire.dump(part, "json") for part in (told, memory, dict(values or {}))]
        return int(
            await self._scripts.run("tune", version, texts[0], KEEP_DECISIONS, texts[1], policy, texts[2], call_id())
        )

    async def forget(self) -> None:
        """Nothing is in force: coordinators go back to their own settings."""
        with translated():
            await self._client.delete(self._keys.parameters)

    async def history(self, most: int) -> list[tuple[str, Json]]:
        """The newest decisions with their ids, oldest first."""
        with translated():
            entries = await self._client.xrevrange(self._keys.tuning, count=most)
        return [_entry(*entry) for entry in reversed(entries)]

    async def follow(self, after: str, block_s: float) -> list[tuple[str, Json]]:
        """Decisions after that id ("$": from now on); waits for them."""
        with translated():
            reply = await self._blocking.xread({self._keys.tuning: after}, block=int(block_s * 1000))
        return [_entry(*entry) for _, entries in reply or [] for entry in entries]


def _parameters(fields: Mapping[bytes, bytes]) -> Parameters:
    values = wire.load(fields.get(b"values", b"{}"), "json")
    return Parameters(
        version=int(fields.get(b"version", 0)),
        policy=fields.get(b"policy", b"").decode(),
        values={str(name): float(value) for name, value in values.items()},
        since=int(fields.get(b"since", 0)),
        memory=wire.load(fields.get(b"memory", b"null"), "json"),
    )


def _entry(name: bytes, fields: Mapping[bytes, Any]) -> tuple[str, Json]:
    return name.decode(), wire.load(fields[b"json"], "json")
