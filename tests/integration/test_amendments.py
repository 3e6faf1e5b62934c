"""Another deadline on a real server: what waits goes to another place wherever it waits, what runs is left alone."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest
from click.testing import CliRunner
from operations_bench import LEASE_MS, ROOM, accept, commit, join, mail, push, queued, version_of

from common import clock, wire
from common.errors import AttemptFailed
from common.events import AmendAsked, Outcome, Submitted
from common.lineup import Asked, Placement
from common.model import LINE, Grounds, Head, LlmCall, Node, Push, Rescore, Sampling, Slo
from common.settings import load
from common.store.cell import Cell
from common.store.inbox import Commit, End
from common.store.keys import lane
from common.store.queues import Room, Seat
from common.store.scripts import call_id
from coordinator.desk import Desk
from coordinator.loops.completions import completions
from coordinator.loops.intake import intake
from coordinator.loops.planner import Planner
from hexgen_flow.cli import main

MODEL = LlmCall("x", None, "a/model", Sampling())
FIELDS = ("offset_ms", "budget_ms", "deadline_at", "slo_ms")


def rescored(request: str, offset_ms: int) -> Rescore:
    return Rescore(request, offset_ms, 250, 31_000, 30_000)


async def started(cell: Cell, *pushes: Push) -> Seat:
    """A running workflow that has pushed these, and instance a."""
    seat = await join(cell)
    await accept(cell)
    nodes = {p.node: Node("running", request=p.request, phase="queued") for p in pushes}
    assert await commit(cell, 0, 1, nodes=nodes, pushes=pushes) == 1
    return seat


async def record(cell: Cell, request: str) -> dict[str, int]:
    found = await cell.client.hmget(cell.keys.request(request), FIELDS)
    return {name: int(value) for name, value in zip(FIELDS, found, strict=True)}


async def key(cell: Cell, request: str, queue: str) -> int | None:
    """Its place in a queue, from when it was first queued on; None where it is not in that queue."""
    score = await cell.client.zscore(cell.keys.queue(queue), request)
    return None if score is None else int(score) - await born(cell, request)


async def born(cell: Cell, request: str) -> int:
    return int(await cell.client.hget(cell.keys.request(request), "enqueued_at"))


async def place(cell: Cell, seat: Seat, *requests: str) -> list[bool] | None:
    seen = await cell.line.survey(64)
    plan = [Placement(request, seat.instance, seat.epoch or 0, 70) for request in requests]
    return await cell.line.place(seen.plans, plan)


@pytest.mark.parametrize("more", [{"instance": "a"}, {"instance": LINE}, {"instance": LINE, "call": MODEL}])
async def test_what_waits_goes_to_another_place_in_its_queue(cell: Cell, more: dict[str, Any]) -> None:
    pushes = [push(f"r{number}", f"s{number}", offset_ms=number * 1000, **more) for number in (1, 2, 3)]
    await started(cell, *pushes)
    queue = lane(pushes[0]) if more["instance"] == LINE else "a"
    assert await queued(cell, queue) == ["r1", "r2", "r3"]
    before = await cell.instances.backlogs()
    assert await commit(cell, 1, 0, rescores=[rescored("r3", -5000), rescored("r1", 2500)]) == 1
    assert await queued(cell, queue) == ["r3", "r2", "r1"]
    assert [await key(cell, request, queue) for request in ("r1", "r2", "r3")] == [2500, 2000, -5000]
    assert await record(cell, "r3") == {"offset_ms": -5000, "budget_ms": 250, "deadline_at": 31_000, "slo_ms": 30_000}
    assert (await record(cell, "r2"))["deadline_at"] == 61_000
    assert await cell.instances.backlogs() == before


async def test_a_planner_looks_anew_where_the_line_may_have_another_order(cell: Cell) -> None:
    await started(cell, push("r1", "s", LINE))
    await cell.line.wait()
    await commit(cell, 1, 0)
    assert await cell.client.exists(cell.keys.line_wake) == 0
    await commit(cell, 2, 0, rescores=[rescored("r1", -5000)])
    assert await cell.client.exists(cell.keys.line_wake) == 1


async def test_what_is_placed_returns_to_the_line_under_its_new_key(cell: Cell) -> None:
    seat = await started(cell, push("r1", "s", LINE, call=MODEL))
    await place(cell, seat, "r1")
    await commit(cell, 1, 0, rescores=[rescored("r1", -5000)])
    assert await key(cell, "r1", "a") == -5000
    assert await cell.instances.evacuate("a", "lost") == 1
    assert await key(cell, "r1", "line/a/model") == -5000
    assert await key(cell, "r1", "a") is None


@pytest.mark.parametrize("how", ["release", "reap"])
async def test_what_runs_is_left_alone_and_comes_back_under_its_new_key(cell: Cell, how: str) -> None:
    seat = await started(cell, push("r1", "s", LINE))
    await place(cell, seat, "r1")
    (claim,) = await cell.queues.claim(seat, "c1", LEASE_MS, ROOM)
    await commit(cell, 1, 0, rescores=[rescored("r1", -5000)])
    assert (await queued(cell), await queued(cell, LINE)) == ([], [])
    assert await cell.queues.renew(seat, LEASE_MS, [("r1", claim.token)]) == ("ready", [])
    if how == "release":
        await cell.queues.release([("r1", claim.token)])
    else:
        await cell.client.zadd(cell.keys.leases, {"r1": 0})
        await cell.queues.reap(0, 3)
    assert await key(cell, "r1", LINE) == -5000


async def test_what_is_delayed_joins_the_line_under_its_new_key(cell: Cell) -> None:
    """A retry keeps the first key that it had in the line, which is this one now, and what it follows from."""
    seat = await started(cell, push("r1", "s", LINE, grounds=Grounds(5, 0.5)))
    await place(cell, seat, "r1")
    (claim,) = await cell.queues.claim(seat, "c1", LEASE_MS, ROOM)
    await cell.queues.finish([("r1", claim.token, AttemptFailed("no"))])
    await commit(cell, 1, 1, delays=[("s", 60_000)], rescores=[rescored("r1", -5000)])
    await commit(cell, 2, 0, pushes=[push("r1", "s", LINE, offset_ms=700, grounds=Grounds(9, 0.1))])
    assert await key(cell, "r1", LINE) == -5000
    assert await cell.inbox.grounds(["r1"]) == {"r1": Grounds(5, 0.5)}
    await cell.line.give_back(["r1"])  # and so does what nobody can take for a while
    await commit(cell, 3, 1, rescores=[rescored("r1", -9000)], pushes=[push("r1", "s", LINE, offset_ms=700)])
    assert await key(cell, "r1", LINE) == -9000


async def test_what_has_ended_leaves_nothing_behind(cell: Cell) -> None:
    seat = await started(cell, push("r1", "s"), push("r2", "t"), push("r3", "u", LINE))
    claims = await cell.queues.claim(seat, "c1", LEASE_MS, Room(1, 10_000, 10_000))
    await cell.queues.finish([(claim.request, claim.token, Outcome("x")) for claim in claims])
    rescores = [rescored(request, -5000) for request in ("r1", "r2", "r3")]
    await commit(cell, 1, 1, drops=["r2"], rescores=rescores)
    assert await key(cell, "r3", LINE) == -5000
    assert await queued(cell) == []
    await commit(cell, 2, 0, drops=["r3"], rescores=rescores, end=End("cancelled", {}, 60_000))
    assert await cell.client.exists(*map(cell.keys.request, ("r1", "r2", "r3")), cell.keys.queue(LINE)) == 0


@pytest.mark.strange_keys("a request is a text")
async def test_a_record_that_cannot_be_read_keeps_no_other_from_its_place(cell: Cell) -> None:
    grounds = Grounds(5, 0.5, 1.0, 2.0, 3.0)
    await started(cell, push("r1", "s"), push("r2", "t", grounds=grounds), push("r3", "u"), push("r4", "v"))
    await cell.client.delete(cell.keys.request("r1"))
    await cell.client.set(cell.keys.request("r1"), "a text")
    await cell.client.hset(cell.keys.request("r3"), "grounds", wire.pack((1, float("nan"))))
    await cell.client.hdel(cell.keys.request("r4"), "grounds")  # as an older version has written it
    assert await cell.inbox.grounds(["r1", "r2", "r3", "r4", "r9"]) == {"r2": grounds}
    assert await commit(cell, 1, 0, rescores=[rescored("r1", -5000), rescored("r2", -5000)]) == 1
    assert await key(cell, "r2", "a") == -5000


async def test_the_head_is_kept_with_the_step_and_a_repeated_step_changes_nothing(cell: Cell) -> None:
    await started(cell, push("r1", "s"))
    head = Head("acme", "chain", "def1", {"x": 1}, Slo(1_000, 31_000))
    made = Commit("w1", "", await version_of(cell), 0, "json", head=head, rescores=[rescored("r1", -5000)])
    assert (await cell.inbox.commit([made]))[0].state == 1
    assert (await cell.inbox.begin([("w1", -1)], 10))[0].head == head
    assert (await cell.inbox.commit([made]))[0].state == 0
    assert await key(cell, "r1", "a") == -5000


async def test_an_amendment_is_asked_of_a_running_workflow_only_and_once(cell: Cell) -> None:
    entry = await cell.records.submit({"amend": "w1", "slo_s": 30})
    await cell.inbox.read(cell.keys.submissions, "c1", 10)
    assert not await cell.inbox.amend("w1", 31_000, entry)
    assert await cell.client.xlen(cell.keys.submissions) == 1
    await accept(cell)
    for _ in range(2):  # the second by a coordinator that has taken it over
        assert await cell.inbox.amend("w1", 31_000, entry)
    assert await cell.client.xlen(cell.keys.submissions) == 0
    assert await cell.inbox.stale(cell.keys.submissions, 0) == []
    assert await mail(cell) == [Submitted(), AmendAsked(31_000)]


# -- the whole way, by hand


class Bench:
    """A coordinator and the worker of one instance."""

    def __init__(self, cell: Cell, policy: str) -> None:
        self.cell, self.policy = cell, policy
        self.desk = Desk(cell, load(policy=policy))
        self.planner = Planner(self.desk)

    async def submit(self, *names: str, prompt: str = "say it") -> None:
        document = {"name": "one", "stages": {"s": {"prompt": prompt}}, "output": "s.output"}
        for slo_s, name in enumerate(names, start=60):
            await self.cell.records.submit({"workflow": document, "id": name, "slo_s": slo_s})
        await intake(self.desk)
        await completions(self.desk)

    async def amend(self, name: str, **more: Any) -> None:
        await self.cell.records.submit({"amend": name, **more})
        await intake(self.desk)
        await completions(self.desk)

    async def in_order(self) -> list[str]:
        """The workflows of what waits, the most urgent first."""
        requests = await queued(self.cell, LINE if self.policy == "flow" else "a")
        names = [await self.cell.client.hget(self.cell.keys.request(request), "workflow") for request in requests]
        return [name.decode() for name in names]

    async def told(self, name: str) -> list[tuple[str, Any]]:
        return [(kind, data) for _, _, kind, data in await self.cell.records.look({name: "0"}, 0.1)]


@pytest.mark.parametrize("policy", ["flow", "hexgen"])
async def test_a_workflow_overtakes_and_falls_back(cell: Cell, policy: str) -> None:
    bench, seat = Bench(cell, policy), await join(cell)
    await bench.submit("w1", "w2", "w3")
    assert await bench.in_order() == ["w1", "w2", "w3"]
    await bench.amend("w3", slo_s=30)
    assert await bench.in_order() == ["w3", "w1", "w2"]
    bench.desk.forget("w1")  # as another coordinator, which has it from the store
    kept = await cell.records.workflow("w1")
    assert kept
    later = kept[1].slo.arrival_at + 3_600_000
    await bench.amend("w1", deadline_at=later)
    assert await bench.in_order() == ["w3", "w2", "w1"]
    assert (await bench.told("w1"))[-1] == ("amended", {"deadline_at": later})
    if policy == "flow":
        await bench.planner()
    (claim,) = await cell.queues.claim(seat, call_id(), LEASE_MS, Room(1, 512, 1000))
    assert (claim.workflow, claim.slo_ms) == ("w3", 30_000)
    await cell.queues.finish([(claim.request, claim.token, Outcome("it", "a"))])
    await completions(bench.desk)
    kind, data = (await bench.told("w3"))[-1]
    assert (kind, data["slo_s"], data["slo_met"]) == ("completed", 30, True)


def noted(cell: Cell, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The requests whose records a planner reads, as it does."""
    asked, read = cell.line.asked, []

    async def noting(requests: Sequence[str]) -> dict[str, Asked]:
        read.extend(requests)
        return await asked(requests)

    monkeypatch.setattr(cell.line, "asked", noting)
    return read


