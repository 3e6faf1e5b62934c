"""A workflow that cannot be read, stepped, packed or committed fails alone; trouble of the whole store fails none."""

import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from common import wire
from common.errors import StoreRefused, StoreUnavailable
from common.events import Outcome
from common.model import Head, InstanceProfile, Node, Slo
from common.settings import load
from common.store.cell import Cell
from common.store.embedded import EmbeddedServer
from common.store.inbox import Answer, Commit, End
from common.store.keys import GROUP
from common.store.queues import Room, Seat
from common.store.scripts import call_id
from coordinator.desk import Desk
from coordinator.loops.completions import completions, handle
from coordinator.loops.intake import intake

PROFILE = InstanceProfile("test", 1000.0, 0.03, 0.005, 1e-7, 1000)
ROOM = Room(8, 10_000, 10_000)
TWO = {
    "name": "two",
    "stages": {"a": {"prompt": "say it"}, "b": {"needs": ["a"], "prompt": "say {{ a.output }} again"}},
    "output": "b.output",
}
STRANGE = pytest.mark.strange_keys("what was broken on purpose stays")
GARBAGE = b"\xc1"
"""No MessagePack begins like this."""


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)


class Bench:
    """Some workflows of two stages each, driven by hand."""

    def __init__(self, cell: Cell, *names: str) -> None:
        self.cell, self.names, self.desk = cell, names, Desk(cell, load(policy="hexgen"))
        self.seat: Seat

    async def start(self) -> None:
        self.seat = Seat("a", await self.cell.instances.register("a", PROFILE, ["default"], [], []), "a/1")
        for name in self.names:
            await self.cell.records.submit({"workflow": TWO, "id": name})
        await intake(self.desk)
        await completions(self.desk)

    async def answer(self) -> None:
        """All that is queued."""
        claims = await self.cell.queues.claim(self.seat, call_id(), 60_000, ROOM)
        await self.cell.queues.finish([(claim.request, claim.token, Outcome("it", "a")) for claim in claims])

    async def step(self) -> None:
        """As another coordinator, which remembers nothing."""
        await completions(Desk(self.cell, load(policy="hexgen")))

    async def told(self, name: str) -> list[str]:
        entries = await self.cell.client.xrange(self.cell.keys.events(name))
        return [fields[b"type"].decode() for _, fields in entries]

    async def open_calls(self) -> int:
        pending = await self.cell.client.xpending(self.cell.keys.completions, GROUP)
        return int(pending["pending"]) + int(await self.cell.client.xlen(self.cell.keys.completions))


Break = Callable[[Bench], Awaitable[Any]]


def mail(*messages: bytes) -> Break:
    return lambda bench: bench.cell.client.rpush(bench.cell.keys.mailbox("bad"), *messages)


def field(name: str, value: bytes) -> Break:
    return lambda bench: bench.cell.client.hset(bench.cell.keys.workflow("bad"), name, value)


def other_type(key: Callable[[Cell], str]) -> Break:
    """A key of a type that no operation expects there."""

    async def replace(bench: Bench) -> None:
        await bench.cell.client.delete(key(bench.cell))
        await bench.cell.client.hset(key(bench.cell), "x", 1)

    return replace


async def plain_workflow(bench: Bench) -> None:
    await bench.cell.client.set(bench.cell.keys.workflow("bad"), "no hash")


async def plain_outputs(bench: Bench) -> None:
    await bench.cell.client.set(bench.cell.keys.outputs("bad"), "no hash")
    await mail(b"completed r1 b")(bench)


async def plain_request(bench: Bench) -> None:
    (request,) = await queued_of(bench, "bad")
    await bench.cell.client.set(bench.cell.keys.request(request), "no hash")
    await bench.cell.client.hset(bench.cell.keys.workflow("bad"), "head", GARBAGE)


async def queued_of(bench: Bench, workflow: str) -> list[str]:
    keys, found = bench.cell.keys, []
    for request in await bench.cell.client.zrange(keys.queue("a"), 0, -1):
        record = await bench.cell.client.hget(keys.request(request.decode()), "workflow")
        found += [request.decode()] if record == workflow.encode() else []
    return found


async def events_that_are_no_stream(bench: Bench) -> None:
    await bench.cell.client.set(bench.cell.keys.events("bad"), "no stream")
    await bench.cell.inbox.cancel("bad", "no reason")


async def no_definition(bench: Bench) -> None:
    head = Head("default", "two", "gone", {}, Slo(1, 2))
    await bench.cell.client.hset(bench.cell.keys.workflow("bad"), "head", wire.pack_head(head))


