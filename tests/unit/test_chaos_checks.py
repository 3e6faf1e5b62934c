"""What scripts/chaos looks with: it finds what should not be, and its controls still find their places in the Lua."""

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from hexgen_flow.client import Event

ROOT = Path(__file__).resolve().parents[2]
GOOD = ("accepted", "stage_started a", "stage_completed a", "completed")


@pytest.fixture
def proofs(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(ROOT / "scripts" / "proofs")
    return importlib.import_module


def events(kinds: Sequence[str]) -> list[Event]:
    parted = [kind.partition(" ") for kind in kinds]
    return [
        Event(f"{at}-0", kind, {"stage": stage, "status": "completed"}) for at, (kind, _, stage) in enumerate(parted)
    ]


def test_legal_events_have_no_disorder(proofs: Any) -> None:
    assert list(proofs("chaos_checks").disorder(events(GOOD))) == []
    assert list(proofs("chaos_checks").disorder(events((GOOD[0], "amended", *GOOD[1:3], "amended", GOOD[3])))) == []


@pytest.mark.parametrize(
    ("kinds", "fault"),
    [
        ((*GOOD, "completed"), "completed 2 times"),
        ((*GOOD, "failed"), "goes on after its end"),
        ((*GOOD, "stage_started b"), "goes on after its end"),
        ((*GOOD, "amended"), "goes on after its end"),
        (("amended", *GOOD), "begins with amended"),
        (GOOD[1:], "begins with stage_started a"),
        ((*GOOD[:3], *GOOD[2:]), "stage_completed a 2 times"),
        ((GOOD[0], *GOOD[2:]), "a completed before it started"),
        ((*GOOD[:2], GOOD[3]), "completed while ['a'] had not"),
    ],
)
def test_illegal_events_are_found(proofs: Any, kinds: Sequence[str], fault: str) -> None:
    assert fault in list(proofs("chaos_checks").disorder(events(kinds)))


@pytest.mark.parametrize(
    ("asked", "told", "slo_s", "wrong", "twice"),
    [
        ([], [], 60, 0, 0),
        ([5000, 90_000], [90_000, 5000], 5, 0, 0),
        ([5000, 90_000], [5000], 5, 0, 0),  # the other came too late
        ([5000, 90_000], [5000, 90_000], 5, 1, 0),
        ([5000], [], 5, 1, 0),
        ([5000], [5000, 5000], 5, 0, 1),
        ([], [5000], 5, 0, 1),
    ],
)
def test_the_last_amendment_holds_and_none_is_told_twice(
    proofs: Any, asked: list[int], told: list[int], slo_s: float, wrong: int, twice: int
) -> None:
    amended = [Event("1-0", "amended", {"deadline_at": 100_000 + slo_ms}) for slo_ms in told]
    of = [Event("0-0", "accepted", {"deadline_at": 160_000}), *amended, Event("2-0", "completed", {"slo_s": slo_s})]
    found = proofs("chaos_checks").amendments(of, 60, asked)
    assert tuple(map(len, found)) == (wrong, twice)


def aof(*commands: str) -> bytes:
    parts = [command.split("|") for command in commands]
    return b"".join(
        f"*{len(words)}\r\n".encode() + b"".join(f"${len(word)}\r\n{word}\r\n".encode() for word in words)
        for words in parts
    )


ONCE = (
    "SELECT|0", "ZADD|{hexgen:x}:live|1|w1", "HSET|{hexgen:x}:request:r1|token|1|claimant|a/1",
    "RPUSH|{hexgen:x}:workflow:w1:mailbox|completed r1 s",
    "HINCRBY|{hexgen:x}:served|a|1", "SET|{hexgen:x}:workflow:w1:result|done|PXAT|99",
    "RPUSH|{hexgen:other}:workflow:w1:mailbox|completed r1 s",
)  # fmt: skip


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ((), []),
        ((ONCE[1],), ["workflow w1 began 2 times"]),
        ((ONCE[2],), []),
        ((ONCE[5],), ["workflow w1 ended 2 times"]),
        (ONCE[3:5], ["request r1 was completed 2 times"]),
        (ONCE[4:5], ["a request of a workflow that had ended was served (1 in all)"]),
    ],
)
@pytest.mark.parametrize("form", ["appendonly.aof", "appendonlydir/appendonly.aof.1.incr.aof"])
def test_the_ledger_counts_effects(
    proofs: Any, tmp_path: Path, form: str, more: tuple[str, ...], told: list[str]
) -> None:
    path = tmp_path / form
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(aof(*ONCE, *more) + aof(ONCE[1])[:-9])  # the last one is cut off, as by a kill
    ledger = proofs("ledger").Ledger("{hexgen:x}:")
    ledger.read(tmp_path)
    assert ledger.begun.total() >= 1
    assert ledger.claimed["r1"] == 1 + more.count(ONCE[2])
    assert ledger.double_effects() == told


@pytest.mark.parametrize(("what", "changed"), [("lease", {"reap.lua"}), ("fence", {"complete.lua", "renew.lua"})])
def test_a_control_differs_in_its_lua_alone(proofs: Any, tmp_path: Path, what: str, changed: set[str]) -> None:
    copy = proofs("sabotage").copy_without(what, ROOT, tmp_path / "code")
    sources = {path.relative_to(copy) for path in copy.rglob("*") if path.suffix in (".py", ".lua", ".yaml")}
    assert {path.name for path in sources if (copy / path).read_bytes() != (ROOT / path).read_bytes()} == changed