async def test_what_is_bound_and_not_claimed_is_claimed_and_planned_with_by_its_new_key(
    cell: Cell, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench, seat = Bench(cell, "flow"), await join(cell)
    await bench.submit("w1", "w2", "w3")
    await bench.planner.plan()
    bound = await queued(cell)
    assert (len(bound), await queued(cell, LINE)) == (3, [])
    await bench.submit("w4", "w5", prompt="word " * 500)  # of which there is room for one
    read = noted(cell, monkeypatch)
    await bench.planner.plan()
    assert (len(read), len(await queued(cell, LINE))) == (2, 1)
    await bench.amend("w3", slo_s=30)
    assert [request for request in await queued(cell) if request in bound] == [bound[2], *bound[:2]]
    await bench.planner.plan()
    assert read[2:] == [bound[2]]
    (claim,) = await cell.queues.claim(seat, call_id(), LEASE_MS, Room(1, 512, 1000))
    assert (claim.workflow, claim.slo_ms) == ("w3", 30_000)


async def test_a_planner_reads_again_what_has_another_key(cell: Cell, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(cell, "flow")
    await join(cell)
    await bench.submit("w1", "w2", "w3", prompt="word " * 500)  # of which there is room for one
    read = noted(cell, monkeypatch)
    await bench.planner.plan()
    assert len(read) == 3
    await bench.planner.plan()
    await bench.amend("w3", slo_s=30)
    third = (await queued(cell, LINE))[0]
    await bench.planner.plan()
    assert read[3:] == [third]


@pytest.mark.parametrize(("mine_first", "slo_s", "by"), [(True, 70, ", by a later amendment"), (False, 50, "")])
@pytest.mark.parametrize("as_json", [True, False])
async def test_of_two_at_once_the_command_tells_what_holds(
    cell: Cell, mine_first: bool, slo_s: int, by: str, as_json: bool
) -> None:
    bench, other = Bench(cell, "flow"), {"amend": "w1", "slo_s": 70}
    await bench.submit("w1")
    if not mine_first:
        await cell.records.submit(other)
    environment = {"HEXGEN_REDIS_URL": cell.url, "HEXGEN_NAMESPACE": cell.keys.namespace}
    words = ["amend", "w1", "--slo-s", "50", "--accept-timeout-s", "60", *(["--json"] if as_json else [])]
    told = asyncio.create_task(asyncio.to_thread(CliRunner().invoke, main, words, env=environment))
    while await cell.client.xlen(cell.keys.submissions) < (1 if mine_first else 2):
        await clock.sleep(0.01)
    if mine_first:
        await cell.records.submit(other)
    await intake(bench.desk)
    await completions(bench.desk)
    output, head = (await told).output, await cell.records.head("w1")
    assert head is not None
    if as_json:
        found = json.loads(output)
        assert (found["slo_s"], found["deadline_at"]) == (slo_s, head.slo.deadline_at)
    else:
        assert output == f"w1 has an SLO of {slo_s} s{by}\n"


@pytest.mark.parametrize(
    ("document", "field", "said"),
    [
        ({"amend": "none", "slo_s": 5}, "amend", "no workflow 'none' is running"),
        ({"amend": "ended", "slo_s": 5}, "amend", "no workflow 'ended' is running"),
        ({"amend": "w1", "deadline_at": 1_000}, "deadline_at", "must be later than"),
        ({"amend": "w1", "deadline_at": 1 << 50}, "deadline_at", "by at most a week"),
    ],
)
async def test_what_cannot_be_amended_is_refused(cell: Cell, document: dict[str, Any], field: str, said: str) -> None:
    bench = Bench(cell, "flow")
    await bench.submit("w1", "ended")
    await cell.inbox.cancel("ended", "enough")
    await completions(bench.desk)
    entry = await cell.records.submit(document)
    await intake(bench.desk)
    ((kind, data),) = await bench.told(entry)
    assert (kind, data["field"]) == ("rejected", field)
    assert said in data["error"]
    assert "amended" not in [kind for kind, _ in await bench.told("w1")]


async def test_an_amendment_needs_no_more_of_a_workflow_than_its_head(cell: Cell) -> None:
    bench = Bench(cell, "hexgen")
    await bench.submit("w1")
    await cell.client.hset(cell.keys.workflow("w1"), "n:s", b"\xc1")
    await cell.records.submit({"amend": "w1", "slo_s": 5})
    await intake(bench.desk)
    assert await cell.dead.all() == []
    look = (await cell.inbox.begin([("w1", -1)], 10))[0]
    assert look.head is not None
    assert look.mail == [AmendAsked(look.head.slo.arrival_at + 5000)]


async def test_an_amendment_that_comes_as_the_workflow_ends_is_no_harm(cell: Cell) -> None:
    bench, seat = Bench(cell, "hexgen"), await join(cell)
    await bench.submit("w1")
    claims = await cell.queues.claim(seat, call_id(), LEASE_MS, ROOM)
    await cell.records.submit({"amend": "w1", "slo_s": 5})
    await intake(bench.desk)
    await cell.queues.finish([(claim.request, claim.token, Outcome("it", "a")) for claim in claims])
    await completions(bench.desk)
    assert [kind for kind, _ in await bench.told("w1")][-3:] == ["amended", "stage_completed", "completed"]
    assert await cell.client.keys(f"{cell.keys.prefix}request:*") == []
