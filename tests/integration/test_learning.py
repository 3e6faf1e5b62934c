"""What coordinators learn, shared through a real server: it adds up there as in memory, and damage is no trouble."""

import pytest

from common.store.cell import Cell
from common.store.records import PAGE
from coordinator.estimates import WINDOW, Estimates
from coordinator.language.compiler import compile_definition

STAGE = compile_definition({"name": "w", "stages": {"s": {"prompt": "x", "when": "true"}}}).stages["s"]


def _told(*taken: bool) -> Estimates:
    known = Estimates()
    for held in taken:
        known.saw_branch("w", STAGE, held)
    return known


async def test_sums_fade_in_the_store_as_in_memory(cell: Cell) -> None:
    first, later = (False, True, True), [True, False, False] * 233
    one, both = _told(*first), _told(*first, *later)
    await cell.records.learn(one.take_added(), WINDOW)
    await cell.records.learn(_told(*later).take_added(), WINDOW)
    expected = both.take_added()
    found = await cell.records.learned()
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        assert found[name] == pytest.approx(values, rel=1e-12)


async def test_more_names_than_fit_one_call(cell: Cell) -> None:
    added = {f"output/w/s{number}/": (1.0, float(number)) for number in range(2 * PAGE + 1)}
    await cell.records.learn(added, WINDOW)
    assert await cell.records.learned() == added
    await cell.records.learn({}, WINDOW)


@pytest.mark.parametrize("damage", [b"", b"12.5", b"\xc1", b"\x92\x01\xa1x", b"\x93\x01\x01\x01"])
async def test_what_cannot_be_read_is_learned_anew(cell: Cell, damage: bytes) -> None:
    await cell.client.hset(cell.keys.learned, "tool/w/s/", damage)
    await cell.client.hset(cell.keys.learned, "tool/w/t/", damage)
    await cell.records.learn({"tool/w/s/": (1.0, 3.0)}, WINDOW)
    fresh = Estimates()
    fresh.replace(await cell.records.learned())
    assert (await cell.records.learned())["tool/w/s/"] in ((1.0, 3.0), (2.0 - 1 / WINDOW, 3.0))
