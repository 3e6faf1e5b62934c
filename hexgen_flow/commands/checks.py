"""What doctor makes of what it is told: each check a pure function of facts. Reads nothing."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from common.model import Json
from common.store.checkup import Queue

SLOW_MS = 50.0
CLOCK_MS = 1000
OLDEST = (6, 2)
NO_INFO = "the user may not run INFO, so it is not known"
COORDINATOR = "start one: hexgen-flow coordinator"
State = Literal["ok", "warning", "fault"]


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check has found, and what to do about it (empty where it is ok)."""

    check: str
    state: State
    found: str
    advice: str = ""


def answer(round_trip_ms: float) -> Finding:
    found = f"answers in {round_trip_ms:.1f} ms"
    if round_trip_ms <= SLOW_MS:
        return Finding("server", "ok", found)
    advice = f"each operation waits as long: bring it nearer, or relieve it (it should take less than {SLOW_MS:g} ms)"
    return Finding("server", "warning", found, advice)


def version(info: Mapping[str, Any]) -> Finding:
    if not info:
        return Finding("version", "warning", NO_INFO, "permit INFO, or make sure it is Redis 6.2 or newer, or Valkey")
    if "dragonfly_version" in info:
        advice = "use Redis or Valkey: it does not take scripts that build the names of keys"
        return Finding("version", "fault", "Dragonfly", advice)
    kind = "valkey" if "valkey_version" in info else "redis"
    number = str(info.get(f"{kind}_version", ""))
    found = f"{kind.title()} {number}"
    parts = [int(part) if part.isdigit() else 0 for part in number.split(".")[:2]]
    if tuple(parts) < OLDEST:
        return Finding("version", "fault", found, "install Redis 6.2 or newer, or Valkey")
    return Finding("version", "ok", found)


def memory(info: Mapping[str, Any]) -> Finding:
    policy = info.get("maxmemory_policy")
    if policy is None:
        return Finding("memory", "warning", NO_INFO, "make sure that maxmemory-policy is noeviction")
    if policy != "noeviction":
        advice = "set maxmemory-policy noeviction: full, this one throws workflows away"
        return Finding("memory", "fault", f"maxmemory-policy {policy}", advice)
    return Finding("memory", "ok", "maxmemory-policy noeviction")


def persistence(info: Mapping[str, Any], fsync: str | None) -> Finding:
    """`fsync` is None where CONFIG is not permitted."""
    check = "persistence"
    if "aof_enabled" not in info:
        return Finding(check, "warning", NO_INFO, "make sure that appendonly is yes")
    if not info["aof_enabled"]:
        return Finding(check, "fault", "no append-only file", "set appendonly yes: a restart loses all workflows")
    if info.get("aof_last_write_status", "ok") != "ok":
        return Finding(check, "fault", "the append-only file cannot be written", "look at the server's disk and log")
    if fsync is None:
        advice = "make sure that appendfsync is everysec or always"
        return Finding(check, "warning", "append-only file; the user may not run CONFIG, so no more is known", advice)
    found = f"append-only file, appendfsync {fsync}"
    if fsync == "no":
        return Finding(check, "warning", found, "set appendfsync everysec (or always): a power cut loses minutes")
    return Finding(check, "ok", found)


def cluster(info: Mapping[str, Any]) -> Finding:
    if info.get("cluster_enabled"):
        return Finding("cluster", "warning", "cluster mode is on", "tool stages need a server without cluster mode")
    if not info:
        return Finding("cluster", "warning", NO_INFO, "make sure that cluster mode is off, or that no stage has a tool")
    return Finding("cluster", "ok", "cluster mode is off")


def clocks(ahead_ms: float) -> Finding:
    found = f"this host is {abs(ahead_ms) / 1000:.1f} s {'ahead of' if ahead_ms >= 0 else 'behind'} the server"
    if abs(ahead_ms) <= CLOCK_MS:
        return Finding("clock", "ok", found)
    return Finding(
        "clock", "warning", found, "synchronise both: deadlines that clients give in ms are read by its clock"
    )


def rights(user: str, refused: Sequence[str] | None) -> Finding:
    """`refused` is None where the server cannot tell."""
    if refused is None:
        return Finding("rights", "ok", f"{user}; what it may do, servers tell from 7.0 on")
    if refused:
        advice = "permit these, if coordinators and workers run as this user"
        return Finding("rights", "fault", f"{user} may not run {', '.join(refused)}", advice)
    return Finding("rights", "ok", f"{user} may run what coordinators and workers do")


def coordinators(policies: Mapping[str, str]) -> Finding:
    if not policies:
        return Finding("coordinators", "fault", "none is there", COORDINATOR)
    kinds = sorted(set(policies.values()))
    found = f"{len(policies)}, policy {' and '.join(kinds)}"
    if len(kinds) > 1:
        return Finding("coordinators", "warning", found, "start all of them with one --policy")
    return Finding("coordinators", "ok", found)


def instances(known: Sequence[Mapping[str, Json]], lease_s: float) -> Finding:
    def is_well(one: Mapping[str, Json]) -> bool:
        return bool(one["status"] == "ready" and one["heard_s"] <= lease_s)

    well, not_well = [one for one in known if is_well(one)], [one for one in known if not is_well(one)]
    told = [f"{one['instance']} is {one['status']}, heard of {one['heard_s']:.0f} s ago" for one in not_well]
    found = "; ".join([f"{len(well)} ready", *told])
    if not well:
        return Finding("instances", "fault", found, "start one: hexgen-flow worker --instance NAME")
    if not_well:
        return Finding("instances", "warning", found, "look at their workers' logs, or start them again")
    return Finding("instances", "ok", found)


def tools(users: Mapping[str, Sequence[str]], offers: Mapping[str, frozenset[str]]) -> Finding:
    """`users`: the registered workflows that use each tool."""
    if not users:
        return Finding("tools", "ok", "no registered workflow uses any")
    missing = [name for name in sorted(users) if not offers or any(name not in has for has in offers.values())]
    if not missing:
        return Finding("tools", "ok", f"{len(offers)} tool workers have all of {', '.join(sorted(users))}")
    used = "; ".join(f"{name} (used by {', '.join(users[name])})" for name in missing)
    if not offers:
        return Finding("tools", "warning", f"no tool worker for {used}", "start one: hexgen-flow tools")
    advice = "install it beside every tool worker; until then nothing is sent to it"
    return Finding("tools", "warning", f"not every tool worker has {used}", advice)


def leases(over: int) -> Finding:
    if over:
        found = f"{over} ended long ago and were not taken back"
        return Finding("leases", "fault", found, "look at the coordinators' logs, or " + COORDINATOR)
    return Finding("leases", "ok", "none is long over")


def streams(found: Mapping[str, Queue], lease_ms: int) -> Finding:
    stuck = {name: queue for name, queue in found.items() if queue.oldest_ms > lease_ms}
    if not stuck:
        return Finding("streams", "ok", ", ".join(f"{queue.entries} {name}" for name, queue in found.items()))
    told = (f"{queue.entries} {name}, the oldest for {queue.oldest_ms / 1000:.0f} s" for name, queue in stuck.items())
    return Finding("streams", "warning", "; ".join(told), "start more coordinators, or look at their logs")


def dead_letters(count: int) -> Finding:
    if not count:
        return Finding("dead letters", "ok", "none")
    advice = "`hexgen-flow dead list` tells what was given up and why: requeue or drop each"
    return Finding("dead letters", "warning", str(count), advice)