FAULTS: dict[str, Break] = {
    "mail that begins like none": mail(b"hello r1 a"),
    "mail with a bad failure": mail(b"failed r1 a " + GARBAGE),
    "mail without its output": mail(b"completed r1 b"),
    "mail that ends too soon": mail(b"lost r1 a"),
    "a bad head": field("head", GARBAGE),
    "a head of another version": field("head", wire.pack(["default", "two"])),
    "a head whose deadline is a text": field("head", wire.pack(["default", "two", "x", {}, ["x", "y"]])),
    "no version": lambda bench: bench.cell.client.hdel(bench.cell.keys.workflow("bad"), "version"),
    **{f"version {text}": field("version", text.encode()) for text in ("x", "-5", "07")},
    "a status of its own": field("status", b"tired"),
    "a bad node": field("n:a", GARBAGE),
    "a node of other types": field("n:a", wire.pack(["running", 0, 0, 7, "queued", 0, ""])),
    "a node of another version": field("n:a", wire.pack({"status": "running"})),
    "no definition": no_definition,
    "a mailbox that is no list": other_type(lambda cell: cell.keys.mailbox("bad")),
    "events that are no stream": events_that_are_no_stream,
    "outputs that are no hash": plain_outputs,
    "a request that is no hash": plain_request,
    "a workflow that is no hash": plain_workflow,
}


UNKNOWN = {
    "no version", "version x", "version -5", "version 07", "a status of its own", "a bad node", "a node of other types",
    "a node of another version", "a mailbox that is no list", "a workflow that is no hash", "outputs that are no hash",
}  # fmt: skip
"""Here nobody can tell which requests are the workflow's: they run in vain."""


@pytest.mark.parametrize(
    "what", [pytest.param(what, marks=STRANGE) if what == "a request that is no hash" else what for what in FAULTS]
)
async def test_a_bad_workflow_fails_alone(cell: Cell, what: str) -> None:
    bench = Bench(cell, "good", "bad", "fine")
    await bench.start()
    await FAULTS[what](bench)
    for name in ("good", "bad", "fine"):
        await bench.cell.client.xadd(cell.keys.completions, {"workflow": name})
    await bench.step()
    result = await cell.records.result("bad")
    assert result is not None
    assert (result["workflow"], result["status"], result["stage"]) == ("bad", "failed", "")
    assert result["error"].startswith("internal error: ")
    assert (await bench.told("bad"))[-1] == "failed"
    assert await cell.records.live(10) == ["good", "fine"]
    assert (await queued_of(bench, "bad") != []) == (what in UNKNOWN)
    assert await bench.open_calls() == 0
    for _ in range(2):
        await bench.answer()
        await bench.step()
    assert [(await cell.records.result(name))["output"] for name in ("good", "fine")] == ["it", "it"]  # type: ignore[index]
    assert await bench.open_calls() == 0
    for key in (cell.keys.workflow("bad"), cell.keys.events("bad"), cell.keys.result("bad")):
        assert await cell.client.pttl(key) > 0
    assert await cell.client.exists(cell.keys.mailbox("bad"), cell.keys.outputs("bad")) == 0
    assert (await cell.records.counts())["failed"] == 1


async def test_abandon_ends_a_workflow_once_and_settles_its_entry_always(cell: Cell) -> None:
    bench = Bench(cell, "w")
    await bench.start()
    drops, end = await queued_of(bench, "w"), End("failed", {"status": "failed"}, 5_000)
    for expected in (Answer(1, 0), Answer(-1, 0)):
        await cell.client.xadd(cell.keys.completions, {"workflow": "w"})
        ((entry, _),) = await cell.inbox.read(cell.keys.completions, "c1", 10)
        made = Commit("w", entry, 0, 0, "json", drops=drops, end=end, broken=True)
        assert await cell.inbox.commit([made]) == [expected]
        assert await bench.open_calls() == 0
    assert await cell.records.result("w") == {"status": "failed"}
    assert await bench.told("w") == ["accepted", "stage_started", "failed"]
    assert await cell.records.live(10) == await queued_of(bench, "w") == []
    assert (await cell.instances.backlogs())["a"] == 0
    assert await cell.client.exists(cell.keys.request(drops[0])) == 0
    assert (await cell.records.counts())["failed"] == 1


