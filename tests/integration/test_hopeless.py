"""Submissions that would be late even alone on the cluster: refused where that is asked for, with a reason."""

import re
from typing import Any

import pytest

from common import wire
from common.model import InstanceProfile
from common.settings import load
from common.store.cell import Cell
from coordinator.desk import Desk
from coordinator.loops.completions import completions
from coordinator.loops.intake import intake

SLOW = InstanceProfile("slow", 1000.0, 0.09, 0.01, 1e-7, 100_000)
FAST = InstanceProfile("fast", 10_000.0, 0.009, 0.001, 1e-7, 100_000)
WORDS = {"prompt": "x" * 400, "expect": {"output_tokens": 1000}}  # 100 s, or 10 s on the fast one
TOOL = {"tool": "t", "expect": {"seconds": 400}}


@pytest.fixture
async def slow(cell: Cell) -> Cell:
    """A cell that has a slow instance."""
    await cell.instances.register("slow", SLOW, ["default"], [], [])
    return cell


async def answer(cell: Cell, stages: dict[str, Any], how: str = "refuse", **asked: Any) -> tuple[str, Any]:
    """What a new coordinator says to it."""
    entry = await cell.records.submit({"workflow": {"name": "one", "stages": stages}, "slo_s": 60, **asked})
    await intake(Desk(cell, load(hopeless=how)))
    told = await cell.records.first(entry)
    assert told is not None
    return told


async def test_what_cannot_be_done_in_time_is_refused_with_both_times(slow: Cell) -> None:
    kind, told = await answer(slow, {"a": TOOL, "b": {**WORDS, "needs": ["a"]}})
    assert (kind, told["field"]) == ("rejected", "slo_s")
    said = r"expected to take 5\d\d\.\d s on this cluster even alone, and (\d\d\.\d) s are left until its deadline: "
    found = re.fullmatch(said + "give it more time", told["error"])
    assert found
    assert 0 < float(found[1]) <= 60
    assert await slow.records.live(10) == []


async def test_unless_it_is_asked_for_nothing_is_refused(slow: Cell) -> None:
    assert load().hopeless == "accept"
    assert (await answer(slow, {"a": TOOL}, "accept"))[0] == "accepted"


@pytest.mark.parametrize(
    ("stages", "asked"),
    [
        ({"a": TOOL}, {"slo_s": 3600}),
        ({"a": {"prompt": "x", "max_tokens": 100_000}}, {}),
        ({"a": {"prompt": "x"}, "b": {**TOOL, "needs": ["a"], "optional": True}}, {}),
        ({"a": {**WORDS, "model": "nobody's"}}, {}),
    ],
    ids=["time enough", "never seen", "only its optional stage is too long", "nobody serves it yet"],
)
async def test_what_may_be_done_in_time_is_accepted(slow: Cell, stages: dict[str, Any], asked: dict[str, Any]) -> None:
    assert (await answer(slow, stages, **asked))[0] == "accepted"


async def test_the_fastest_instance_counts_and_without_any_nothing_does(cell: Cell) -> None:
    assert (await answer(cell, {"a": WORDS}))[0] == "accepted"
    await cell.instances.register("slow", SLOW, ["default"], [], [])
    assert (await answer(cell, {"a": WORDS}))[0] == "rejected"
    epoch = await cell.instances.register("fast", FAST, ["default"], [], [])
    assert (await answer(cell, {"a": WORDS}))[0] == "accepted"
    await cell.instances.evacuate("fast", "draining", epoch)
    assert (await answer(cell, {"a": WORDS}))[0] == "rejected"


async def test_what_was_accepted_before_stays_accepted(slow: Cell) -> None:
    assert (await answer(slow, {"a": TOOL}, "accept", id="order-1"))[0] == "accepted"
    assert (await answer(slow, {"a": TOOL}, id="order-1"))[0] == "accepted"
    assert (await answer(slow, {"a": {**TOOL, "retries": 1}}, id="order-1"))[1]["field"] == "id"
    assert (await answer(slow, {"a": TOOL}, id="order-2"))[0] == "rejected"


async def test_the_time_that_a_submission_has_waited_counts(slow: Cell) -> None:
    stages = {"a": {"tool": "t", "expect": {"seconds": 50}}}
    document = wire.dump({"workflow": {"name": "one", "stages": stages}, "slo_s": 60}, "json")
    arrival_at = await slow.records.now_ms() - 20_000
    entry = await slow.client.xadd(slow.keys.submissions, {"json": document}, id=f"{arrival_at}-0")
    await intake(Desk(slow, load(hopeless="refuse")))
    told = await slow.records.first(entry.decode())
    assert told is not None
    assert told[0] == "rejected"
    assert await slow.client.xlen(slow.keys.submissions) == 0


async def test_the_others_go_on(slow: Cell) -> None:
    desk = Desk(slow, load(policy="hexgen", hopeless="refuse"))
    for seconds in (400, 4, 400):
        stages = {"a": {"tool": "t", "expect": {"seconds": seconds}}}
        await slow.records.submit({"workflow": {"name": "one", "stages": stages}, "slo_s": 60})
    await intake(desk)
    await completions(desk)
    counts = await slow.records.counts()
    assert (counts["running"], counts["rejected"], counts["dead"]) == (1, 2, 0)


async def test_an_amendment_that_cannot_be_met_is_taken_for_its_order(slow: Cell) -> None:
    assert (await answer(slow, {"a": WORDS}, slo_s=3600, id="order-1"))[0] == "accepted"
    desk = Desk(slow, load(hopeless="refuse"))
    entry = await slow.records.submit({"amend": "order-1", "slo_s": 1})
    await intake(desk)
    await completions(desk)
    assert await slow.records.first(entry) is None
    told = await slow.records.look({"order-1": "0"}, 0.1)
    assert "amended" in [kind for _, _, kind, _ in told]
    assert await slow.records.live(10) == ["order-1"]
