"""Garbage in what our own processes tell each other: whoever reads it goes on, and nobody else's work suffers."""

import asyncio
import logging
from typing import Any

import pytest
from garbage import damaged, drawn, mutated, odder, packed
from hypothesis import strategies as st
from leaks import check_for_leaks
from operations_bench import accept, commit, push

from common import wire
from common.events import Completed, Failed, Outcome
from common.model import InstanceProfile, LlmCall, Node, Sampling, Usage
from common.settings import load
from common.store.cell import Cell
from common.store.embedded import EmbeddedServer
from common.store.queues import Room, Seat
from common.store.scripts import call_id
from coordinator.desk import Desk
from coordinator.loops.completions import completions
from coordinator.loops.intake import intake
from workers.engines.noop import NoopEngine
from workers.lease import LeaseKeeper
from workers.observer import Observer
from workers.runner import Runner, run_until

MANY = 200
LEASE_MS = 60_000
PROFILE = InstanceProfile("test", 1000.0, 0.03, 0.005, 1e-7, 1 << 30, context_tokens=1 << 30)
CALL = LlmCall("say it", None, "m", Sampling(8, 0.0, 1.0, ("end",), 7))
PAYLOAD = wire.pack_payload(push("r1", "s", call=CALL, stream=True), "w1", "json")
OUTCOME = wire.pack_outcome(Outcome({"a": [1, "x"]}, "a", 1, 2, Usage(3, 4, 1), 5))
FAILURE = wire.pack_failure("no luck", True, 0)
TWO = {
    "name": "two",
    "stages": {"a": {"prompt": "say it"}, "b": {"needs": ["a"], "prompt": "say {{ a.output }} again"}},
    "output": "b.output",
}


def near(whole: bytes) -> st.SearchStrategy[bytes]:
    """Nearly this record, or bytes."""
    changed = mutated(wire.unpack(whole), odder).map(packed).filter(lambda data: data is not None)
    return st.one_of(changed, changed, damaged(whole), st.binary(max_size=20))


FIGURES = ("enqueued_at", "deadline_at", "prefix", "prompt_tokens", "expected_tokens", "slo_ms", "budget_ms")
figures = st.sampled_from([b"", b"many", b"nan", b"inf", b"-inf", b"-5", b"1e300", b"\xff"]) | st.binary(max_size=9)
payloads = st.fixed_dictionaries({"payload": near(PAYLOAD)})
strange_figures = st.dictionaries(st.sampled_from(FIGURES), figures, min_size=1, max_size=3)
records = st.one_of(payloads, payloads, payloads, strange_figures)


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)


async def told(cell: Cell) -> list[Any]:
    return (await cell.inbox.begin([("w1", -1)], 2 * MANY))[0].mail


@pytest.mark.slow
async def test_a_worker_goes_on_whatever_its_queue_holds(cell: Cell, server: EmbeddedServer, namespace: str) -> None:
    engine = NoopEngine(("m",))
    observer = Observer(engine, await engine.start())
    seat = Seat("a", await cell.instances.register("a", observer.profile, ["m"], [], []), "a/1")
    await accept(cell)
    pushes = [push(f"r{number}", f"s{number}", call=CALL, offset_ms=number) for number in range(MANY + 1)]
    nodes = {one.node: Node("running", request=one.request, phase="queued") for one in pushes}
    assert await commit(cell, 0, 1, nodes=nodes, pushes=pushes) == 1
    for one, garbage in zip(pushes, drawn(records, MANY), strict=False):
        await cell.client.hset(cell.keys.request(one.request), mapping=garbage)
    runner = Runner(cell, engine, observer, seat, LEASE_MS)
    ignored: dict[str, Any] = {"on_gone": lambda _: None, "on_seat_lost": lambda _: None}
    leases = LeaseKeeper(server.url, seat, namespace, LEASE_MS, **ignored)
    runner.attach(leases)
    leases.start()
    stop = asyncio.Event()
    serving = asyncio.create_task(run_until(runner, stop, 5.0))
    async with asyncio.timeout(60):
        while not any(isinstance(one, Completed) and one.request == f"r{MANY}" for one in await told(cell)):
            assert not serving.done()
            await asyncio.sleep(0.01)
    stop.set()
    await serving  # which drains: all that it could read is handed in
    await leases.ended()
    found = await told(cell)
    ended = {one.request for one in found if isinstance(one, Completed | Failed)}
    unread = {request.decode() for request in await cell.client.zrange(cell.keys.leases, 0, -1)}
    assert ended | unread == {one.request for one in pushes}
    assert min(len(ended), len(unread)) > MANY // 10
    assert any(isinstance(one, Failed) for one in found)


messages = st.tuples(
    st.sampled_from([
        b"submitted", b"completed", b"failed", b"lost", b"evacuated", b"due", b"cancel", b"amend", b"paused", b"",
    ]),
    st.sampled_from([b"REQUEST", b"REQUEST", b"r1", b"-", b"", b"\xff"]),
    st.sampled_from([b"a", b"a", b"b", b"nowhere", b"a@1", b"a[0]", b"a.b", b"-", b"\xff"]),
    near(FAILURE) | st.sampled_from([b"", FAILURE, b"3", b"-1", b"9" * 30, b"nan", b"x y z"]),
).map(b" ".join)  # fmt: skip
mails = st.tuples(st.one_of(messages, st.just(b"completed REQUEST a"), st.binary(max_size=20)), near(OUTCOME))
"""A message, and an outcome that is there for it."""


