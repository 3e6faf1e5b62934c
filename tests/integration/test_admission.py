"""Limits as the operations keep them, on a real server: what is refused, what is not, and what is counted no more."""

from typing import Any

import pytest
from operations_bench import LEASE_MS, ROOM, accept, commit, join, push, submitted

from common import wire
from common.errors import InvalidDocument
from common.events import Outcome
from common.model import LINE, TOOLS, Head, Slo, Usage
from common.policy.fairness import price
from common.settings import load
from common.store.cell import Cell
from common.store.inbox import Commit, End
from common.store.limits import DEFAULTS, Full
from common.store.queues import Room
from coordinator.desk import Desk
from coordinator.loops.janitor import Janitor

MINUTE_MS = 60_000


async def submit(cell: Cell, workflow: str, tenant: str = "acme") -> str | Full:
    head = Head(tenant, "chain", "def1", {"x": 1}, Slo(1_000, 61_000))
    return await cell.inbox.accept(workflow, await submitted(cell), "d1", head, wire.pack({"name": "chain"}), 60_000)


async def end(cell: Cell, workflow: str, broken: bool = False) -> None:
    look = (await cell.inbox.begin([(workflow, -1)], 1))[0]
    how = End("completed", {}, 60_000)
    made = Commit(workflow, "", look.version, 1, "json", end=how, broken=broken, seen=look.seen)
    assert (await cell.inbox.commit([made]))[0].state == 1


async def counts(cell: Cell) -> tuple[dict[bytes, bytes], set[bytes]]:
    """Running workflows by tenant, and those of which it is known whose they are."""
    return await cell.client.hgetall(cell.keys.running), set(await cell.client.hkeys(cell.keys.workflow_tenants))


def named(answer: str | Full) -> tuple[Any, ...]:
    assert isinstance(answer, Full)
    return answer[:3]


async def test_a_cell_takes_as_many_workflows_as_its_limit(cell: Cell) -> None:
    await cell.limits.set("workflows", 2)
    assert [await submit(cell, name, name) for name in ("w1", "w2")] == ["accepted"] * 2
    assert named(await submit(cell, "w3", "w3")) == ("workflows", 2, 2)
    assert await cell.client.exists(*(f"{cell.keys.workflow('w3')}{part}" for part in ("", ":events", ":mailbox"))) == 0
    assert await submit(cell, "w1", "w1") == "same"
    await end(cell, "w1")
    assert await submit(cell, "w3", "w3") == "accepted"
    assert await counts(cell) == ({b"w2": b"1", b"w3": b"1"}, {b"w2", b"w3"})


@pytest.mark.strange_keys("the limits are no hash")
async def test_nothing_is_limited_to_a_number_that_is_none(cell: Cell) -> None:
    await cell.client.hset(cell.keys.limits, mapping={"workflows": "many", "tenant_workflows": "few"})
    assert await submit(cell, "w1") == "accepted"
    await cell.client.set(cell.keys.limits, "no hash")
    assert await submit(cell, "w2") == "accepted"


async def test_a_tenants_limit_is_its_own_or_that_of_any(cell: Cell) -> None:
    await cell.limits.set("tenant_workflows", 1)
    await cell.limits.set("workflows", 2, "big")
    answers = [await submit(cell, f"{name}{number}", name) for name in ("small", "big") for number in range(3)]
    assert [answer if isinstance(answer, str) else answer[:3] for answer in answers] == [
        "accepted", ("tenant_workflows", 1, 1), ("tenant_workflows", 1, 1),
        "accepted", "accepted", ("tenant_workflows", 2, 2),
    ]  # fmt: skip
    await end(cell, "small0")
    assert await submit(cell, "small1", "small") == "accepted"
    await cell.limits.set("workflows", 0, "other")
    assert named(await submit(cell, "w1", "other")) == ("tenant_workflows", 0, 0)


