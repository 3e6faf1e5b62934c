"""Finds keys that would stay for ever, or that the protocol does not know. Not a test itself."""

import re
import time
from pathlib import Path
from typing import Any

import redis

from common.store.keys import Keys

PROTOCOL = Path(__file__).resolve().parents[2] / "docs" / "protocol.md"
TYPES = {"sorted set": "zset"}
STAY = frozenset(
    ("submissions", "completions", "workflows", "ended", "parameters", "tuning", "plans", "relayed", "instances",
     "offers", "coordinators", "backlog", "served", "tenants", "learned", "dead", "server", "schema")
)  # fmt: skip
"""One of each in a cell, bounded; their entries come and go."""
BELONG = {"instance:": "instances", "wake:": "instances", "definition:": "workflows"}
"""Those that stay as long as what they belong to is registered."""
SHARED = frozenset({"wake:tools", "wake:line"})


def documented() -> list[tuple[str, str]]:
    """(pattern, type) of each key in the table of docs/protocol.md."""
    table = PROTOCOL.read_text().partition("\n## Keys\n")[2]
    rows = re.findall(r"^\| `([^`]+)` \| ([a-z ]+) \|", table, flags=re.MULTILINE)
    return [(re.sub(r"<\w+>", ".+", re.escape(name).replace(r"\<", "<")), TYPES.get(kind, kind)) for name, kind in rows]


def leaks(store: "redis.Redis", keys: Keys) -> list[str]:
    """A line for each key that stays though nothing runs, or that is not what the protocol says."""
    read: Any = store
    known, registered = documented(), {"instances": read.zrange(keys.instances, 0, -1)}
    registered["workflows"] = read.hvals(keys.workflows)
    found = []
    for key in read.scan_iter(f"{keys.prefix}*", count=1000):
        name, kind, ttl_ms = key.decode().removeprefix(keys.prefix), read.type(key).decode(), read.pttl(key)
        if ttl_ms == -2:
            continue  # it went meanwhile
        if not any(re.fullmatch(pattern, name) and kind == type_ for pattern, type_ in known):
            found.append(f"{name}, a {kind}, is not in docs/protocol.md")
        part, colon, owner = name.partition(":")
        belongs = owner.encode() in registered.get(BELONG.get(part + colon, ""), ())
        if ttl_ms == -1 and not (name in STAY or name in SHARED or belongs):
            found.append(f"{name}, a {kind}, stays for ever")
    return found


def check_for_leaks(url: str, namespace: str, timeout_s: float = 30) -> None:
    """Wait until only what may stays; then end all times to live, and it must be so still."""
    keys = Keys(namespace)
    with redis.Redis.from_url(url) as store:
        _until_clean(store, keys, timeout_s)
        for key in store.scan_iter(f"{keys.prefix}*", count=1000):
            if store.pttl(key) >= 0:
                store.pexpire(key, 1)
        _until_clean(store, keys, timeout_s)


def _until_clean(store: "redis.Redis", keys: Keys, timeout_s: float) -> None:
    until = time.monotonic() + timeout_s
    while told := leaks(store, keys):
        assert time.monotonic() < until, "\n".join(told)
        time.sleep(0.1)
