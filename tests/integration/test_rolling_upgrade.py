"""Processes of neighbouring versions on one namespace: a workflow whose records another has written goes its way."""

from collections.abc import Callable
from typing import Any

import pytest

from common import wire
from common.events import Outcome
from common.model import InstanceLoad, InstanceProfile, Node, Usage
from common.settings import load
from common.store.cell import Cell
from common.store.queues import Room, Seat
from common.store.scripts import call_id
from coordinator.desk import Desk
from coordinator.loops.completions import completions
from coordinator.loops.intake import intake

PROFILE = InstanceProfile("test", 1000.0, 0.03, 0.005, 1e-7, 1000)
ROOM = Room(8, 10_000, 10_000)
TWO = {
    "name": "two",
    "stages": {"a": {"prompt": "say it"}, "b": {"needs": ["a"], "prompt": "say {{ a.output }} again"}},
    "output": "b.output",
}
Rewrite = Callable[[bytes], bytes]


def listed(change: Callable[[list[Any]], list[Any]]) -> Rewrite:
    return lambda packed: wire.pack(change(list(wire.unpack(packed))))


def mapped(change: Callable[[dict[str, Any]], dict[str, Any]]) -> Rewrite:
    return lambda packed: wire.pack(change(wire.unpack(packed)))


def all_of_node(fields: list[Any]) -> list[Any]:
    node = Node(*fields[: len(Node.__slots__)])
    return [getattr(node, name) for name in Node.__slots__]


def later_payload(fields: list[Any]) -> list[Any]:
    call = [*fields[3][:3], [*fields[3][3], "new"], "new"]
    return [*fields[:3], call, *fields[4:], "new"]


def earlier_payload(fields: list[Any]) -> list[Any]:
    call = [*fields[3][:3], fields[3][3][:4]]
    return [*fields[:3], call, *fields[4:]]


class Version:
    """How another version has written each record; `extra` fields of hashes beside those known here."""

    def __init__(self, extra: dict[str, str], absent: tuple[str, ...], **records: Rewrite) -> None:
        self.extra, self.absent, self.records = extra, absent, records

    async def rewrite(self, cell: Cell) -> None:
        """Every record of the cell, as that version would have written it."""
        for kind, hashes in {"workflow": cell.keys.workflow("w"), "outputs": cell.keys.outputs("w")}.items():
            for name, data in (await cell.client.hgetall(hashes)).items():
                key = {"outputs": "outcome"}.get(kind, "node" if name.startswith(b"n:") else name.decode())
                if key in self.records:
                    await cell.client.hset(hashes, name, self.records[key](data))
        async for key in cell.client.scan_iter(cell.keys.request("*")):
            await self._hash(cell, key, "payload")
        await self._hash(cell, cell.keys.instance("a"), "profile", "load")

    async def _hash(self, cell: Cell, key: Any, *packed: str) -> None:
        for name in packed:
            if (data := await cell.client.hget(key, name)) is not None:
                await cell.client.hset(key, name, self.records[name](data))
        if self.extra:
            await cell.client.hset(key, mapping=self.extra)
        if self.absent:
            await cell.client.hdel(key, *self.absent)


LATER = Version(
    {"colour": "red"}, (),
    head=listed(lambda head: [*head, "new"]),
    node=listed(lambda node: [*all_of_node(node), "new"]),
    outcome=listed(lambda outcome: [*outcome, "new"]),
    payload=listed(later_payload),
    profile=mapped(lambda profile: profile | {"colour": "red"}),
    load=mapped(lambda told: told | {"colour": "red"}),
)  # fmt: skip
EARLIER = Version(
    {}, ("prefix", "expected_tokens", "slo_ms", "wants"),
    head=listed(lambda head: head[:5]),
    node=listed(lambda node: all_of_node(node)[:5]),
    outcome=listed(lambda outcome: outcome[:5]),
    payload=listed(earlier_payload),
    profile=mapped(lambda profile: {name: profile[name] for name in profile if name != "max_batch"}),
    load=mapped(lambda told: {name: told[name] for name in told if name != "iterations"}),
)  # fmt: skip


@pytest.mark.parametrize("version", [LATER, EARLIER], ids=["later", "earlier"])
async def test_a_workflow_that_another_version_has_begun_goes_on(cell: Cell, version: Version) -> None:
    seat = Seat("a", await cell.instances.register("a", PROFILE, ["default"], [], []), "a/1")
    await cell.instances.publish("a", seat.epoch or 0, InstanceLoad(500.0, 0.03, 1e-7, 1000, 512, 8, 0, 0, 0.02))
    await cell.records.submit({"workflow": TWO, "id": "w"})
    await intake(Desk(cell, load(policy="hexgen")))
    for _ in "ab":
        await version.rewrite(cell)
        await completions(Desk(cell, load(policy="hexgen")))
        await version.rewrite(cell)
        (claim,) = await cell.queues.claim(seat, call_id(), 60_000, ROOM)
        await cell.queues.finish([(claim.request, claim.token, Outcome("it", "a", 1, 2, Usage(3, 4), 5))])
    await version.rewrite(cell)
    (instance,) = await cell.instances.all()
    assert instance.profile.prefill_tokens_per_s == 500  # by its load
    await completions(Desk(cell, load(policy="hexgen")))
    result = await cell.records.result("w")
    assert result is not None
    assert (result["status"], result["output"]) == ("completed", "it")
    assert await cell.dead.all() == []


async def test_mail_of_a_later_version_fails_its_workflow_and_says_so(cell: Cell) -> None:
    """Left out, it could be what the workflow waits for: then it would wait for ever."""
    await cell.records.submit({"workflow": TWO, "id": "w"})
    desk = Desk(cell, load(policy="hexgen"))
    await intake(desk)
    await cell.client.rpush(cell.keys.mailbox("w"), "paused - - until noon")
    await completions(desk)
    result = await cell.records.result("w")
    assert result is not None
    assert result["error"] == "internal error: its mail cannot be read: ValueError: no message begins with b'paused'"
    (letter,) = await cell.dead.all()
    assert letter.workflow == "w"
