"""Garbage of all kinds as submissions: each is answered, whatever is accepted ends, and nothing is left of it."""

import asyncio
import json
import logging
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

import msgpack
import pytest
from garbage import Fields, drawn, entries
from leaks import check_for_leaks

from common.events import Outcome
from common.model import InstanceProfile, Usage
from common.settings import load
from common.store.cell import Cell
from common.store.embedded import EmbeddedServer
from common.store.inbox import Entry
from common.store.queues import Room, Seat
from common.store.scripts import call_id
from coordinator.desk import Desk
from coordinator.language.compiler import compile_definition
from coordinator.loops.completions import completions
from coordinator.loops.intake import BATCH, intake, take

PROFILE = InstanceProfile("test", 1e6, 0.03, 0.005, 1e-7, 1 << 40, context_tokens=1 << 40)
ROOM = Room(250, 1 << 40, 1 << 40)
KNOWN = {"name": "known", "inputs": {"a": {"type": "any", "default": 1}}, "stages": {"a": {"prompt": "{{ inputs.a }}"}}}
OWN_ID: Fields = {b"json": b'{"workflow": "known", "id": "order-1"}'}
"""It is answered on another stream than its workflow's. Sent first: nothing else has the id."""
OUTPUTS: list[Any] = ["", "text", "\x00", "x" * 100_000, None, 0, -1.5, True, [], {}, {"a": [None] * 100}, [[[["a"]]]]]
ANSWERS = ("accepted", "rejected")
T = TypeVar("T")
ROUNDS = 5
"""So many times the workflows get their answers, then they are cancelled."""


class Told(NamedTuple):
    """An event: its id in the stream, its type, what it tells."""

    id: str
    kind: str
    data: Any


class Crowd:
    """Some thousand submissions through a coordinator, and the one instance that answers them."""

    def __init__(self, cell: Cell, seat: Seat) -> None:
        self.cell, self.seat = cell, seat
        self.desk = Desk(cell, load(policy="hexgen"))
        self.answered = 0

    async def submit(self, crowd: Sequence[Fields]) -> list[str]:
        entries = []
        for some in parts(crowd):
            pipeline = self.cell.client.pipeline(transaction=False)
            for fields in some:
                pipeline.xadd(self.cell.keys.submissions, fields)
            entries += [entry.decode() for entry in await pipeline.execute()]
        return entries

    async def take_in(self) -> None:
        for _ in range(math.ceil(await self.cell.client.xlen(self.cell.keys.submissions) / BATCH)):
            await intake(self.desk)
        assert await self.cell.client.xlen(self.cell.keys.submissions) == 0

    async def step(self) -> None:
        while await self.cell.client.xlen(self.cell.keys.completions):
            await completions(self.desk)

    async def answer(self) -> None:
        while claims := await self.cell.queues.claim(self.seat, call_id(), 60_000, ROOM):
            ended = []
            for claim in claims:
                self.answered += 1
                output = OUTPUTS[self.answered % len(OUTPUTS)]
                ended.append((claim.request, claim.token, Outcome(output, "a", 1, 1, Usage(1, 1))))
            await self.cell.queues.finish(ended)

    async def run_out(self) -> None:
        """To the end of all that was accepted."""
        for _ in range(ROUNDS):
            await self.step()
            await self.answer()
        await self.step()
        for workflow in await self.cell.records.live(100_000):
            await self.cell.inbox.cancel(workflow, "long enough")
        await self.step()

    async def take_again(self, entries: Sequence[Entry]) -> None:
        """As a coordinator does that had read them too, and stood still meanwhile."""
        for entry in entries:
            await take(self.desk, entry)

    async def told(self, ids: Sequence[str]) -> list[list[Told]]:
        """The events of each."""
        found = []
        for some in parts(ids):
            pipeline = self.cell.client.pipeline(transaction=False)
            for events in map(self.cell.keys.events, some):
                pipeline.xrange(events)
            found += [[_event(*one) for one in events] for events in await pipeline.execute()]
        return found

    async def answers(self, ids: Sequence[str]) -> list[list[Told]]:
        """The events of each that answer a submission: which one and when."""
        return [[event for event in events if event.kind in ANSWERS] for events in await self.told(ids)]


def parts(all_of_them: Sequence[T]) -> Iterator[Sequence[T]]:
    """A few hundred at a time: a server that is busy must answer within seconds."""
    return (all_of_them[at : at + 250] for at in range(0, len(all_of_them), 250))


def _event(name: bytes, fields: Fields) -> Told:
    data = json.loads(fields[b"json"]) if b"json" in fields else msgpack.unpackb(fields[b"msgpack"])
    return Told(name.decode(), fields[b"type"].decode(), data)


def check_answers(entry: str, fields: Fields, answers: Sequence[Told]) -> None:
    """There is one, unless it is a cancellation or an amendment that was carried out."""
    if not answers:
        assert any(word in value for word in (b"cancel", b"amend") for value in fields.values()), fields
        return
    ((_, kind, data),) = answers
    if kind == "rejected":
        assert data["workflow"] == entry
        assert 5 <= len(data["error"]) <= 1000, (fields, data)
        assert not data["error"].startswith("internal error"), (fields, data)


@pytest.mark.parametrize("count", [300, pytest.param(10_000, marks=pytest.mark.slow)])
async def test_garbage_is_refused_with_a_reason_or_runs_to_an_end(
    cell: Cell, server: EmbeddedServer, caplog: pytest.LogCaptureFixture, count: int
) -> None:
    caplog.set_level(logging.CRITICAL)
    crowd = Crowd(cell, Seat("a", await cell.instances.register("a", PROFILE, ["default"], [], []), "a/1"))
    known = compile_definition(KNOWN)
    await cell.records.register("known", known.digest, known.document, 60_000)
    sent = [OWN_ID, *drawn(entries(), count - 1)]
    assert len(sent) == count
    ids = await crowd.submit(sent)
    await crowd.take_in()
    answers = await crowd.answers(ids)
    for one, fields, answered in zip(ids, sent, answers, strict=True):
        check_answers(one, fields, answered)
    await crowd.run_out()
    await crowd.take_again(list(zip(ids, sent, strict=True)))
    assert await crowd.answers(ids) == answers
    accepted = sorted({one.data["workflow"] for (one,) in filter(None, answers) if one.kind == "accepted"})
    ends = [events[-1] for events in await crowd.told(accepted)]
    assert [end.data for end in ends if str(end.data.get("error")).startswith("internal error")] == []
    assert await cell.dead.all() == []
    kinds = [end.kind for end in ends]
    assert set(kinds) <= {"completed", "failed", "cancelled"}
    assert min(len(accepted), count - len(accepted), kinds.count("completed"), kinds.count("failed")) > count // 100
    (good,) = await crowd.submit([{b"json": b'{"workflow": "known"}'}])
    await crowd.take_in()
    await crowd.run_out()
    assert (await crowd.told([good]))[0][-1].kind == "completed"
    await asyncio.to_thread(check_for_leaks, server.url, cell.keys.namespace)