@pytest.mark.parametrize("kind", ["unreadable", "of another type"])
async def test_bad_outputs_fail_their_workflow_alone(cell: Cell, kind: str) -> None:
    bench = Bench(cell, "good", "bad")
    await bench.start()
    await bench.answer()
    await bench.step()
    if kind == "unreadable":
        await cell.client.hset(cell.keys.outputs("bad"), "a", GARBAGE)
    else:
        await cell.client.delete(cell.keys.outputs("bad"))
        await cell.client.set(cell.keys.outputs("bad"), "no hash")
    for name in bench.names:
        await cell.client.xadd(cell.keys.completions, {"workflow": name})
    await bench.step()
    assert (await bench.told("bad"))[-1] == "failed"
    assert await cell.records.live(10) == ["good"]
    assert await bench.open_calls() == 0


async def test_a_step_that_cannot_be_packed_fails_its_workflow_alone(cell: Cell) -> None:
    bench = Bench(cell, "bad", "good")
    await bench.start()
    await bench.answer()
    known = bench.desk.at_hand("bad")
    assert known
    known.nodes["b"] = Node(request="\ud800")
    await completions(bench.desk)
    result = await cell.records.result("bad")
    assert result is not None
    assert result["error"].startswith("internal error: its step cannot be packed: UnicodeEncodeError")
    assert await cell.records.live(10) == ["good"]
    assert await bench.open_calls() == 0


async def test_a_coordinator_that_remembers_the_workflow_tells_its_times_and_drops_its_requests(cell: Cell) -> None:
    bench = Bench(cell, "bad")
    await bench.start()
    await cell.queues.claim(bench.seat, call_id(), 60_000, Room(1, 1000, 1000))
    await mail(b"hello")(bench)
    await cell.client.xadd(cell.keys.completions, {"workflow": "bad"})
    await completions(bench.desk)
    result = await cell.records.result("bad")
    assert result is not None
    assert result["slo_s"] == 300
    assert 0 <= result["elapsed_s"] < 60
    assert (await cell.instances.backlogs())["a"] == 0
    assert await cell.client.zcard(cell.keys.leases) == 0


async def test_what_nobody_could_drop_leaves_nothing_behind(cell: Cell) -> None:
    bench = Bench(cell, "bad")
    await bench.start()
    await field("n:a", GARBAGE)(bench)
    await cell.client.xadd(cell.keys.completions, {"workflow": "bad"})
    await bench.step()
    await bench.answer()
    assert await cell.client.exists(cell.keys.outputs("bad"), cell.keys.mailbox("bad")) == 0
    assert (await cell.instances.backlogs())["a"] == 0


@STRANGE
async def test_the_id_of_a_workflow_that_could_not_be_read_stays_taken(cell: Cell) -> None:
    bench = Bench(cell, "bad")
    await bench.start()
    await plain_workflow(bench)
    await cell.client.xadd(cell.keys.completions, {"workflow": "bad"})
    await bench.step()
    entry = await cell.records.submit({"workflow": TWO, "id": "bad"})
    await intake(bench.desk)
    assert await bench.told(entry) == ["rejected"]


async def test_a_full_server_fails_nobody(cell: Cell) -> None:
    bench = Bench(cell, "bad", "good")
    await bench.start()
    await bench.answer()
    await cell.client.config_set("maxmemory", 1)
    try:
        with pytest.raises(StoreUnavailable):
            await completions(bench.desk)
    finally:
        await cell.client.config_set("maxmemory", 0)
    assert await cell.records.live(10) == ["bad", "good"]
    for stale in await cell.inbox.stale(cell.keys.completions, 0):
        left = await cell.inbox.take_over(cell.keys.completions, "c1", 0, stale)
        await handle(bench.desk, [left] if left else [])
    await bench.answer()
    await completions(bench.desk)
    assert [await bench.told(name) for name in bench.names] == [
        ["accepted", "stage_started", "stage_completed", "stage_started", "stage_completed", "completed"]
    ] * 2


async def test_missing_rights_fail_nobody(cell: Cell, server: EmbeddedServer, namespace: str) -> None:
    bench = Bench(cell, "w")
    await bench.start()
    await bench.answer()
    await cell.client.acl_setuser("reader", enabled=True, passwords=["+p"], keys=["*"], commands=["+@all", "-hset"])
    reading = Cell.open(f"redis://reader:p@127.0.0.1:{server.port}/0", namespace)
    try:
        with pytest.raises(StoreRefused, match="Redis refuses"):
            await completions(Desk(reading, load(policy="hexgen")))
    finally:
        await reading.close()
        await cell.client.acl_deluser("reader")
    assert await cell.records.live(10) == ["w"]


