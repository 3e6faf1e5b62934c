"""The registry of instances: who serves what, how fast, and who was heard of when."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from redis.exceptions import RedisError

from common import wire
from common.errors import BadRecord, Superseded
from common.model import Instance, InstanceLoad, InstanceProfile, Json
from common.store.client import Client, now_ms, translate, translated
from common.store.keys import Keys
from common.store.scripts import Scripts

log = logging.getLogger("hexgen.store")
KEEP_GONE_MS = 24 * 3600 * 1000
IDLE_TENANTS = 1000
"""So many counters at most are kept of tenants that have no requests: anybody may think of new names."""
_FIELDS = (b"epoch", b"status", b"serves", b"profile", b"load")


class Instances:
    """Registration and reading of instances."""

    def __init__(self, client: Client, keys: Keys) -> None:
        self._client = client
        self._keys = keys
        self._scripts = Scripts(client, keys.prefix)
        self._unreadable: set[str] = set()

    async def register(
        self,
        instance: str,
        profile: InstanceProfile,
        models: Iterable[str],
        labels: Iterable[str],
        features: Iterable[str],
    ) -> int:
        """Join under this id; returns the new epoch. An earlier incarnation can no longer claim.

        What is queued under this id stays, unless this incarnation serves other models or takes only shorter prompts:
        then it is routed anew.
        """
        record = {"models": sorted(models), "labels": sorted(labels), "features": sorted(features)}
        epoch, status = await self._scripts.run(
            "register", instance, wire.pack(record), profile.longest_prompt, wire.pack_profile(profile)
        )
        if status != b"ready":
            await self.evacuate(instance, "joining", epoch)
            await self.evacuate(instance, "ready", epoch)
        return int(epoch)

    async def evacuate(self, instance: str, status: str, epoch: int | None = None, most: int = 100) -> int:
        """Give an instance this status and route all that is queued on it anew, `most` at a time; how much that was.

        With an epoch, only that incarnation is meant: raises Superseded when a later one has the instance.
        """
        total = 0
        while moved := int(await self._scripts.run("evacuate", instance, "" if epoch is None else epoch, status, most)):
            if moved < 0:
                raise Superseded(instance)
            total += moved
        return total

    async def claimed(self, instance: str) -> int:
        """How many requests it has claimed that have not ended."""
        with translated():
            return int(await self._client.scard(self._keys.claimed(instance)))

    async def remove(self, instance: str, epoch: int | None = None) -> bool:
        """Forget an instance whose queue is empty; False when, with an epoch, a later incarnation has it."""
        return bool(await self._scripts.run("leave", instance, "" if epoch is None else epoch, KEEP_GONE_MS))

    async def publish(self, instance: str, epoch: int, load: InstanceLoad, cache: bytes | None = None) -> bool:
        """Say what this incarnation holds, its prefix cache too unless that is as it was (None).

        False when it has lost its seat. The cache is the `common.prefix` hashes of the blocks in it, one after another.
        """
        args = (instance, epoch, wire.pack_load(load), load.cache_version)
        return bool(await self._scripts.run("publish", *args, *(() if cache is None else (cache,))))

    async def loads(self, instances: Sequence[str]) -> dict[str, InstanceLoad]:
        """What these instances last said of themselves; those that have said nothing readable are left out."""
        found = {}
        for instance, data in (await self._field(instances, "load")).items():
            if (load := self._load(instance, data)) is not None:
                found[instance] = load
        return found

    async def caches(self, instances: Sequence[str]) -> dict[str, bytes]:
        """The prefix caches these instances have last published, see `publish`."""
        return await self._field(instances, "cache")

    async def _field(self, instances: Sequence[str], field: str) -> dict[str, bytes]:
        with translated():
            pipeline = self._client.pipeline(transaction=False)
            for instance in instances:
                pipeline.hget(self._keys.instance(instance), field)
            values = await pipeline.execute(raise_on_error=False)
        return {name: value for name, value in zip(instances, values, strict=True) if isinstance(value, bytes)}

    def _load(self, instance: str, data: bytes) -> InstanceLoad | None:
        try:
            return wire.unpack_load(data)
        except Exception as error:  # whatever bytes can lead to
            log.debug("instance %s: its load cannot be read: %s", instance, error)
            return None

    async def all(self) -> list[Instance]:
        """Every registered instance, sorted by id; its profile is corrected by what it has said of itself."""
        return [instance for instance, _ in await self._known()]

    async def backlogs(self) -> dict[str, int]:
        """Outstanding work per instance in ms, as dispatched."""
        with translated():
            found = await self._client.hgetall(self._keys.backlog)
        return {name.decode(): int(value) for name, value in found.items()}

    async def shut(self) -> frozenset[str]:
        """Where a request that must run alone runs or is among the next: what is bound there waits for its end."""
        return frozenset(name.decode() for name in await self._scripts.run("shut"))

    async def shares(self) -> tuple[dict[str, int], set[str]]:
        """Tokens that each tenant has been charged, and the tenants with requests that have not ended."""
        with translated():
            pipeline = self._client.pipeline(transaction=False)
            pipeline.zrange(self._keys.shares, 0, -1, withscores=True)
            pipeline.hkeys(self._keys.outstanding)
            charged, active = await pipeline.execute()
        return {name.decode(): int(tokens) for name, tokens in charged}, {name.decode() for name in active}

    async def forget_tenants(self) -> int:
        """Forget counters that make no difference: of those without requests who will be lifted when they are back.

        Also those of all others without requests, but for the IDLE_TENANTS that were served most.
        """
        return int(await self._scripts.run("forget_tenants", IDLE_TENANTS))

    async def forget_counts(self) -> int:
        """Forget what was counted of instances of which nothing else is kept."""
        return int(await self._scripts.run("forget_instances"))

    async def served(self) -> dict[str, int]:
        """Requests completed by each instance that is kept, and by the tools, since it first joined."""
        with translated():
            found = await self._client.hgetall(self._keys.served)
        return {name.decode(): int(value) for name, value in found.items()}

    async def silent(self, longer_than_ms: int) -> list[str]:
        """Instances not heard of for that long by Redis's clock."""
        oldest = await now_ms(self._client) - longer_than_ms
        with translated():
            found = await self._client.zrangebyscore(self._keys.instances, "-inf", oldest)
        return [name.decode() for name in found]

    async def describe(self) -> list[dict[str, Json]]:
        """All there is to show of each instance; heard_s: since it last renewed its leases or registered, in s."""
        shown: list[dict[str, Json]] = []
        backlogs = await self.backlogs()
        with translated():
            heard_at = dict(await self._client.zrange(self._keys.instances, 0, -1, withscores=True))
        now = await now_ms(self._client)
        for instance, load in await self._known():
            with translated():
                queued = await self._client.zcard(self._keys.queue(instance.id))
            shown.append(
                {
                    "instance": instance.id,
                    "status": instance.status,
                    "heard_s": round((now - heard_at.get(instance.id.encode(), 0)) / 1000, 1),
                    "profile": instance.profile.name,
                    "models": list(instance.models),
                    "labels": sorted(instance.labels),
                    "queued": queued,
                    "backlog_s": backlogs.get(instance.id, 0) / 1000,
                    "load": None if load is None else {**asdict(load), "running": len(load.running)},
                }
            )
        return shown

    async def _known(self) -> list[tuple[Instance, InstanceLoad | None]]:
        """Instances and what they say of themselves.

        One whose record cannot be read is left out: it must not hide the others.
        """
        with translated():
            names = sorted(name.decode() for name in await self._client.zrange(self._keys.instances, 0, -1))
            pipeline = self._client.pipeline(transaction=False)
            for name in names:
                pipeline.hmget(self._keys.instance(name), _FIELDS)  # not its cache, which may be large
            records = await pipeline.execute(raise_on_error=False)
        known = []
        for name, values in zip(names, records, strict=True):
            try:
                if isinstance(values, RedisError):
                    raise translate(values)
                fields = dict(zip(_FIELDS, values, strict=True))
                instance = read_instance(name, fields)
                load = None if fields[b"load"] is None else self._load(name, fields[b"load"])
                if load is not None:
                    instance = replace(instance, profile=load.corrected(instance.profile))
                known.append((instance, load))
                self._unreadable.discard(name)
            except (BadRecord, ValueError, TypeError, LookupError, AttributeError) as error:
                if name not in self._unreadable:
                    log.warning("instance %s: its record cannot be read (%s); it is left out", name, error)
                self._unreadable.add(name)
        return known


def read_instance(name: str, fields: Mapping[bytes, Any]) -> Instance:
    """An instance as its hash has it, None for what is missing.

    Raises ValueError, TypeError, LookupError or AttributeError where that is not one of ours.
    """
    serves = wire.unpack(fields[b"serves"])
    return Instance(
        id=name,
        epoch=int(fields[b"epoch"]),
        profile=wire.unpack_profile(fields[b"profile"]),
        models=tuple(serves["models"]),
        labels=frozenset(serves["labels"]),
        features=frozenset(serves["features"]),
        status=fields[b"status"].decode(),
    )
