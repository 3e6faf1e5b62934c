"""How a workflow stands, as data and as lines, while its requests wait, run and end on a real server."""

import re
from typing import Any

import pytest

from common.events import Outcome
from common.model import InstanceProfile
from common.settings import load
from common.store.cell import Cell
from common.store.queues import Room, Seat
from coordinator.desk import Desk
from coordinator.loops.completions import completions
from coordinator.loops.intake import intake
from hexgen_flow.commands.standing import MOST_COPIES, lines, standing
from workers.engines.protocol import EngineError

PROFILE = InstanceProfile("test", 1000.0, 0.03, 0.005, 1e-7, 1000)


class Bench:
    """A coordinator and an instance, driven by hand."""

    def __init__(self, cell: Cell, seat: Seat, policy: str = "hexgen") -> None:
        self.cell = cell
        self.desk = Desk(cell, load(policy=policy))
        self.seat = seat

    async def submit(self, stages: dict[str, Any], **more: Any) -> None:
        await self.cell.records.submit({"workflow": {"name": "one", "stages": stages}, "id": "w", **more})
        await intake(self.desk)
        await completions(self.desk)

    async def claim(self, most: int = 1) -> list[Any]:
        return await self.cell.queues.claim(self.seat, f"call-{most}", 60_000, Room(most, 1000, 1000))

    async def finish(self, claim: Any, outcome: Outcome | BaseException) -> None:
        assert await self.cell.queues.finish([(claim.request, claim.token, outcome)]) == [True]
        await completions(self.desk)

    async def told(self) -> dict[str, Any]:
        return await standing(self.cell, "w")

    async def lines(self) -> list[str]:
        return list(lines(await self.told()))


@pytest.fixture
async def bench(cell: Cell) -> Bench:
    epoch = await cell.instances.register("a", PROFILE, ["default"], [], [])
    return Bench(cell, Seat("a", epoch, "a/1"))


async def test_each_live_stage_says_where_it_is(bench: Bench) -> None:
    stages = {
        "first": {"prompt": "x"},
        "second": {"prompt": "x"},
        "third": {"prompt": "x", "model": "nobody"},
        "group": {"needs": ["second"], "stages": {"inner": {"prompt": "x"}}},
    }
    await bench.submit(stages, slo_s=100, tenant="acme")
    (claim,) = await bench.claim()
    running, queued = ("first", "second") if claim.node == "first" else ("second", "first")
    told = await bench.told()
    assert (told["status"], told["name"], told["tenant"]) == ("running", "one", "acme")
    assert told["age_s"] + told["left_s"] == pytest.approx(100)
    assert told["stages"][running].items() >= {
        "status": "running", "phase": "running", "attempt": 1, "error": "", "instance": "a", "claimant": "a/1"
    }.items()  # fmt: skip
    assert 0 <= told["stages"][running]["running_s"] < 10
    assert told["stages"][queued].items() >= {"phase": "queued", "instance": "a", "place": 1, "queued": 1}.items()
    assert told["stages"]["third"]["phase"] == "waiting"
    shown = await bench.lines()
    assert f"  {running}: running on a for 0 s" in shown
    assert f"  {queued}: queued on a, place 1 of 1, waits 0 s" in shown
    assert any(line.startswith("  third: waiting: no ready instance serves") for line in shown)
    assert any(re.fullmatch(r"time left: 99\.\d s|time left: 100\.0 s", line) for line in shown)


async def test_a_request_that_no_instance_has_yet_waits_in_the_line(bench: Bench) -> None:
    bench = Bench(bench.cell, bench.seat, "flow")
    await bench.submit({"first": {"prompt": "x"}, "second": {"prompt": "x"}})
    assert {"  first: in the line, place 1 of 2, waits 0 s", "  second: in the line, place 2 of 2, waits 0 s"} <= set(
        await bench.lines()
    )
    assert (await bench.cell.records.counts())["in_line"] == 2


async def test_an_attempt_that_failed_is_told_with_its_reason(bench: Bench) -> None:
    await bench.submit({"only": {"prompt": "x", "retries": 1}})
    (claim,) = await bench.claim()
    await bench.finish(claim, EngineError("the GPU is hot"))
    assert (await bench.told())["stages"]["only"] == {
        "status": "running", "phase": "delayed", "attempt": 2, "error": "the GPU is hot"
    }  # fmt: skip
    assert "  only: delayed, attempt 2: the GPU is hot" in await bench.lines()
    await bench.cell.inbox.cancel("w", "sold out")
    await completions(bench.desk)
    told = await bench.told()
    assert (told["status"], told["error"], told["slo_met"]) == ("cancelled", "sold out", False)
    assert "left_s" not in told
    assert {"error: sold out", "SLO met: no", "SLO: 300.0 s"} < set(await bench.lines())


async def test_a_stage_that_was_dropped_says_why(bench: Bench) -> None:
    await bench.submit(
        {"only": {"prompt": "x"}, "extra": {"tool": "t", "expect": {"seconds": 1000}, "optional": True}}, slo_s=60
    )
    told = await bench.told()
    assert (told["status"], told["stages"]["only"]["status"]) == ("running", "running")
    assert "  extra: skipped: dropped: the deadline would not be met" in await bench.lines()


async def test_few_copies_are_listed_and_many_are_counted(bench: Bench) -> None:
    copies = MOST_COPIES + 4
    await bench.submit({"many": {"for_each": f"range({copies}) | list", "prompt": "{{ item }}"}})
    held = await bench.claim(3)
    await bench.finish(held[0], Outcome("done"))
    (line,) = [line for line in await bench.lines() if line.startswith("  many")]
    assert line == f"  many: running, copies: {copies}, 1 completed, {copies - 3} queued, 2 running"
    told = await bench.told()
    assert list(told["stages"]) == ["many", *(f"many[{number}]" for number in range(copies))]
    assert sorted(told["stages"][f"many[{number}]"].get("place", 0) for number in range(copies)) == [
        0, 0, 0, *range(1, copies - 2)
    ]  # fmt: skip


async def test_copies_of_groups_and_rounds_are_counted_with_all_that_is_in_them(bench: Bench) -> None:
    inner = {"draft": {"prompt": "{{ item }}"}, "mend": {"prompt": "x", "repeat": {"while": "false", "max": 2}}}
    await bench.submit(
        {
            "few": {"for_each": "[1, 2]", "stages": inner},
            "many": {"for_each": f"range({MOST_COPIES + 1}) | list", "stages": inner},
        }
    )
    shown = [line.strip() for line in await bench.lines()]
    assert [line for line in shown if line.startswith("many")] == ["many: running, copies: 9, 9 running"]
    few = [line.partition(":")[0] for line in shown if line.startswith("few")]
    assert few == [
        "few", "few[0]", "few[0].draft", "few[0].mend", "few[0].mend@0", "few[1]", "few[1].draft", "few[1].mend",
        "few[1].mend@0",
    ]  # fmt: skip


async def test_what_is_not_kept_stands_nowhere(bench: Bench) -> None:
    assert await bench.told() == {}
