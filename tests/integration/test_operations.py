"""Each Lua operation, before and after, on a real server."""

import asyncio

import pytest
from operations_bench import LEASE_MS, ROOM, accept, commit, dispatched, join, mail, push, queued, submitted, version_of

from common import clock, wire
from common.errors import AttemptFailed, Superseded
from common.events import CancelAsked, Completed, Due, Evacuated, Failed, Lost, Outcome, Submitted
from common.model import Head, Node, Slo
from common.store.cell import Cell
from common.store.inbox import Answer, Commit, End
from common.store.queues import Room


async def test_accept_makes_a_workflow_once(cell: Cell) -> None:
    assert await accept(cell) == "accepted"
    assert await accept(cell) == "same"
    assert await accept(cell, digest="d2") == "other"
    look = (await cell.inbox.begin([("w1", -1)], 10))[0]
    assert look.version == await version_of(cell)
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


async def test_what_another_has_settled_meanwhile_is_not_accepted_again(cell: Cell) -> None:
    entry = await submitted(cell)
    assert await accept(cell, entry=entry) == "accepted"
    told = await cell.client.xrange(cell.keys.events(entry))
    assert await accept(cell, entry=entry) == "same"  # a reply was lost
    assert await cell.client.xrange(cell.keys.events(entry)) == told
    await commit(cell, 0, 1, end=End("completed", {}, 60_000))
    assert await cell.retention.purge(["w1"]) == 1
    assert await accept(cell, entry=entry) == "same"  # a coordinator that stood still goes on
    assert await cell.client.exists(cell.keys.workflow("w1")) == 0


async def test_accept_tells_a_known_workflow_with_its_first_deadline(cell: Cell) -> None:
    first, again = await submitted(cell), await submitted(cell)
    await accept(cell, entry=first)
    later = Head("acme", "chain", "def1", {"x": 1}, Slo(9_000, 99_000), "msgpack")
    assert await cell.inbox.accept("w1", again, "d1", later, wire.pack({"name": "chain"}), 60_000) == "same"
    assert b"msgpack" in (await cell.client.xrange(cell.keys.events(again)))[0][1]  # in its own encoding
    told = await cell.records.look({first: "0", again: "0"}, 0.1)
    assert [data["deadline_at"] for _, _, kind, data in told if kind == "accepted"] == [61_000, 61_000]


async def test_accept_keeps_a_registered_definition_for_ever(cell: Cell) -> None:
    await cell.records.register("chain", "def1", {"name": "chain"}, 60_000)
    await accept(cell)
    assert await cell.client.pttl(cell.keys.definition("def1")) == -1


async def test_begin_step_leaves_out_what_the_caller_has(cell: Cell) -> None:
    await accept(cell)
    await commit(cell, 0, 1, nodes={"s": Node("running")})
    now = await version_of(cell)
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
        await cell.instances.evacuate("a", status)
    nodes = {"s": Node("running", request="r1", phase="queued")}
    parts = {"nodes": nodes, "pushes": [push("r1", "s"), push("r2", "t", "tools")]}
    look = (await cell.inbox.begin([("w1", -1)], 1))[0]
    made = Commit("w1", "", look.version, 1, "json", seen=look.seen, **parts)
    assert await cell.inbox.commit([made]) == [Answer(1, 1, await version_of(cell))]
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


async def test_commit_step_recalls_delayed_nodes(cell: Cell) -> None:
    await dispatched(cell, push("r1", "s"))
    assert await commit(cell, 1, 0, delays=[("u", 60_000), ("v", 60_000)]) == 1
    assert await commit(cell, 2, 0, recalls=["u", "never delayed"], delays=[("w", 60_000)]) == 1
    assert {name.decode() for name in await cell.client.zrange(cell.keys.delayed, 0, -1)} == {"w1 v", "w1 w"}


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
    assert (first.node, first.workflow, first.call) == ("t", "w1", push("r2", "t").call)
    assert await queued(cell) == ["r3"]
    assert await cell.client.zcard(cell.keys.leases) == 2


async def test_claim_takes_only_what_can_start(cell: Cell) -> None:
    seat = await dispatched(cell, *(push(f"r{i}", f"s{i}", offset_ms=i, prompt_tokens=400) for i in range(4)))
    assert len(await cell.queues.claim(seat, "c1", LEASE_MS, Room(8, 512, 10_000))) == 2
    assert len(await cell.queues.claim(seat, "c2", LEASE_MS, Room(8, 512, 399))) == 0
    assert len(await cell.queues.claim(seat, "c3", LEASE_MS, Room(8, 0, 10_000))) == 0
    assert len(await queued(cell)) == 2


