"""Each Lua operation, before and after, on a real server."""

from typing import Any

import pytest

from common import wire
from common.errors import Superseded
from common.events import CancelAsked, Completed, Due, Evacuated, Failed, Lost, Outcome, Submitted
from common.model import Head, InstanceProfile, LlmCall, Node, Push, Sampling, Slo
from common.store.cell import Cell
from common.store.inbox import Commit, End
from common.store.queues import Room, Seat

PROFILE = InstanceProfile("test", 1000.0, 0.03, 0.005, 1e-7, 1000)
ROOM = Room(requests=8, prefill_tokens=10_000, kv_tokens=10_000)
LEASE_MS = 60_000


async def accept(cell: Cell, workflow: str = "w1", digest: str = "d1", entry: str = "0-1") -> str:
    head = Head("acme", "chain", "def1", {"x": 1}, Slo(1_000, 61_000))
    return await cell.inbox.accept(workflow, entry, digest, head, wire.pack({"name": "chain"}), 60_000)


async def join(cell: Cell, instance: str = "a") -> Seat:
    epoch = await cell.instances.register(instance, PROFILE, ["m"], ["fast"], ["chat"])
    return Seat(instance, epoch, f"{instance}/p1")


def push(request: str, node: str, instance: str = "a", **changes: Any) -> Push:
    call = LlmCall(f"prompt of {node}", None, None, Sampling())
    fields: dict[str, Any] = {
        "request": request, "node": node, "instance": instance, "offset_ms": 0, "load_ms": 100, "budget_ms": 500,
        "deadline_at": 61_000, "prompt_tokens": 10, "call": call, "stage": f"chain/{node}", "timeout_s": 5.0,
        "stream": False,
    }  # fmt: skip
    return Push(**(fields | changes))


async def commit(
    cell: Cell, version: int, handled: int = 0, entry: str = "", workflow: str = "w1", **parts: Any
) -> int:
    made = Commit(workflow, entry, await first_version(cell, workflow) + version, handled, "json", **parts)
    return (await cell.inbox.commit([made]))[0][0]


async def first_version(cell: Cell, workflow: str = "w1") -> int:
    """Versions count from the time of acceptance on; what is no longer live has none that matters."""
    return int(await cell.client.zscore(cell.keys.live, workflow) or 0)


async def mail(cell: Cell, workflow: str = "w1") -> list[Any]:
    return (await cell.inbox.begin([(workflow, -1)], 100))[0].mail


async def queued(cell: Cell, instance: str = "a") -> list[str]:
    return [name.decode() for name in await cell.client.zrange(cell.keys.queue(instance), 0, -1)]


async def dispatched(cell: Cell, *pushes: Push) -> Seat:
    """A running workflow with these requests in the queue of instance a."""
    seat = await join(cell)
    await accept(cell)
    nodes = {p.node: Node("running", request=p.request, phase="queued") for p in pushes}
    assert await commit(cell, 0, 1, nodes=nodes, pushes=pushes) == 1
    return seat


async def test_accept_makes_a_workflow_once(cell: Cell) -> None:
    assert await accept(cell) == "accepted"
    assert await accept(cell) == "same"
    assert await accept(cell, digest="d2") == "other"
    look = (await cell.inbox.begin([("w1", -1)], 10))[0]
    assert look.version == await first_version(cell)
    assert look.mail == [Submitted()]
    assert look.head
    assert look.head.inputs == {"x": 1}
    assert await cell.client.zcard(cell.keys.live) == 1
    assert await cell.client.xlen(cell.keys.completions) == 1
    assert await cell.client.xlen(cell.keys.events("w1")) == 1
    assert await cell.client.pttl(cell.keys.definition("def1")) > 0


async def test_accept_settles_its_entry_unless_the_id_is_taken(cell: Cell) -> None:
    entry = await cell.records.submit({"workflow": "chain"})
    await cell.inbox.read(cell.keys.submissions, "c1", 10)
    await accept(cell, entry=entry)
    assert await cell.client.xlen(cell.keys.submissions) == 0
    second = await cell.records.submit({"workflow": "other"})
    await cell.inbox.read(cell.keys.submissions, "c1", 10)
    assert await accept(cell, digest="d2", entry=second) == "other"
    assert await cell.client.xlen(cell.keys.submissions) == 1


