"""The Lua operations: loaded from `lua/`, sent by their digest, sent whole where the server has forgotten them."""

import hashlib
import re
import secrets
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

from redis.exceptions import NoScriptError, RedisError

from common.errors import BadRecord
from common.store.client import Client, translate, translated

_INCLUDE = re.compile(r"^--@include (\w+)$", re.MULTILINE)


class Script(NamedTuple):
    """One operation: its source with its includes, and the digest the server knows it by."""

    name: str
    source: str
    sha: str


class Call(NamedTuple):
    """An operation with its ARGV; KEYS[1] is always the namespace prefix."""

    script: str
    args: tuple[Any, ...]


def call_id() -> str:
    """A new id for one call; the same id sent again, because its reply was lost, gets the same answer."""
    return secrets.token_hex(8)


@cache
def load(name: str) -> Script:
    """The operation of that name."""
    folder = files("common.store").joinpath("lua")

    def include(match: re.Match[str]) -> str:
        return folder.joinpath("include", f"{match[1]}.lua").read_text("utf-8")

    source = _INCLUDE.sub(include, folder.joinpath(f"{name}.lua").read_text("utf-8"))
    return Script(name, source, hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest())


class Scripts:
    """Runs operations on one connection pool for one namespace."""

    def __init__(self, client: Client, prefix: str) -> None:
        self._client = client
        self._prefix = prefix

    async def run(self, name: str, *args: Any) -> Any:
        """One operation's reply. Raises StoreUnavailable, StoreRefused or BadRecord."""
        return (await self.run_many([Call(name, args)]))[0]

    async def run_many(self, calls: Sequence[Call]) -> list[Any]:
        """Replies in the order of the calls, in one round trip. Not atomic as a whole; each operation is.

        Raises StoreUnavailable, StoreRefused or BadRecord for the first that failed: others may have taken effect.
        """
        replies = await self.try_many(calls)
        for reply in replies:
            if isinstance(reply, BadRecord):
                raise reply
        return replies

    async def try_many(self, calls: Sequence[Call]) -> list[Any]:
        """As run_many, but where one call meets a bad record, the BadRecord is its reply and the others have theirs."""
        if not calls:
            return []
        with translated():
            replies = await self._send(calls)
            forgotten = [i for i, reply in enumerate(replies) if isinstance(reply, NoScriptError)]
            if forgotten:
                for name in {calls[i].script for i in forgotten}:
                    await self._client.script_load(load(name).source)
                again = await self._send([calls[i] for i in forgotten])
                for i, reply in zip(forgotten, again, strict=True):
                    replies[i] = reply
        return [_reply(reply) for reply in replies]

    async def _send(self, calls: Sequence[Call]) -> list[Any]:
        pipeline = self._client.pipeline(transaction=False)
        for call in calls:
            pipeline.execute_command("EVALSHA", load(call.script).sha, 1, self._prefix, *call.args)
        replies: list[Any] = await pipeline.execute(raise_on_error=False)
        return replies


def _reply(reply: Any) -> Any:
    if not isinstance(reply, RedisError):
        return reply
    error = translate(reply)
    if isinstance(error, BadRecord):
        return error
    raise error from reply