async def test_claim_answers_the_same_call_the_same(cell: Cell) -> None:
    prefix = bytes(range(248, 256)) + b"\0\r\n4567\x80"
    seat = await dispatched(cell, push("r1", "s", prefix=prefix), push("r2", "t"))
    once = await cell.queues.claim(seat, "c1", LEASE_MS, Room(1, 10_000, 10_000))
    again = await cell.queues.claim(seat, "c1", LEASE_MS, Room(1, 10_000, 10_000))
    assert [(c.request, c.token) for c in again] == [(c.request, c.token) for c in once]
    assert once[0].prefix == again[0].prefix == prefix
    await cell.queues.finish([(once[0].request, once[0].token, Outcome("x"))])
    assert await cell.queues.claim(seat, "c1", LEASE_MS, ROOM) == []
    assert len(await cell.queues.claim(seat, "c2", LEASE_MS, ROOM)) == 1


async def test_claim_refuses_an_earlier_incarnation(cell: Cell) -> None:
    old = await dispatched(cell, push("r1", "s"))
    await join(cell)
    with pytest.raises(Superseded):
        await cell.queues.claim(old, "c1", LEASE_MS, ROOM)
    with pytest.raises(Superseded):
        await cell.queues.renew(old, LEASE_MS, [])
    assert await queued(cell) == ["r1"]


async def test_complete_counts_once(cell: Cell) -> None:
    seat = await dispatched(cell, push("r1", "s"))
    (claim,) = await cell.queues.claim(seat, "c1", LEASE_MS, ROOM)
    outcome = Outcome({"sql": "SELECT 1"}, "a", 5, 7)
    assert await cell.queues.finish([("r1", claim.token + 1, outcome), ("r1", claim.token, outcome)]) == [False, True]
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
    (held,) = await cell.queues.claim(seat, "c1", LEASE_MS, ROOM)
    assert await cell.queues.finish([("r1", held.token, AttemptFailed("out of luck"))]) == [True]
    assert await mail(cell) == [Failed("r1", "s", "out of luck", True)]
    assert await cell.instances.backlogs() == {"a": 0}
    await commit(cell, 1, 1, pushes=[push("r1", "s")])
    (again,) = await cell.queues.claim(seat, "c2", LEASE_MS, ROOM)
    assert again.token > held.token
    assert await cell.queues.finish([("r1", held.token, Outcome("late"))]) == [False]


async def test_release_routes_anew(cell: Cell) -> None:
    seat = await dispatched(cell, push("r1", "s"))
    held = await cell.queues.claim(seat, "c1", LEASE_MS, ROOM)
    await cell.queues.release([(c.request, c.token) for c in held])
    assert await mail(cell) == [Evacuated("r1", "s")]
    assert await cell.client.zcard(cell.keys.leases) == 0
    assert await cell.instances.backlogs() == {"a": 0}


async def test_reap_waits_a_lease_after_a_server_start(cell: Cell) -> None:
    seat = await dispatched(cell, push("r1", "s"))
    await cell.queues.claim(seat, "c1", 0, ROOM)
    assert await cell.queues.reap(LEASE_MS, 3) is None
    assert await cell.client.zcard(cell.keys.leases) == 1
    assert await cell.queues.reap(0, 3)


async def test_reap_sees_for_itself_that_another_server_has_taken_over(cell: Cell) -> None:
    await cell.queues.claim(await dispatched(cell, push("r1", "s")), "c1", 0, ROOM)
    await cell.client.hset(cell.keys.server, mapping={"run_id": "that which is gone", "since": 0})
    assert await cell.queues.reap(LEASE_MS, 3) is None
    assert await cell.client.zcard(cell.keys.leases) == 1
    now = (await cell.client.hgetall(cell.keys.server))[b"run_id"].decode()
    assert now == (await cell.client.info("server"))["run_id"]
    assert await cell.queues.reap(0, 3)


async def looked(cell: Cell, *, ago_ms: int, since_ms: int) -> None:
    """Leases were last looked at so long ago, and all could be reached since."""
    now = int(await cell.client.hget(cell.keys.server, "looked"))
    await cell.client.hset(cell.keys.server, mapping={"looked": now - ago_ms, "since": now - since_ms})