async def test_accept_keeps_a_registered_definition_for_ever(cell: Cell) -> None:
    await cell.records.register("chain", "def1", {"name": "chain"})
    await accept(cell)
    assert await cell.client.pttl(cell.keys.definition("def1")) == -1


async def test_begin_step_leaves_out_what_the_caller_has(cell: Cell) -> None:
    await accept(cell)
    await commit(cell, 0, 1, nodes={"s": Node("running")})
    now = await first_version(cell) + 1
    fresh, held, none = await cell.inbox.begin([("w1", -1), ("w1", now), ("w9", -1)], 10)
    assert fresh.nodes == {"s": Node("running")}
    assert (held.version, held.nodes) == (now, None)
    assert none.version == -1


async def test_commit_step_takes_effect_whole(cell: Cell) -> None:
    await dispatched(cell, push("r1", "s", offset_ms=-50))
    record = await cell.client.hgetall(cell.keys.request("r1"))
    score = await cell.client.zscore(cell.keys.queue("a"), "r1")
    assert score == int(record[b"enqueued_at"]) - 50
    assert (record[b"workflow"], record[b"node"], record[b"budget_ms"]) == (b"w1", b"s", b"500")
    assert await cell.instances.backlogs() == {"a": 100}
    assert await cell.client.zcard(cell.keys.wake("a")) == 1
    assert await mail(cell) == []
    assert await cell.client.hexists(cell.keys.workflow("w1"), "rung") == 0


async def test_commit_step_writes_nothing_on_a_newer_version(cell: Cell) -> None:
    await dispatched(cell, push("r1", "s"))
    assert await commit(cell, 0, 0, pushes=[push("r2", "t")], nodes={"t": Node("running")}) == 0
    assert await queued(cell) == ["r1"]
    assert await cell.client.exists(cell.keys.request("r2")) == 0


async def test_commit_step_calls_again_for_mail_that_came_meanwhile(cell: Cell) -> None:
    await accept(cell)
    entries = await cell.inbox.read(cell.keys.completions, "c1", 10)
    await cell.inbox.cancel("w1", "enough")
    assert await commit(cell, 0, 1, entry=entries[0][0]) == 1
    again = await cell.inbox.read(cell.keys.completions, "c1", 10)
    assert [fields[b"workflow"] for _, fields in again] == [b"w1"]
    assert await mail(cell) == [CancelAsked("enough")]
    assert await cell.client.xlen(cell.keys.completions) == 1


@pytest.mark.parametrize("status", ["draining", "lost", "gone"])
async def test_commit_step_bounces_what_goes_to_an_instance_no_longer_ready(cell: Cell, status: str) -> None:
    await join(cell)
    await accept(cell)
    if status == "gone":
        await cell.instances.remove("a")
    else:
        await cell.queues.evacuate("a", status)
    nodes = {"s": Node("running", request="r1", phase="queued")}
    parts = {"nodes": nodes, "pushes": [push("r1", "s"), push("r2", "t", "tools")]}
    made = Commit("w1", "", await first_version(cell), 1, "json", **parts)
    assert await cell.inbox.commit([made]) == [(1, 1)]
    assert await queued(cell) == []
    assert await queued(cell, "tools") == ["r2"]
    assert await mail(cell) == [Evacuated("r1", "s")]
    assert (await cell.instances.backlogs()).get("a", 0) == 0


async def test_commit_step_delays_and_drops(cell: Cell) -> None:
    await dispatched(cell, push("r1", "s"), push("r2", "t"))
    assert await commit(cell, 1, 0, delays=[("u", 1)], drops=["r1"]) == 1
    assert await queued(cell) == ["r2"]
    assert await cell.client.exists(cell.keys.request("r1")) == 0
    assert await cell.instances.backlogs() == {"a": 100}
    assert await cell.client.zcard(cell.keys.delayed) == 1


