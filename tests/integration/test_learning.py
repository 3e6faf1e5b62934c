"""What coordinators learn, shared through a real server: it adds up there as in memory, and damage is no trouble."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from common import wire
from common.errors import StoreUnavailable
from common.settings import load
from common.store.cell import Cell
from common.store.records import PAGE, Page, pages
from common.store.scripts import Call, Scripts
from coordinator.desk import Desk
from coordinator.estimates import MOST_NAMES, WINDOW, Estimates
from coordinator.language.compiler import compile_definition
from coordinator.loops.janitor import Janitor

STAGE = compile_definition({"name": "w", "stages": {"s": {"prompt": "x", "when": "true"}}}).stages["s"]


def _told(*taken: bool) -> Estimates:
    known = Estimates()
    for held in taken:
        known.saw_branch("w", STAGE, held)
    return known


async def learn(cell: Cell, added: Mapping[str, tuple[float, ...]], most: int = MOST_NAMES) -> list[Page]:
    sent = pages(added)
    for page in sent:
        await cell.records.learn(page, WINDOW, most)
    return sent


async def test_sums_fade_in_the_store_as_in_memory(cell: Cell) -> None:
    first, later = (False, True, True), [True, False, False] * 233
    one, both = _told(*first), _told(*first, *later)
    await learn(cell, one.take_added())
    await learn(cell, _told(*later).take_added())
    expected = both.take_added()
    found = await cell.records.learned()
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        assert found[name] == pytest.approx(values, rel=1e-12)


async def test_more_names_than_fit_one_call(cell: Cell) -> None:
    added = {f"output/w/s{number}/": (1.0, float(number)) for number in range(2 * PAGE + 1)}
    assert len(await learn(cell, added)) == 3
    assert await cell.records.learned() == added
    assert await learn(cell, {}) == []


async def test_of_too_many_names_those_not_observed_for_the_longest_time_are_forgotten(cell: Cell) -> None:
    seen, most = f"{cell.keys.prefix}learned_at", 3
    await learn(cell, dict.fromkeys(("a", "b", "c"), (1.0, 1.0)), most)
    await cell.client.zadd(seen, {"a": 1, "b": 2, "c": 3})
    await learn(cell, {"a": (1.0, 1.0)}, most)
    assert set(await cell.records.learned()) == {"a", "b", "c"}
    await learn(cell, {"d": (1.0, 1.0)}, most)
    assert set(await cell.records.learned()) == {"a", "c", "d"}
    # A version that did not say when has added to them.
    await cell.client.hset(cell.keys.learned, mapping={"x": wire.pack((1.0, 1.0)), "y": wire.pack((1.0, 1.0))})
    await learn(cell, {"e": (1.0, 1.0)}, most)
    assert set(await cell.records.learned()) == {"a", "d", "e"}
    assert {name.decode() for name in await cell.client.zrange(seen, 0, -1)} == {"a", "d", "e"}


@pytest.mark.parametrize("damage", [b"", b"12.5", b"\xc1", b"\x92\x01\xa1x", b"\x93\x01\x01\x01"])
async def test_what_cannot_be_read_is_learned_anew(cell: Cell, damage: bytes) -> None:
    await cell.client.hset(cell.keys.learned, "tool/w/s/", damage)
    await cell.client.hset(cell.keys.learned, "tool/w/t/", damage)
    await learn(cell, {"tool/w/s/": (1.0, 3.0)})
    fresh = Estimates()
    fresh.replace(await cell.records.learned())
    assert (await cell.records.learned())["tool/w/s/"] in ((1.0, 3.0), (2.0 - 1 / WINDOW, 3.0))


@pytest.mark.parametrize("arrives", [True, False])
async def test_what_was_learned_counts_once_if_the_store_goes_away_in_the_midst_of_it(
    cell: Cell, monkeypatch: pytest.MonkeyPatch, arrives: bool
) -> None:
    async def at_once(seconds: float) -> None: ...

    send, sent = Scripts._send, 0

    async def breaks(scripts: Scripts, calls: Sequence[Call]) -> list[Any]:
        nonlocal sent
        sent += calls[0].script == "learn"
        if sent != 2:
            return await send(scripts, calls)
        if arrives:
            await send(scripts, calls)
        raise StoreUnavailable("Redis is away")

    monkeypatch.setattr("common.clock.sleep", at_once)
    desk = Desk(cell, load(policy="hexgen"))
    turn = Janitor(desk)
    for number in range(2 * PAGE + 1):
        desk.estimates.saw_branch(f"w{number}", STAGE, taken=True)
    with monkeypatch.context() as patch:
        patch.setattr(Scripts, "_send", breaks)
        with pytest.raises(StoreUnavailable):
            await turn()
    again = f"w{PAGE}"  # of the page that broke
    desk.estimates.saw_branch(again, STAGE, taken=False)
    await turn()
    once = {f"when/w{number}/s/": (1.0, 1.0) for number in range(2 * PAGE + 1)}
    assert await cell.records.learned() == once
    await turn()
    assert await cell.records.learned() == once | {f"when/{again}/s/": (2.0 - 1 / WINDOW, 1.0 - 1 / WINDOW)}
