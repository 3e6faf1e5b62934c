"""Finds keys that would stay for ever, or that the protocol does not know. Not a test itself."""

import re
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import redis

from common.store.keys import Keys

PROTOCOL = Path(__file__).resolve().parents[2] / "docs" / "protocol.md"
TYPES = {"sorted set": "zset"}
STAY = frozenset(
    ("submissions", "completions", "workflows", "ended", "parameters", "tuning", "plans", "relayed", "instances",
     "offers", "coordinators", "backlog", "served", "shares", "learned", "learned_at", "dead", "server", "schema",
     "limits", "quotas", "pace")
)  # fmt: skip
"""One of each in a cell, bounded; their entries come and go."""
BELONG = {"instance:": "instances", "wake:": "instances", "definition:": "workflows"}
"""Those that stay as long as what they belong to is registered."""
SHARED = frozenset({"wake:tools", "wake:line"})
OF_ALL = frozenset({"live", "lanes", "outstanding", "running", "workflow_tenants"})
"""There as long as any workflow runs."""


def documented() -> list[tuple[str, str]]:
    """(pattern, type) of each key in the table of docs/protocol.md."""
    table = PROTOCOL.read_text().partition("\n## Keys\n")[2]
    rows = re.findall(r"^\| `([^`]+)` \| ([a-z ]+) \|", table, flags=re.MULTILINE)
    return [(re.sub(r"<\w+>", ".+", re.escape(name).replace(r"\<", "<")), TYPES.get(kind, kind)) for name, kind in rows]


def leaks(store: "redis.Redis", keys: Keys, *, running: bool = False) -> list[str]:
    """A line for each key that stays though nothing needs it, or that is not what the protocol says.

    running: there may be workflows that have not ended; what is theirs may stay.
    """
    read: Any = store
    known, registered = documented(), {"instances": read.zrange(keys.instances, 0, -1)}
    registered["workflows"] = read.hvals(keys.workflows)
    kept = _kept(read, keys)
    theirs = _Theirs(read, keys, [(name, kind) for name, kind, _ in kept]) if running else None
    found = []
    for name, kind, ttl_ms in kept:
        if not any(re.fullmatch(pattern, name) and kind == type_ for pattern, type_ in known):
            found.append(f"{name}, a {kind}, is not in docs/protocol.md")
        part, colon, owner = name.partition(":")
        belongs = owner.encode() in registered.get(BELONG.get(part + colon, ""), ())
        stays = name in STAY or name in SHARED or belongs
        if ttl_ms == -1 and not stays and not (theirs and theirs.need(name, kind)):
            found.append(f"{name}, a {kind}, stays for ever")
    return found


def _kept(read: Any, keys: Keys) -> list[tuple[str, str, int]]:
    """(name, type, ms it is kept or -1) of each key."""
    names = list(read.scan_iter(f"{keys.prefix}*", count=1000))
    pipeline = read.pipeline(transaction=False)
    for name in names:
        pipeline.type(name).pttl(name)
    answers = iter(pipeline.execute())
    kept = [(name.decode().removeprefix(keys.prefix), next(answers).decode(), next(answers)) for name in names]
    return [one for one in kept if one[2] != -2]  # those that went meanwhile


class _Theirs:
    """What belongs to the workflows that run."""

    def __init__(self, read: Any, keys: Keys, there: Iterable[tuple[str, str]]) -> None:
        self._read, self._keys = read, keys
        self._live = set(read.zrange(keys.live, 0, -1)) if ("live", "zset") in there else set()
        records = [name for name, kind in there if name.startswith("request:") and kind == "hash"]
        pipeline = read.pipeline(transaction=False)
        for name in records:
            pipeline.hget(keys.prefix + name, "workflow")
        owners = zip(records, pipeline.execute(), strict=True)
        self._running = {name.removeprefix("request:").encode() for name, owner in owners if owner in self._live}

    def need(self, name: str, kind: str) -> bool:
        part, _, rest = name.partition(":")
        if part == "workflow":
            return rest.partition(":")[0].encode() in self._live
        if part == "request":
            return rest.encode() in self._running
        if part in ("queue", "leases"):
            return kind == "zset" and set(self._read.zrange(self._keys.prefix + name, 0, -1)) <= self._running
        if part == "claimed":
            return kind == "set" and set(self._read.smembers(self._keys.prefix + name)) <= self._running
        if name == "delayed":
            return {one.partition(b" ")[0] for one in self._read.zrange(self._keys.delayed, 0, -1)} <= self._live
        return name in OF_ALL and bool(self._live)


def namespaces(store: "redis.Redis") -> set[str]:
    """Those that have any key."""
    found = (re.match(r"\{hexgen:([\w-]+)\}:", key.decode("utf-8", "replace")) for key in store.scan_iter(count=1000))
    return {match[1] for match in found if match}


def forget(store: "redis.Redis", keys: Keys) -> None:
    """Remove all keys of a namespace."""
    if names := list(store.scan_iter(f"{keys.prefix}*", count=1000)):
        store.unlink(*names)


def check_for_leaks(url: str, namespace: str, timeout_s: float = 30) -> None:
    """Wait until only what may stays; then end all times to live, and it must be so still."""
    keys = Keys(namespace)
    with redis.Redis.from_url(url) as store:
        _until_clean(store, keys, timeout_s)
        pipeline = store.pipeline(transaction=False)
        for name, _, ttl_ms in _kept(store, keys):
            if ttl_ms >= 0:
                pipeline.pexpire(keys.prefix + name, 1)
        pipeline.execute()
        _until_clean(store, keys, timeout_s)


def _until_clean(store: "redis.Redis", keys: Keys, timeout_s: float) -> None:
    until = time.monotonic() + timeout_s
    while told := leaks(store, keys):
        assert time.monotonic() < until, "\n".join(told)
        time.sleep(0.1)