async def test_commit_step_ends_a_workflow(cell: Cell) -> None:
    await dispatched(cell, push("r1", "s"))
    end = End("completed", {"status": "completed", "output": "done"}, 5_000)
    assert await commit(cell, 1, 0, drops=["r1"], events=[("completed", {"output": "done"})], end=end) == 1
    assert await cell.records.result("w1") == {"status": "completed", "output": "done"}
    assert await cell.client.exists(cell.keys.mailbox("w1"), cell.keys.outputs("w1"), cell.keys.request("r1")) == 0
    for key in (cell.keys.workflow("w1"), cell.keys.result("w1"), cell.keys.events("w1")):
        assert 0 < await cell.client.pttl(key) <= 5_000
    assert await cell.client.zcard(cell.keys.live) == 0
    assert await commit(cell, 2, 0) == -1
    assert await cell.instances.backlogs() == {"a": 0}


async def test_claim_pops_the_smallest_key_under_lease(cell: Cell) -> None:
    seat = await dispatched(cell, push("r1", "s"), push("r2", "t", offset_ms=-1_000), push("r3", "u", offset_ms=1_000))
    first, second = await cell.queues.claim(seat, "call1", LEASE_MS, Room(2, 10_000, 10_000))
    assert (first.request, second.request) == ("r2", "r1")
    assert (first.token, first.node, first.workflow, first.call) == (1, "t", "w1", push("r2", "t").call)
    assert await queued(cell) == ["r3"]
    assert await cell.client.zcard(cell.keys.leases) == 2


async def test_claim_takes_only_what_can_start(cell: Cell) -> None:
    seat = await dispatched(cell, *(push(f"r{i}", f"s{i}", offset_ms=i, prompt_tokens=400) for i in range(4)))
    assert len(await cell.queues.claim(seat, "c1", LEASE_MS, Room(8, 512, 10_000))) == 2
    assert len(await cell.queues.claim(seat, "c2", LEASE_MS, Room(8, 512, 399))) == 0
    assert len(await cell.queues.claim(seat, "c3", LEASE_MS, Room(8, 0, 10_000))) == 0
    assert len(await queued(cell)) == 2


async def test_claim_answers_the_same_call_the_same(cell: Cell) -> None:
    seat = await dispatched(cell, push("r1", "s"), push("r2", "t"))
    once = await cell.queues.claim(seat, "c1", LEASE_MS, Room(1, 10_000, 10_000))
    again = await cell.queues.claim(seat, "c1", LEASE_MS, Room(1, 10_000, 10_000))
    assert [(c.request, c.token) for c in again] == [(c.request, c.token) for c in once]
    await cell.queues.finish([(once[0].request, once[0].token, Outcome("x"))])
    assert await cell.queues.claim(seat, "c1", LEASE_MS, ROOM) == []
    assert len(await cell.queues.claim(seat, "c2", LEASE_MS, ROOM)) == 1


async def test_claim_refuses_an_earlier_incarnation(cell: Cell) -> None:
    old = await dispatched(cell, push("r1", "s"))
    await join(cell)
    with pytest.raises(Superseded):
        await cell.queues.claim(old, "c1", LEASE_MS, ROOM)
    with pytest.raises(Superseded):
        await cell.queues.renew(old, LEASE_MS, None, [])
    assert await queued(cell) == ["r1"]


async def test_renew_keeps_what_is_held_and_tells_what_is_not(cell: Cell) -> None:
    seat = await dispatched(cell, push("r1", "s"), push("r2", "t"))
    held = await cell.queues.claim(seat, "c1", 50, ROOM)
    await commit(cell, 1, 0, drops=["r2"])
    status, gone = await cell.queues.renew(seat, LEASE_MS, {"running": 2}, [(c.request, c.token) for c in held])
    assert (status, gone) == ("ready", ["r2"])
    ttl = await cell.client.zscore(cell.keys.leases, "r1") - held[0].claimed_at
    assert ttl >= LEASE_MS
    assert (await cell.queues.renew(seat, LEASE_MS, None, [("r1", 99)]))[1] == ["r1"]


async def test_renew_brings_a_lost_instance_back(cell: Cell) -> None:
    seat = await join(cell)
    await cell.queues.evacuate("a", "lost")
    assert (await cell.instances.all())[0].status == "lost"
    await cell.queues.renew(seat, LEASE_MS, None, [])
    assert (await cell.instances.all())[0].status == "ready"


