"""Intake on a real server where there is no room: who is told what, and what is taken all the same."""

import json
import re
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import msgpack
import pytest

from common.errors import StoreUnavailable
from common.model import Json
from common.settings import load
from common.store.cell import Cell
from common.store.keys import GROUP
from coordinator.desk import Desk
from coordinator.loops.intake import BATCH, CROWD, MORE, intake

ONE = {"name": "one", "stages": {"s": {"prompt": "say it"}}}


@pytest.fixture
def desk(cell: Cell) -> Desk:
    return Desk(cell, load(policy="hexgen"))


async def send(cell: Cell, document: Json, count: int = 1, encoding: str = "json") -> list[str]:
    data = json.dumps(document).encode() if encoding == "json" else msgpack.packb(document)
    return [(await cell.client.xadd(cell.keys.submissions, {encoding: data})).decode() for _ in range(count)]


async def answers(cell: Cell, entries: list[str]) -> list[tuple[str, Json]]:
    found = [await cell.records.first(entry) for entry in entries]
    return [answer for answer in found if answer is not None]


async def settled(cell: Cell) -> bool:
    pending = (await cell.client.xpending(cell.keys.submissions, GROUP))["pending"]
    return bool(await cell.client.xlen(cell.keys.submissions) == pending == 0)


@pytest.mark.parametrize("encoding", ["json", "msgpack"])
async def test_who_finds_no_room_is_told_what_is_full_and_when_to_try_again(
    cell: Cell, desk: Desk, encoding: str
) -> None:
    await cell.limits.set("workflows", 1)
    first, second = await send(cell, {"workflow": ONE}, 2, encoding)
    await intake(desk)
    assert (await answers(cell, [first]))[0][0] == "accepted"
    ((kind, told),) = await answers(cell, [second])
    wait_s = told["retry_after_s"]
    assert 1 <= wait_s <= 60
    error = f"the cell runs 1 of 1 workflows; try again in {wait_s:.1f} s"
    assert (kind, told) == (
        "rejected", {"workflow": second, "field": "", "error": error, "retry_after_s": wait_s},
    )  # fmt: skip
    assert await settled(cell)
    assert (await cell.records.counts())["dead"] == 0


async def test_a_tenants_own_limit_names_the_tenant(cell: Cell, desk: Desk) -> None:
    await cell.limits.set("workflows", 1, "acme")
    entries = await send(cell, {"workflow": ONE, "tenant": "acme"}, 2) + await send(cell, {"workflow": ONE})
    await intake(desk)
    kinds, told = zip(*await answers(cell, entries), strict=True)
    assert kinds == ("accepted", "rejected", "accepted")
    assert told[1]["field"] == "tenant"
    assert told[1]["error"].startswith("tenant acme runs 1 of 1 workflows; try again in ")


async def test_the_same_submission_again_is_not_refused_though_all_is_full(cell: Cell, desk: Desk) -> None:
    await send(cell, {"workflow": ONE, "id": "order-1"})
    await intake(desk)
    await cell.limits.set("workflows", 1)
    new = await send(cell, {"workflow": ONE}, CROWD)
    again = await send(cell, {"workflow": ONE, "id": "order-1"})
    other = await send(cell, {"workflow": ONE, "id": "order-1", "slo_s": 5})
    another = await send(cell, {"workflow": ONE, "id": "order-2"})
    await intake(desk)
    assert [kind for kind, _ in await answers(cell, new)] == ["rejected"] * CROWD
    found = await answers(cell, again + other + another)
    assert [kind for kind, _ in found] == ["accepted", "rejected", "rejected"]
    assert ["retry_after_s" in told for _, told in found] == [False, False, True]
    assert await settled(cell)


WHY = "no such workflow is wanted"
HIDDEN = b'{"\\u0063ancel": "order-1", "reason": "no such workflow is wanted"}'
"""JSON for a cancellation that has no such word in it."""