async def test_reap_waits_a_lease_when_nobody_could_look_for_half_of_one(cell: Cell) -> None:
    """The same run of the server, but it stood still or was cut off: nobody could renew."""
    await cell.queues.claim(await dispatched(cell, push("r1", "s")), "c1", 0, ROOM)
    assert await cell.queues.reap(LEASE_MS, 3) is None
    for since_ms in (LEASE_MS, 10 * LEASE_MS):  # also when it has just begun to be there
        await looked(cell, ago_ms=LEASE_MS * 2 // 3, since_ms=since_ms)
        for _ in range(2):
            assert await cell.queues.reap(LEASE_MS, 3) is None
    await looked(cell, ago_ms=LEASE_MS // 3, since_ms=LEASE_MS)
    assert await cell.queues.reap(LEASE_MS, 3)


async def test_reap_ends_leases_though_every_look_comes_late(cell: Cell) -> None:
    await cell.queues.claim(await dispatched(cell, push("r1", "s")), "c1", 0, ROOM)
    for _ in range(3):
        assert await cell.queues.reap(LEASE_MS, 3) is None
        await looked(cell, ago_ms=LEASE_MS, since_ms=LEASE_MS)
    assert await cell.queues.reap(LEASE_MS, 3)
    await looked(cell, ago_ms=LEASE_MS, since_ms=LEASE_MS)
    assert await cell.queues.reap(LEASE_MS, 3) is None


async def test_reap_looks_on_a_full_server_too(cell: Cell) -> None:
    await cell.queues.claim(await dispatched(cell, push("r1", "s")), "c1", 0, ROOM)
    await cell.client.config_set("maxmemory", 1)
    try:
        assert await cell.queues.reap(LEASE_MS, 3) is None
        assert await cell.queues.reap(0, 3)
    finally:
        await cell.client.config_set("maxmemory", 0)


async def test_reap_routes_anew_and_keeps_the_age(cell: Cell) -> None:
    """Also where the instance is ready: it may have come back as another."""
    seat = await dispatched(cell, push("r1", "s"))
    born = await cell.client.hget(cell.keys.request("r1"), "enqueued_at")
    (held,) = await cell.queues.claim(seat, "c1", 0, ROOM)
    assert await cell.queues.reap(0, 3)
    assert await mail(cell) == [Evacuated("r1", "s")]
    assert await queued(cell) == []
    assert await cell.instances.backlogs() == {"a": 0}
    assert await cell.queues.finish([("r1", held.token, Outcome("late"))]) == [False]
    await commit(cell, 1, 1, pushes=[push("r1", "s")])
    assert await cell.client.zscore(cell.keys.queue("a"), "r1") == int(born)


async def test_reap_buries_what_takes_its_workers_with_it(cell: Cell) -> None:
    seat = await dispatched(cell, push("r1", "s"))
    for turn in range(3):
        await cell.queues.claim(seat, f"c{turn}", 0, ROOM)
        await cell.queues.reap(0, 3)
        if turn < 2:
            await commit(cell, 1 + turn, 1, pushes=[push("r1", "s")])
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


async def test_cancel_settles_its_submission_if_it_is_carried_out(cell: Cell) -> None:
    entry = await cell.records.submit({"cancel": "w1"})
    await cell.inbox.read(cell.keys.submissions, "c1", 10)
    assert not await cell.inbox.cancel("w1", "no reason", entry)
    assert await cell.client.xlen(cell.keys.submissions) == 1
    await accept(cell)
    assert await cell.inbox.cancel("w1", "enough", entry)
    assert await cell.client.xlen(cell.keys.submissions) == 0
    assert await cell.inbox.stale(cell.keys.submissions, 0) == []
    assert await mail(cell) == [Submitted(), CancelAsked("enough")]


async def test_operations_survive_a_forgetful_server(cell: Cell) -> None:
    await accept(cell)
    await cell.client.script_flush()
    await commit(cell, 0, 1)
    await cell.client.script_flush()
    looks = await cell.inbox.begin([("w1", -1), ("w1", -1)], 10)
    assert [look.version for look in looks] == [await version_of(cell)] * 2


async def test_what_another_coordinator_has_answered_is_not_answered_again(cell: Cell) -> None:
    """As after a long pause: its entry was taken over meanwhile."""
    await accept(cell)
    entry = await cell.records.submit({"cancel": "w1"})
    assert await cell.inbox.cancel("w1", "enough", entry)
    await cell.inbox.commit([Commit("w1", "", await version_of(cell), 0, "json", end=End("cancelled", {}, 60_000))])
    assert await cell.inbox.cancel("w1", "enough", entry)
    wrong = await cell.records.submit({"workflow": "none"})
    for _ in range(2):
        await cell.inbox.refuse(wrong, "json", {"error": "no such"}, 60_000)
    assert await cell.client.xlen(cell.keys.events(wrong)) == 1
    assert (await cell.records.counts())["rejected"] == 1


async def test_the_answer_to_a_submission_takes_little_room_and_reaches_who_waits_for_it(cell: Cell) -> None:
    for kind in ("rejected", "accepted"):
        entry = await cell.records.submit({"workflow": "x", "id": "w1"})
        waiting = asyncio.create_task(cell.records.look({entry: "0"}, 30))
        while not (await cell.client.info("clients"))["blocked_clients"]:
            await clock.sleep(0.01)
        if kind == "rejected":
            await cell.inbox.refuse(entry, "json", {"error": "no such"}, 60_000)
        else:
            await accept(cell, entry=entry)
        assert [found[2] for found in await waiting] == [kind]
        assert await cell.client.memory_usage(cell.keys.events(entry), samples=0) < 1000
        assert await cell.client.pttl(cell.keys.events(entry)) > 0
    assert await cell.client.keys(f"{cell.keys.prefix}reply*") == []