async def test_requests_are_counted_wherever_they_wait(cell: Cell) -> None:
    seat = await join(cell)
    await submit(cell, "w1")
    places = ["a", TOOLS, LINE, LINE]
    pushes = [push(f"r{at}", f"s{at}", place) for at, place in enumerate(places)]
    pushes[3] = push("r3", "s3", LINE, features=frozenset({"chat"}))
    assert await commit(cell, 0, 1, pushes=pushes) == 1
    assert await cell.client.scard(cell.keys.lanes) >= 1
    await cell.limits.set("queued", 5)
    assert await submit(cell, "w2") == "accepted"
    await cell.limits.set("queued", 4)
    assert named(await submit(cell, "w3")) == ("queued", 4, 4)
    await cell.queues.claim(seat, "c1", LEASE_MS, ROOM)
    assert await submit(cell, "w3") == "accepted"


async def test_as_many_are_shown_to_wait_as_the_operations_count(cell: Cell) -> None:
    """The dashboard may run no operation, so this is counted in two places."""
    await submit(cell, "w1")
    for instance in ("a", "b"):
        seat = await join(cell, instance)
    places = ["a", "b", "b", "b", TOOLS, TOOLS, LINE, LINE]
    pushes = [push(f"r{at}", f"s{at}", place) for at, place in enumerate(places)]
    pushes.append(push("r8", "s8", LINE, features=frozenset({"chat"})))
    assert await commit(cell, 0, 1, pushes=pushes, delays=[("s9", MINUTE_MS)]) == 1
    assert len(await cell.queues.claim(seat, "c1", LEASE_MS, Room(1, 10_000, 10_000))) == 1
    await cell.instances.evacuate("a", "ready")  # one back to its workflow
    await cell.limits.set("queued", 1)
    shown = {one.limit: one.taken for one in await cell.limits.standing()}
    assert named(await submit(cell, "w2")) == ("queued", shown["queued"], 1)
    assert shown["queued"] == 7


@pytest.mark.strange_keys("a workflow's record is a string")
@pytest.mark.parametrize("damage", ["none", "gone", "no hash", "no tenant in it"])
async def test_a_damaged_workflow_counts_no_more_once_it_has_ended(cell: Cell, damage: str) -> None:
    await submit(cell, "w1")
    await submit(cell, "w2")
    key = cell.keys.workflow("w1")
    if damage == "gone":
        await cell.client.delete(key)
    elif damage == "no hash":
        await cell.client.set(key, "x")
    elif damage == "no tenant in it":
        await cell.client.hdel(key, "head", "accepted:json", "accepted:msgpack")
    await end(cell, "w1", broken=True)
    assert await counts(cell) == ({b"acme": b"1"}, {b"w2"})
    await end(cell, "w2")
    assert await cell.client.exists(cell.keys.running, cell.keys.workflow_tenants) == 0


async def ended_by_an_older_version(cell: Cell, workflow: str) -> None:
    """It knows nothing of what is counted; all else is done, and the id may be used again."""
    await cell.client.zrem(cell.keys.live, workflow)
    await cell.client.delete(*(f"{cell.keys.workflow(workflow)}{part}" for part in ("", ":events", ":mailbox")))