@pytest.mark.parametrize("limit", ["submissions", "workflows"])
@pytest.mark.parametrize("how", ["json", "msgpack", "hidden"])
async def test_a_cancellation_is_carried_out_in_any_crowd(cell: Cell, desk: Desk, limit: str, how: str) -> None:
    await send(cell, {"workflow": ONE, "id": "order-1"})
    await intake(desk)
    await cell.limits.set(limit, 1 if limit == "workflows" else 0)
    crowd = await send(cell, {"workflow": ONE, "inputs": {"what": "to cancel it is no cancellation"}}, CROWD)
    if how == "hidden":
        await cell.client.xadd(cell.keys.submissions, {"json": HIDDEN})
    else:
        await send(cell, {"cancel": "order-1", "reason": WHY}, encoding=how)
    await intake(desk)
    assert [kind for kind, _ in await answers(cell, crowd)] == ["rejected"] * CROWD
    mail = (await cell.inbox.begin([("order-1", -1)], 10))[0].mail
    assert [type(event).__name__ for event in mail] == ["Submitted", "CancelAsked"]
    assert await settled(cell)


async def test_too_many_submissions_are_refused_unread_until_they_are_few_enough(cell: Cell, desk: Desk) -> None:
    """The oldest, also those with an id, valid or not, and no more than is too much; then the rest is taken."""
    await cell.limits.set("submissions", BATCH)
    good = await send(cell, {"workflow": ONE, "id": "mine"})
    bad = await send(cell, {"workflow": "unheard-of"})
    old = await send(cell, {"workflow": ONE}, CROWD)
    new = await send(cell, {"workflow": ONE}, BATCH)
    await intake(desk)
    count = BATCH + CROWD + 2
    kinds = {(kind, told["error"].partition(";")[0]) for kind, told in await answers(cell, good + bad + old)}
    assert kinds == {("rejected", f"{count} submissions wait for an answer, of {BATCH} at most")}
    await intake(desk)
    assert [kind for kind, _ in await answers(cell, new)] == ["accepted"] * BATCH
    assert await settled(cell)
    assert (await cell.records.counts())["shed"] == CROWD + 2


async def test_what_is_far_too_much_is_refused_in_few_turns(cell: Cell, desk: Desk) -> None:
    """As much of it as there is, and no more."""
    await cell.limits.set("submissions", 10)
    entries = await send(cell, {"workflow": ONE}, 2 * (BATCH + MORE) - 20)
    await intake(desk)
    assert (await cell.records.counts())["shed"] == BATCH + MORE
    await intake(desk)
    left = await cell.client.xlen(cell.keys.submissions)
    assert left == 10
    assert [kind for kind, _ in await answers(cell, entries[:-10])] == ["rejected"] * (len(entries) - 10)
    await intake(desk)
    assert [kind for kind, _ in await answers(cell, entries[-10:])] == ["accepted"] * 10
    assert await settled(cell)


async def test_those_refused_together_are_not_told_the_same_time(cell: Cell, desk: Desk) -> None:
    await cell.limits.set("workflows", 0)
    entries = await send(cell, {"workflow": ONE}, BATCH)
    await intake(desk)
    waits = [told["retry_after_s"] for _, told in await answers(cell, entries)]
    assert len(set(waits)) > BATCH / 2
    assert min(waits) >= 1
    assert max(waits) <= 60


