"""The line: requests that no instance has yet. What a planner reads of it and of the instances, and how it places them.

Must not know how a plan is made.
"""

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from common import wire
from common.lineup import Asked, Lineup, Placement, Standing
from common.model import Instance, InstanceLoad
from common.prefix import HASH_BYTES
from common.store.client import Client, translated
from common.store.instances import read_instance
from common.store.keys import Keys
from common.store.scripts import Scripts

LOOK_S = 1.0
"""The longest a planner waits: another, which was woken in its stead, may have died."""
MOST_SEEN = 1024
"""So many requests of the line a look shows at most, if no more lanes than that have some."""
_FIELDS = ("enqueued_at", "offset_ms", "prompt_tokens", "expected_tokens", "slo_ms", "prefix", "wants", "token")
log = logging.getLogger("hexgen.store")


class Line:
    """The planners' side of the store. Keeps what does not change: registrations and prefix caches by version."""

    def __init__(self, client: Client, blocking: Client, keys: Keys) -> None:
        self._client = client
        self._blocking = blocking
        self._keys = keys
        self._scripts = Scripts(client, keys.prefix)
        self._known: dict[str, _Known] = {}

    async def wait(self) -> bool:
        """Sleep until something is in the line, or there is room for what waits there; at most LOOK_S."""
        with translated():
            return bool(await self._blocking.bzpopmin(self._keys.line_wake, timeout=LOOK_S))

    async def survey(self, most: int) -> Lineup:
        """The first `most` of each lane, and the instances; an instance that cannot be read is left out."""
        held = {name: known.held for name, known in self._known.items()}
        now, plans, line, seen = await self._scripts.run("survey", most, MOST_SEEN, wire.pack_for_lua(held))
        if line:
            self._known = {name: known for name, known in (self._read(parts) for parts in seen) if known is not None}
        standings = [
            self._known[name].standing(load, queued, claimed, alone=bool(alone))
            for name, load, queued, claimed, alone in ((parts[0].decode(), parts[4], *parts[7:]) for parts in seen)
            if name in self._known
        ]
        in_order = sorted(zip(map(float, line[1::4]), line[::4], line[2::4], line[3::4], strict=True))
        requests = _names([request for _, request, *_ in in_order])
        tokens, keys_ms = _names([token for *_, token, _ in in_order]), tuple(int(key) for key, *_ in in_order)
        alone = frozenset(_names([request for _, request, _, alone in in_order if alone]))
        return Lineup(int(now), int(plans), requests, tuple(standings), tokens, keys_ms, alone)

    def _read(self, parts: Sequence[Any]) -> "tuple[str, _Known | None]":
        name, epoch, version, cache = parts[0].decode(), parts[1], parts[5], parts[6]
        known = self._known.get(name)
        try:
            if known is None or known.held[0] != epoch:
                fields = {b"epoch": epoch, b"serves": parts[2], b"profile": parts[3], b"status": b"ready"}
                known = _Known(read_instance(name, fields))
            if cache is not None:
                known.take_cache(epoch, version, cache)
            return name, known
        except Exception as error:  # whatever bytes can lead to
            log.debug("instance %s cannot be read: %s", name, error)
            return name, None

    async def asked(self, requests: Sequence[str]) -> dict[str, Asked]:
        """What the records of these requests say; those that cannot be read are left out."""
        if not requests:
            return {}
        with translated():
            pipeline = self._client.pipeline(transaction=False)
            for request in requests:
                pipeline.hmget(self._keys.request(request), *_FIELDS)
            found = await pipeline.execute(raise_on_error=False)
        read = (_asked(request, fields) for request, fields in zip(requests, found, strict=True))
        return {asked.request: asked for asked in read if asked is not None}

    async def place(self, plans: int, placements: Sequence[Placement]) -> list[bool] | None:
        """Carry out a plan made after so many others: which requests have gone to their instances.

        None if another plan came first: nothing was placed. One that is not placed has left the line, or its instance
        is not ready any more. After StoreUnavailable it may have been carried out, or not; sent again it is not.
        """
        packed = wire.pack_for_lua([(p.request, p.instance, str(p.epoch), p.load_ms) for p in placements])
        reply = await self._scripts.run("place", plans, packed)
        return [bool(placed) for placed in reply] if reply else None

    async def give_back(self, requests: Sequence[str]) -> int:
        """Requests of the line that no instance can take go back to their workflows; how many did."""
        return int(await self._scripts.run("unplace", *requests)) if requests else 0


class _Known:
    """What does not change of an incarnation, its cache of one version, and its last load: most looks find the same."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self.held: tuple[bytes, bytes] = (b"", b"")
        self._cache: frozenset[bytes] = frozenset()
        self._load: bytes | None = None
        self._said: tuple[Instance, InstanceLoad | None] = (instance, None)

    def take_cache(self, epoch: bytes, version: bytes, cache: bytes) -> None:
        self.held = (epoch, version)
        self._cache = frozenset(cache[at : at + HASH_BYTES] for at in range(0, len(cache), HASH_BYTES))

    def standing(
        self, load: bytes | None, queued: Sequence[bytes], claimed: Sequence[bytes], *, alone: bool
    ) -> Standing:
        if load != self._load:
            self._load, self._said = load, self._read(load)
        keys_ms = tuple(int(float(key)) for key in queued[1::2])
        return Standing(*self._said, self._cache, _names(queued[::2]), _names(claimed), alone, keys_ms)

    def _read(self, load: bytes | None) -> tuple[Instance, InstanceLoad | None]:
        try:
            if load is not None:
                said = wire.unpack_load(load)
                return replace(self.instance, profile=said.corrected(self.instance.profile)), said
        except Exception as error:  # whatever bytes can lead to
            log.debug("instance %s: its load cannot be read: %s", self.instance.id, error)
        return self.instance, None


def _names(found: Sequence[bytes]) -> tuple[str, ...]:
    return tuple(name.decode("utf-8", "replace") for name in found)


def _asked(request: str, fields: Any) -> Asked | None:
    try:
        enqueued_at, offset_ms, prompt, expected, slo_ms, prefix, wants, token = fields
        model, requires, features, characters = wire.unpack_wants(wants)
        return Asked(
            request, int(enqueued_at) + int(offset_ms), int(prompt), int(expected), int(slo_ms), prefix or b"",
            model, requires, features, characters, (token or b"").decode(),
        )  # fmt: skip
    except Exception as error:  # whatever bytes can lead to
        log.debug("request %s cannot be read: %s: %s", request, type(error).__name__, error)
        return None
