"""What doctor makes of facts: each bound from both sides."""

import re
from pathlib import Path
from typing import Any

import pytest

from common.store.checkup import Queue, commands_used
from hexgen_flow.commands import checks
from hexgen_flow.commands.checks import Finding

STORE = Path(__file__).resolve().parents[2] / "common" / "store"
REDIS = {"redis_version": "7.0.15", "maxmemory_policy": "noeviction", "aof_enabled": 1, "cluster_enabled": 0}
HERE = {"instance": "a", "status": "ready", "heard_s": 3.0}
NO_COMMANDS = {"ACLOSE", "PIPELINE", "EXECUTE", "EXECUTE_COMMAND"}
OF_OTHERS = {"EVAL", "SCAN"}
"""Tool workers send the one, an administrator's purge the other."""


@pytest.mark.parametrize(
    ("finding", "state", "found"),
    [
        (checks.answer(50), "ok", "answers in 50.0 ms"),
        (checks.answer(51), "warning", "answers in 51.0 ms"),
        (checks.version(REDIS), "ok", "Redis 7.0.15"),
        (checks.version({"redis_version": "6.2.14"}), "ok", "Redis 6.2.14"),
        (checks.version({"redis_version": "6.0.9"}), "fault", "Redis 6.0.9"),
        (checks.version({"redis_version": "7.2.4", "valkey_version": "9.1.2"}), "ok", "Valkey 9.1.2"),
        (checks.version({"redis_version": "7.4.0", "dragonfly_version": "df-1.2"}), "fault", "Dragonfly"),
        (checks.version({}), "warning", checks.NO_INFO),
        (checks.memory(REDIS), "ok", "maxmemory-policy noeviction"),
        (checks.memory({"maxmemory_policy": "allkeys-lru"}), "fault", "maxmemory-policy allkeys-lru"),
        (checks.memory({}), "warning", checks.NO_INFO),
        (checks.persistence(REDIS, "everysec"), "ok", "append-only file, appendfsync everysec"),
        (checks.persistence(REDIS, "no"), "warning", "append-only file, appendfsync no"),
        (checks.persistence(REDIS, None), "warning", "append-only file; the user may not run CONFIG"),
        (checks.persistence({"aof_enabled": 0}, "everysec"), "fault", "no append-only file"),
        (checks.persistence(REDIS | {"aof_last_write_status": "err"}, "always"), "fault", "cannot be written"),
        (checks.persistence({}, None), "warning", checks.NO_INFO),
        (checks.cluster(REDIS), "ok", "cluster mode is off"),
        (checks.cluster({"cluster_enabled": 1}), "warning", "cluster mode is on"),
        (checks.cluster({}), "warning", checks.NO_INFO),
        (checks.clocks(1000), "ok", "this host is 1.0 s ahead of the server"),
        (checks.clocks(-1001), "warning", "this host is 1.0 s behind the server"),
        (checks.rights("user u", None), "ok", "from 7.0 on"),
        (checks.rights("user u", []), "ok", "user u may run"),
        (checks.rights("user u", ["HSET", "XADD"]), "fault", "user u may not run HSET, XADD"),
        (checks.coordinators({}), "fault", "none is there"),
        (checks.coordinators({"a": "flow", "b": "flow"}), "ok", "2, policy flow"),
        (checks.coordinators({"a": "flow", "b": "ray"}), "warning", "2, policy flow and ray"),
        (checks.instances([], 30), "fault", "0 ready"),
        (checks.instances([HERE], 30), "ok", "1 ready"),
        (checks.instances([HERE | {"heard_s": 31.0}], 30), "fault", "a is ready, heard of 31 s ago"),
        (checks.instances([HERE, HERE | {"status": "draining"}], 30), "warning", "1 ready; a is draining"),
        (checks.tools({}, {}), "ok", "no registered workflow uses any"),
        (checks.tools({"t": ["w"]}, {"one": frozenset("tu")}), "ok", "1 tool workers have all of t"),
        (checks.tools({"t": ["w", "x"]}, {}), "warning", "no tool worker for t (used by w, x)"),
        (checks.tools({"t": ["w"]}, {"one": frozenset("t"), "two": frozenset()}), "warning", "not every tool worker"),
        (checks.leases(0), "ok", "none is long over"),
        (checks.leases(2), "fault", "2 ended long ago"),
        (checks.streams({"submissions": Queue(3, 30_000)}, 30_000), "ok", "3 submissions"),
        (checks.streams({"submissions": Queue(3, 30_001)}, 30_000), "warning", "3 submissions, the oldest for 30 s"),
        (checks.dead_letters(0), "ok", "none"),
        (checks.dead_letters(4), "warning", "4"),
    ],
)
def test_a_finding_says_what_is_so_and_what_to_do(finding: Finding, state: str, found: str) -> None:
    assert finding.state == state
    assert found in finding.found
    assert bool(finding.advice) == (state != "ok")


def test_the_rights_looked_at_are_those_of_every_command_the_store_sends() -> None:
    """Of operations they are read from the operations; of what is sent by itself there is a list."""
    sent: set[Any] = set()
    for file in STORE.glob("*.py"):
        if file.name not in ("checkup.py", "embedded.py"):
            sent |= set(re.findall(r"\b(?:_?client|_?blocking|_?connection|pipeline)\.([a-z_]+)\(", file.read_text()))
    sent.discard("connection_pool")
    words = {
        re.sub("^(SCRIPT|XGROUP|XINFO)_", r"\1 ", name.upper()).replace("DELETE", "DEL").removesuffix("_RANGE")
        for name in sent
    }
    assert len(words) > 30
    assert words - NO_COMMANDS - OF_OTHERS <= set(commands_used())
    assert {"ZREMRANGEBYSCORE", "HSETNX", "TIME"} <= set(commands_used())