def counted(cell: Cell, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The ids of workflows that are tried to be accepted from now on."""
    tried: list[str] = []
    accept = cell.inbox.accept

    async def noted(workflow: str, *args: Any) -> Any:
        tried.append(workflow)
        return await accept(workflow, *args)

    monkeypatch.setattr(cell.inbox, "accept", noted)
    return tried


async def test_a_batch_stops_where_the_cell_is_full(cell: Cell, desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once it is, no more than a few of the same batch are looked at one by one."""
    await cell.limits.set("workflows", 3)
    entries = await send(cell, {"workflow": ONE}, BATCH)
    tried = counted(cell, monkeypatch)
    await intake(desk)
    kinds = [kind for kind, _ in await answers(cell, entries)]
    assert kinds == ["accepted"] * 3 + ["rejected"] * (BATCH - 3)
    assert len(tried) == CROWD


@pytest.mark.parametrize("encoding", ["json", "msgpack"])
async def test_a_tenant_that_is_full_is_refused_in_few_turns_and_no_other_with_it(
    cell: Cell, desk: Desk, monkeypatch: pytest.MonkeyPatch, encoding: str
) -> None:
    """Only what says itself that it is that tenant's; cancellations and what is known already are taken as ever."""
    mine: Json = {"workflow": ONE, "tenant": "acme"}
    await send(cell, mine | {"id": "order-1"}, 1, encoding)
    await intake(desk)
    await cell.limits.set("workflows", 1, "acme")
    flood = await send(cell, mine, 10, encoding)
    talk = {"workflow": TEXT, "inputs": {"text": '"tenant": "acme"'}}
    others = await send(cell, talk, 1, encoding) + await send(cell, talk | {"tenant": "acme2"}, 1, encoding)
    again = await send(cell, mine | {"id": "order-1"}, 1, encoding)
    new = await send(cell, mine | {"id": "order-2"}, 1, encoding)
    await send(cell, {"cancel": "order-1", "tenant": "acme"}, 1, encoding)
    tried = counted(cell, monkeypatch)
    await intake(desk)
    found = await answers(cell, flood + new)
    assert [kind for kind, _ in found] == ["rejected"] * 11
    assert {told["error"].partition(";")[0] for _, told in found} == {"tenant acme runs 1 of 1 workflows"}
    assert [kind for kind, _ in await answers(cell, others + again)] == ["accepted"] * 3
    assert tried == [flood[0], *others, "order-1", "order-2"]
    mail = (await cell.inbox.begin([("order-1", -1)], 10))[0].mail
    assert [type(event).__name__ for event in mail] == ["Submitted", "CancelAsked"]
    assert await settled(cell)


async def test_a_small_limit_of_submissions_is_kept_also_where_few_wait(cell: Cell, desk: Desk) -> None:
    """The oldest go, until as many wait as may; a cancellation is carried out, the same workflow again is the same."""
    await send(cell, {"workflow": ONE, "id": "order-1"})
    await intake(desk)
    await cell.limits.set("submissions", 3)
    entries = await send(cell, {"workflow": ONE}, 5)
    await intake(desk)
    kinds = [(kind, told.get("error", "").partition(";")[0]) for kind, told in await answers(cell, entries)]
    refused = [("rejected", f"{count} submissions wait for an answer, of 3 at most") for count in (5, 4)]
    assert kinds == refused + [("accepted", "")] * 3
    await cell.limits.set("submissions", 0)
    (new,) = await send(cell, {"workflow": ONE})
    (again,) = await send(cell, {"workflow": ONE, "id": "order-1"})
    await send(cell, {"cancel": "order-1"})
    await intake(desk)
    assert [kind for kind, _ in await answers(cell, [new, again])] == ["rejected", "accepted"]
    mail = (await cell.inbox.begin([("order-1", -1)], 10))[0].mail
    assert [type(event).__name__ for event in mail] == ["Submitted", "CancelAsked"]
    assert await settled(cell)


TEXT = {"name": "one", "inputs": {"text": {"type": "string"}}, "stages": {"s": {"prompt": "say it"}}}
BIG = {"workflow": TEXT, "inputs": {"text": "x" * 1_000_000}}


@pytest.fixture
async def small(cell: Cell) -> AsyncIterator[Cell]:
    """Its server takes 54 MiB more than it holds: a tenth of it is more than what buffers take, which go again."""
    await cell.client.config_set("maxmemory", (await cell.client.info("memory"))["used_memory"] + (54 << 20))
    yield cell
    await cell.client.config_set("maxmemory", 0)


async def test_submissions_that_fill_the_servers_memory_are_refused_and_all_goes_on(small: Cell, desk: Desk) -> None:
    await send(small, {"workflow": ONE, "id": "order-1"})
    await intake(desk)
    await send(small, {"cancel": "order-1"})
    entries = await send(small, BIG | {"id": "mine"})
    with suppress(StoreUnavailable):
        for _ in range(BATCH):
            entries.append(await small.records.submit(BIG))
    assert CROWD < len(entries) < BATCH
    await intake(desk)
    found = await answers(small, entries)
    assert [kind for kind, _ in found] == ["rejected"] * len(entries)
    assert re.fullmatch(
        r"the server holds \d+ MiB, of \d+ MiB up to which it takes submissions; try again in [0-9.]+ s",
        found[0][1]["error"],
    )
    mail = (await small.inbox.begin([("order-1", -1)], 10))[0].mail
    assert [type(event).__name__ for event in mail] == ["Submitted", "CancelAsked"]
    new = await send(small, {"workflow": ONE}, CROWD)
    await intake(desk)
    assert [kind for kind, _ in await answers(small, new)] == ["accepted"] * CROWD
    assert await settled(small)