async def test_what_an_older_version_has_ended_is_counted_no_more(cell: Cell, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(6):
        await submit(cell, f"w{number}", "acme" if number % 2 else "other")
    assert await cell.inbox.forget_ended() == 0
    for number in range(5):
        await ended_by_an_older_version(cell, f"w{number}")
    with monkeypatch.context() as few:
        few.setattr("common.store.inbox.DOUBTED", 2)
        assert await cell.inbox.forget_ended() in (1, 2)
        while (await counts(cell))[1] != {b"w5"}:
            assert await cell.inbox.forget_ended() <= 2
    assert await cell.inbox.forget_ended() == 0
    assert await counts(cell) == ({b"acme": b"1"}, {b"w5"})
    await ended_by_an_older_version(cell, "w5")
    await Janitor(Desk(cell, load(policy="hexgen")))()
    assert await counts(cell) == ({}, set())


async def test_an_id_that_an_older_version_has_ended_counts_once_when_it_is_used_again(cell: Cell) -> None:
    await submit(cell, "w1")
    for tenant in ("acme", "other"):
        await ended_by_an_older_version(cell, "w1")
        assert await submit(cell, "w1", tenant) == "accepted"
        assert await counts(cell) == ({tenant.encode(): b"1"}, {b"w1"})


async def owed_ms(cell: Cell, tenant: str = "acme") -> float:
    """Until its bucket is full."""
    return float(await cell.client.hget(cell.keys.quotas, tenant) or 0) - await cell.records.now_ms()


async def test_a_tenant_that_has_used_up_its_tokens_waits_until_its_debt_is_paid(cell: Cell) -> None:
    """A request takes out what is expected of it, and the difference at its end; the bucket has a minute's tokens."""
    await cell.limits.set("tenant_tokens_per_s", 100)
    seat = await join(cell)
    await submit(cell, "w1")
    asked = [push("r1", "s1", tenant="acme", price=5_900), push("r2", "s2", tenant="acme", price=3_000)]
    await commit(cell, 0, 1, pushes=asked[:1])
    assert 50_000 < await owed_ms(cell) <= 59_000
    assert await submit(cell, "w2") == "accepted"
    await commit(cell, 1, 0, pushes=asked[1:])
    full = await submit(cell, "w3")
    assert named(full) == ("tenant_tokens_per_s", 100, 100)
    assert 20_000 < int(full[3]) <= 29_000
    assert await submit(cell, "w4", "other") == "accepted"
    claims = {claim.request: claim for claim in await cell.queues.claim(seat, "c1", LEASE_MS, ROOM)}
    usage = Usage(prompt_tokens=100, output_tokens=50)
    assert price(100, 50, 1.0) == 200
    await cell.queues.finish([("r1", claims["r1"].token, Outcome("x", usage=usage))])  # 57 s back
    assert 20_000 < await owed_ms(cell) <= 32_000
    assert await submit(cell, "w3") == "accepted"
    await commit(cell, 2, 0, drops=["r2"])  # it ran: as expected
    assert 15_000 < await owed_ms(cell) <= 32_000


async def test_what_never_ran_is_given_back_and_a_full_bucket_is_forgotten(cell: Cell) -> None:
    await cell.limits.set("tokens_per_s", 10, "acme")
    await join(cell)
    await submit(cell, "w1")
    await commit(cell, 0, 1, pushes=[push("r1", "s1", tenant="acme", price=900), push("r2", "s2", price=900)])
    assert named(await submit(cell, "w2")) == ("tenant_tokens_per_s", 10, 10)
    await cell.instances.forget_tenants()
    assert await cell.client.hkeys(cell.keys.quotas) == [b"acme"]
    await commit(cell, 1, 0, drops=["r1", "r2"])
    assert await owed_ms(cell) <= 0
    await cell.instances.forget_tenants()
    assert await cell.client.exists(cell.keys.quotas) == 0


async def test_a_bucket_does_not_hold_more_than_a_minutes_tokens(cell: Cell) -> None:
    """However long it was full before."""
    await cell.limits.set("tokens_per_s", 10, "acme")
    await cell.client.hset(cell.keys.quotas, "acme", 1000)  # full since 1970
    await join(cell)
    await submit(cell, "w1")
    await commit(cell, 0, 1, pushes=[push("r1", "s1", tenant="acme", price=700)])
    assert named(await submit(cell, "w2")) == ("tenant_tokens_per_s", 10, 10)


async def test_without_a_limit_nothing_is_kept_of_a_tenants_rate(cell: Cell) -> None:
    await join(cell)
    await submit(cell, "w1")
    await commit(cell, 0, 1, pushes=[push("r1", "s1", tenant="acme", price=900)])
    assert await cell.client.exists(cell.keys.quotas) == 0
    assert not await cell.client.hexists(cell.keys.request("r1"), "rate")


async def test_the_time_to_wait_is_that_in_which_as_many_end_as_run(cell: Cell) -> None:
    for number in range(30):
        await submit(cell, f"w{number}")
    await cell.limits.set("workflows", 0)
    assert (await submit(cell, "w"))[3] == MINUTE_MS  # nothing has ended yet
    for number in range(20):
        await end(cell, f"w{number}")
    ended = float(await cell.client.hget(cell.keys.prefix + "pace", "ended"))
    assert 5 < ended <= 20  # less the time it took
    wait_ms = int((await submit(cell, "w"))[3])
    assert wait_ms == pytest.approx(min(MINUTE_MS, 10 * 30_000 / ended), rel=0.5)
    assert wait_ms >= 15_000


async def test_a_crowd_is_seen_by_the_first_limit_that_is_full(cell: Cell) -> None:
    assert await cell.inbox.crowd() is None
    for _ in range(3):
        await cell.records.submit({"workflow": "x"})
    await cell.limits.set("submissions", 3)
    assert await cell.inbox.crowd() is None
    await cell.limits.set("submissions", 2)
    await cell.limits.set("workflows", 0)
    assert named(await cell.inbox.crowd() or "") == ("submissions", 3, 2)
    await cell.limits.unset("submissions")
    assert named(await cell.inbox.crowd() or "") == ("workflows", 0, 0)
    await cell.limits.unset("workflows")
    await cell.limits.set("queued", 0)
    assert named(await cell.inbox.crowd() or "") == ("queued", 0, 0)


async def shed(cell: Cell, entries: list[str]) -> int:
    return await cell.inbox.shed([(entry, "json", {"workflow": entry, "error": "full"}) for entry in entries])


async def test_what_is_shed_is_told_once_and_is_no_dead_letter(cell: Cell) -> None:
    entries = [await cell.records.submit({"workflow": "x"}) for _ in range(3)]
    read = await cell.inbox.read(cell.keys.submissions, "c1", 10)
    assert [entry for entry, _ in read] == entries
    assert await shed(cell, entries[:2]) == 2
    assert await shed(cell, entries) == 1
    assert await shed(cell, entries) == 0
    for entry in entries:
        assert len(await cell.client.xrange(cell.keys.events(entry))) == 1
        assert await cell.records.first(entry) == ("rejected", {"workflow": entry, "error": "full"})
        assert 0 < await cell.client.pttl(cell.keys.events(entry)) <= 3_600_000
    assert await cell.client.xlen(cell.keys.submissions) == 0
    assert (await cell.client.xpending(cell.keys.submissions, "coordinators"))["pending"] == 0
    counted = await cell.records.counts()
    assert (counted["shed"], counted["rejected"], counted["dead"]) == (3, 0, 0)


async def test_of_very_many_that_are_shed_the_oldest_answers_are_forgotten(
    cell: Cell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("common.store.inbox.KEEP_SHED", 5)
    entries = [await cell.records.submit({"workflow": "x"}) for _ in range(12)]
    for at in range(0, 12, 4):
        assert await shed(cell, entries[at : at + 4]) == 4
    kept = [entry for entry in entries if await cell.client.exists(cell.keys.events(entry))]
    assert kept == entries[-5:]
    assert await cell.client.llen(cell.keys.prefix + "shed") == 5


@pytest.mark.parametrize(
    ("name", "value", "tenant", "told"),
    [
        ("workflow", 1, None, "NAME: there is no limit 'workflow'; there are: workflows, queued, submissions, "),
        ("queued", 1, "acme", "NAME: there is no limit 'queued' of one tenant; there are: workflows, tokens_per_s"),
        ("tokens_per_s", 0, "acme", "tokens_per_s: 0 must be a whole number from 1 to"),
        ("workflows", -1, None, "workflows: -1 must be a whole number from 0 to"),
    ],
)
async def test_a_limit_that_cannot_be_is_refused(
    cell: Cell, name: str, value: int, tenant: str | None, told: str
) -> None:
    with pytest.raises(InvalidDocument) as refused:
        await cell.limits.set(name, value, tenant)
    assert str(refused.value).startswith(told)
    assert await cell.client.exists(cell.keys.limits) == 0


async def test_the_defaults_hold_where_nothing_is_set(cell: Cell) -> None:
    assert await accept(cell) == "accepted"
    standing = {one.limit: one for one in await cell.limits.standing()}
    assert {name: standing[name].most for name in DEFAULTS} == DEFAULTS
    assert standing["workflows"].taken == 1
    members = {f"x{number}": number for number in range(DEFAULTS["workflows"] - 1)}
    await cell.client.zadd(cell.keys.live, members)
    assert named(await submit(cell, "w2")) == ("workflows", DEFAULTS["workflows"], DEFAULTS["workflows"])