async def test_complete_counts_once(cell: Cell) -> None:
    seat = await dispatched(cell, push("r1", "s"))
    await cell.queues.claim(seat, "c1", LEASE_MS, ROOM)
    outcome = Outcome({"sql": "SELECT 1"}, "a", 5, 7)
    assert await cell.queues.finish([("r1", 2, outcome), ("r1", 1, outcome), ("r1", 1, outcome)]) == [
        False,
        True,
        False,
    ]
    assert await mail(cell) == [Completed("r1", "s", outcome)]
    assert await cell.inbox.outputs("w1", ["s", "t"]) == {"s": outcome}
    assert await cell.client.exists(cell.keys.request("r1")) == 0
    assert await cell.instances.backlogs() == {"a": 0}
    assert await cell.client.zcard(cell.keys.leases) == 0


async def test_several_completions_call_a_coordinator_once(cell: Cell) -> None:
    seat = await dispatched(cell, *(push(f"r{i}", f"s{i}") for i in range(5)))
    await cell.client.delete(cell.keys.completions)
    await cell.inbox.prepare()
    claims = await cell.queues.claim(seat, "c1", LEASE_MS, ROOM)
    await cell.queues.finish([(c.request, c.token, Outcome("x")) for c in claims])
    assert await cell.client.xlen(cell.keys.completions) == 1
    assert len(await mail(cell)) == 5


async def test_fail_keeps_the_record_and_its_token(cell: Cell) -> None:
    seat = await dispatched(cell, push("r1", "s"))
    await cell.queues.claim(seat, "c1", LEASE_MS, ROOM)
    assert await cell.queues.finish([("r1", 1, RuntimeError("out of luck"))]) == [True]
    assert await mail(cell) == [Failed("r1", "s", "out of luck", True)]
    assert await cell.instances.backlogs() == {"a": 0}
    await commit(cell, 1, 1, pushes=[push("r1", "s")])
    again = await cell.queues.claim(seat, "c2", LEASE_MS, ROOM)
    assert again[0].token == 2
    assert await cell.queues.finish([("r1", 1, Outcome("late"))]) == [False]


async def test_release_routes_anew(cell: Cell) -> None:
    seat = await dispatched(cell, push("r1", "s"))
    held = await cell.queues.claim(seat, "c1", LEASE_MS, ROOM)
    await cell.queues.release([(c.request, c.token) for c in held])
    assert await mail(cell) == [Evacuated("r1", "s")]
    assert await cell.client.zcard(cell.keys.leases) == 0
    assert await cell.instances.backlogs() == {"a": 0}


async def test_evacuate_routes_a_whole_queue_anew_and_keeps_its_age(cell: Cell) -> None:
    await dispatched(cell, push("r1", "s"), push("r2", "t"))
    born = await cell.client.hget(cell.keys.request("r1"), "enqueued_at")
    assert await cell.queues.evacuate("a", "lost", most=1) == 2
    assert await queued(cell) == []
    assert await cell.instances.backlogs() == {"a": 0}
    assert set(await mail(cell)) == {Evacuated("r1", "s"), Evacuated("r2", "t")}
    await join(cell, "b")
    await commit(cell, 1, 2, pushes=[push("r1", "s", "b")])
    assert await queued(cell, "b") == ["r1"]
    assert await cell.client.zscore(cell.keys.queue("b"), "r1") == int(born)


async def test_reap_waits_a_lease_after_a_server_start(cell: Cell) -> None:
    seat = await dispatched(cell, push("r1", "s"))
    await cell.queues.claim(seat, "c1", 0, ROOM)
    assert await cell.queues.reap("run1", LEASE_MS, 3) is None
    assert await cell.client.zcard(cell.keys.leases) == 1
    assert await cell.queues.reap("run1", 0, 3) == 1


async def test_reap_gives_the_place_back(cell: Cell) -> None:
    seat = await dispatched(cell, push("r1", "s"))
    before = await cell.client.zscore(cell.keys.queue("a"), "r1")
    await cell.queues.claim(seat, "c1", 0, ROOM)
    assert await cell.queues.reap("run1", 0, 3) == 1
    assert await cell.client.zscore(cell.keys.queue("a"), "r1") == before
    assert await cell.instances.backlogs() == {"a": 100}
    assert await cell.queues.finish([("r1", 1, Outcome("late"))]) == [False]