@STRANGE
async def test_a_submission_that_cannot_be_taken_is_refused_alone(cell: Cell) -> None:
    """The error quotes half a character, which MessagePack cannot carry; the id's key holds something else."""
    bench = Bench(cell)
    await cell.client.set(cell.keys.workflow("taken"), "no hash")
    half = {"name": "half", "stages": {"a": {"prompt": "{{ inputs['\\ud800'] }}"}}}
    submitted = [{"workflow": half}, {"workflow": TWO, "id": "taken"}, {"workflow": TWO, "id": "good"}]
    entries = [await cell.client.xadd(cell.keys.submissions, {"msgpack": wire.pack(part)}) for part in submitted]
    await intake(bench.desk)
    assert [await bench.told(entry.decode()) for entry in entries] == [["rejected"], ["rejected"], ["accepted"]]
    assert await cell.client.xlen(cell.keys.submissions) == 0


@pytest.mark.parametrize("key", ["workflow", "mailbox", "outputs"])
async def test_a_result_for_a_broken_workflow_ends_it_and_no_other(cell: Cell, key: str) -> None:
    bench = Bench(cell, "bad", "good")
    await bench.start()
    await cell.client.set(getattr(cell.keys, key)("bad"), "of another type")
    await bench.answer()
    assert await cell.client.zcard(cell.keys.leases) == 0
    await bench.step()
    assert await cell.records.live(10) == ["good"]
    assert (await bench.told("bad"))[-1] == "failed"
    await bench.answer()
    await bench.step()
    assert (await cell.records.result("good"))["output"] == "it"  # type: ignore[index]
    assert await bench.open_calls() == (await cell.instances.backlogs())["a"] == 0


@STRANGE
async def test_a_broken_request_stops_no_other(cell: Cell, caplog: pytest.LogCaptureFixture) -> None:
    """Not when results are handed in, leases renewed, requests given back or leases ended."""
    caplog.set_level(logging.WARNING, "hexgen.store")
    bench = Bench(cell, "bad", "good", "given")
    await bench.start()
    bad, good, given = await cell.queues.claim(bench.seat, call_id(), 60_000, ROOM)
    await cell.client.set(cell.keys.request(bad.request), "no hash")
    held = [(claim.request, claim.token) for claim in (bad, good, given)]
    assert await cell.queues.renew(bench.seat, 60_000, held) == ("ready", [bad.request])
    ended = [(claim.request, claim.token, Outcome("it", "a")) for claim in (bad, good)]
    assert await cell.queues.finish(ended) == [False, True]
    assert [bad.request in record.getMessage() for record in caplog.records] == [True]
    await cell.queues.release([held[0], held[2]])
    assert await cell.client.zrange(cell.keys.leases, 0, -1) == [bad.request.encode()]
    await cell.client.hset(f"{cell.keys.prefix}server", mapping={"since": 0})
    await cell.client.zadd(cell.keys.leases, {bad.request: 0})
    while await cell.queues.reap(0, 3) is None:
        pass
    assert await cell.client.zcard(cell.keys.leases) == 0


@STRANGE
async def test_a_broken_request_at_the_head_of_its_queue_lets_the_others_through(cell: Cell) -> None:
    bench = Bench(cell, "bad", "odd", "good")
    await bench.start()
    (bad,), (odd,), (good,) = [await queued_of(bench, name) for name in bench.names]
    await cell.client.set(cell.keys.request(bad), "no hash")
    await cell.client.hset(cell.keys.request(odd), mapping={"payload": GARBAGE, "prompt_tokens": "many"})
    claims = await cell.queues.claim(bench.seat, call_id(), 60_000, ROOM)
    assert [claim.request for claim in claims] == [good]
    assert await cell.client.zcard(cell.keys.queue("a")) == 0
    assert set(await cell.client.zrange(cell.keys.leases, 0, -1)) == {odd.encode(), good.encode()}


async def test_a_request_without_a_load_is_dropped_like_any_other(cell: Cell) -> None:
    bench = Bench(cell, "w")
    await bench.start()
    (request,) = await queued_of(bench, "w")
    await cell.client.hdel(cell.keys.request(request), "load_ms")
    await cell.inbox.cancel("w", "no reason")
    await bench.step()
    assert (await bench.told("w"))[-1] == "cancelled"
    assert await cell.client.zcard(cell.keys.queue("a")) == 0


@STRANGE
async def test_a_workflow_that_cannot_even_be_ended_is_told_with_its_fault(
    cell: Cell, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    bench = Bench(cell, "bad")
    await bench.start()
    await cell.client.delete(f"{cell.keys.prefix}live")
    await cell.client.set(f"{cell.keys.prefix}live", "no sorted set")
    await mail(b"hello")(bench)
    await cell.client.xadd(cell.keys.completions, {"workflow": "bad"})
    await bench.step()
    assert "workflow bad cannot be ended: Redis cannot work with" in caplog.text
    assert "moving under us" not in caplog.text