class Town:
    """Some workflows of two stages each, and all that they get."""

    def __init__(self, cell: Cell, seat: Seat, names: list[str]) -> None:
        self.cell, self.seat, self.names = cell, seat, names

    async def start(self) -> dict[str, bytes]:
        """The first request of each."""
        for name in self.names:
            await self.cell.records.submit({"workflow": TWO, "id": name})
        desk, found = Desk(self.cell, load(policy="hexgen")), {}
        while await self.cell.client.xlen(self.cell.keys.submissions):
            await intake(desk)
        await self.step()
        async for key in self.cell.client.scan_iter(self.cell.keys.request("*")):
            found[(await self.cell.client.hget(key, "workflow")).decode()] = key.rpartition(b":")[2]
        return found

    async def step(self) -> None:
        while await self.cell.client.xlen(self.cell.keys.completions):
            await completions(Desk(self.cell, load(policy="hexgen")))

    async def answer(self) -> None:
        claims = await self.cell.queues.claim(self.seat, call_id(), LEASE_MS, Room(1000, 1 << 30, 1 << 30))
        await self.cell.queues.finish([(claim.request, claim.token, Outcome("it", "a")) for claim in claims])
        await self.step()

    async def ends(self) -> dict[str, str]:
        results = {name: await self.cell.records.result(name) for name in self.names}
        return {name: result["status"] for name, result in results.items() if result is not None}


@pytest.mark.slow
async def test_whatever_mail_there_is_the_others_go_on(cell: Cell, server: EmbeddedServer) -> None:
    seat = Seat("a", await cell.instances.register("a", PROFILE, ["default"], [], []), "a/1")
    town = Town(cell, seat, ["first", *(f"w{number}" for number in range(MANY)), "last"])
    requests = await town.start()
    for name, (message, outcome) in zip(town.names[1:-1], drawn(mails, MANY), strict=True):
        await cell.client.hset(cell.keys.outputs(name), "a", outcome)
        await cell.client.rpush(cell.keys.mailbox(name), message.replace(b"REQUEST", requests[name]))
        await cell.client.xadd(cell.keys.completions, {"workflow": name})
    await town.step()
    for _ in range(3):
        await town.answer()
    for name in await cell.records.live(MANY):
        await cell.inbox.cancel(name, "long enough")
    await town.step()
    await town.answer()
    ends = await town.ends()
    assert set(ends) == set(town.names)
    assert (ends["first"], ends["last"]) == ("completed", "completed")
    assert {"completed", "failed"} <= set(ends.values()) <= {"completed", "failed", "cancelled"}
    await asyncio.to_thread(check_for_leaks, server.url, cell.keys.namespace)


async def test_whatever_a_record_lacks_the_others_go_on(cell: Cell, server: EmbeddedServer) -> None:
    """Each field of a request's record, gone while it waits or while it runs."""
    seat = Seat("a", await cell.instances.register("a", PROFILE, ["default"], [], []), "a/1")
    fields = sorted(await fields_of_a_record(cell, seat) - {"tenant"})  # of which no other count is kept
    lacking = {f"{when}-{field}": field for when in ("waits", "runs") for field in fields}
    town = Town(cell, seat, ["first", *lacking, "last"])
    requests = await town.start()

    async def damage(when: str) -> None:
        for name, field in lacking.items():
            if name.startswith(when):
                await cell.client.hdel(cell.keys.request(requests[name].decode()), field)

    await damage("waits")
    claims = await cell.queues.claim(seat, call_id(), LEASE_MS, Room(1000, 1 << 30, 1 << 30))
    await damage("runs")
    await cell.queues.finish([(claim.request, claim.token, Outcome("it", "a")) for claim in claims])
    for _ in range(3):
        await town.step()
        leases = await cell.client.zrange(cell.keys.leases, 0, -1)
        if leases:
            await cell.client.zadd(cell.keys.leases, dict.fromkeys(leases, 0))
        await cell.queues.reap(0, 5)
        await town.step()
        await town.answer()
    assert await cell.records.live(MANY) == ["waits-workflow", "runs-workflow"]  # nobody knows of them
    for name in await cell.records.live(MANY):
        await cell.inbox.cancel(name, "long enough")
    await town.step()
    ends = await town.ends()
    assert {name for name, end in ends.items() if end == "failed"} == {"waits-node", "runs-node"}
    assert {name for name, end in ends.items() if end == "cancelled"} == {"waits-workflow", "runs-workflow"}
    assert set(ends) == set(town.names)
    await asyncio.to_thread(check_for_leaks, server.url, cell.keys.namespace)


async def fields_of_a_record(cell: Cell, seat: Seat) -> set[str]:
    """Those of one that runs."""
    town = Town(cell, seat, ["probe"])
    (request,) = (await town.start()).values()
    (claim,) = await cell.queues.claim(seat, call_id(), LEASE_MS, Room(1, 1 << 30, 1 << 30))
    found = {field.decode() for field in await cell.client.hkeys(cell.keys.request(request.decode()))}
    await cell.queues.finish([(claim.request, claim.token, Outcome("it", "a"))])
    await town.step()
    await town.answer()
    return found