async def test_reap_routes_anew_when_the_instance_is_lost(cell: Cell) -> None:
    seat = await dispatched(cell, push("r1", "s"))
    await cell.queues.claim(seat, "c1", 0, ROOM)
    await cell.queues.evacuate("a", "lost")
    assert await cell.queues.reap("run1", 0, 3) == 1
    assert await mail(cell) == [Evacuated("r1", "s")]


async def test_reap_buries_what_takes_its_workers_with_it(cell: Cell) -> None:
    seat = await dispatched(cell, push("r1", "s"))
    for call in ("c1", "c2", "c3"):
        await cell.queues.claim(seat, call, 0, ROOM)
        await cell.queues.reap("run1", 0, 3)
    assert await mail(cell) == [Lost("r1", "s", 3)]
    assert await cell.client.xlen(cell.keys.dead) == 1
    assert await queued(cell) == []
    assert await cell.instances.backlogs() == {"a": 0}


async def test_promote_wakes_what_is_due(cell: Cell) -> None:
    await accept(cell)
    await commit(cell, 0, 1, delays=[("s", 0), ("t", 60_000)])
    assert await cell.queues.promote() == 1
    assert await mail(cell) == [Due("s")]
    assert await cell.client.zcard(cell.keys.delayed) == 1


async def test_cancel_asks_a_running_workflow_only(cell: Cell) -> None:
    assert not await cell.inbox.cancel("w1", "no reason")
    await accept(cell)
    assert await cell.inbox.cancel("w1", "because: it is late")
    assert await mail(cell) == [Submitted(), CancelAsked("because: it is late")]


async def test_relay_gives_each_request_one_ticket_until_it_counts_as_lost(cell: Cell) -> None:
    await dispatched(cell, push("r1", "s", "tools"), push("r2", "t", "tools"))
    assert await cell.queues.to_relay(60_000) == ["r1-0", "r2-0"]
    assert await cell.queues.to_relay(60_000) == []
    assert await cell.queues.to_relay(0) == ["r1-0", "r2-0"]


async def test_relay_gives_a_new_attempt_a_new_ticket_at_once(cell: Cell) -> None:
    await dispatched(cell, push("r1", "s", "tools"))
    assert await cell.queues.to_relay(60_000) == ["r1-0"]
    await cell.queues.claim(Seat("tools", None, "t/1"), "c1", LEASE_MS, ROOM)
    await cell.queues.finish([("r1", 1, RuntimeError("not today"))])
    await commit(cell, 1, 1, pushes=[push("r1", "s", "tools")])
    assert await cell.queues.to_relay(60_000) == ["r1-1"]


async def test_operations_survive_a_forgetful_server(cell: Cell) -> None:
    await accept(cell)
    await cell.client.script_flush()
    await commit(cell, 0, 1)
    await cell.client.script_flush()
    looks = await cell.inbox.begin([("w1", -1), ("w1", -1)], 10)
    assert [look.version for look in looks] == [await first_version(cell) + 1] * 2


async def test_an_earlier_incarnation_cannot_drain_or_remove_the_later(cell: Cell) -> None:
    old = await dispatched(cell, push("r1", "s"))
    new = await join(cell)
    with pytest.raises(Superseded):
        await cell.queues.evacuate("a", "draining", old.epoch)
    assert not await cell.instances.remove("a", old.epoch)
    assert (await cell.instances.all())[0].status == "ready"
    assert await queued(cell) == ["r1"]
    assert await cell.queues.evacuate("a", "draining", new.epoch) == 1
    assert await cell.instances.remove("a", new.epoch)
    assert await cell.instances.all() == []
    assert await cell.client.hexists(cell.keys.backlog, "a") == 0


async def test_an_instance_that_comes_back_is_kept(cell: Cell) -> None:
    await join(cell)
    await cell.instances.remove("a")
    assert await cell.client.pttl(cell.keys.instance("a")) > 0
    await join(cell)
    assert await cell.client.pttl(cell.keys.instance("a")) == -1
    assert (await cell.instances.all())[0].status == "ready"
