"""What tool workers offer, and what becomes of their queue when none is left. No tool worker here, only its word."""

from collections.abc import Callable

import pytest

from common import settings
from common.store.cell import Cell
from common.store.client import connect_sync
from common.store.offers import Offer
from coordinator.desk import Desk
from coordinator.loops.completions import completions
from coordinator.loops.intake import intake
from coordinator.loops.recoverer import recoverer

WORKFLOW = {"name": "one", "stages": {"s": {"tool": "t"}}}
Offers = Callable[..., Offer]


@pytest.fixture
def offer(cell: Cell) -> Offers:
    connection = connect_sync(cell.url)

    def make(worker: str, *tools: str, keep_ms: int = 60_000) -> Offer:
        made = Offer(connection, cell.keys, worker, tools, keep_ms)
        made.renew()
        return made

    return make


async def queued(cell: Cell) -> tuple[Desk, str]:
    """A workflow whose tool request is in the queue."""
    desk = Desk(cell, settings.load(lease_s=0.5, redis_url=cell.url, namespace=cell.keys.namespace))
    workflow = await cell.records.submit({"workflow": WORKFLOW})
    await intake(desk)
    await completions(desk)
    assert await cell.client.zcard(cell.keys.queue("tools")) == 1
    return desk, workflow


async def reasons(cell: Cell, workflow: str) -> list[str]:
    found = await cell.records.look({workflow: "0"}, 0.01)
    return [data["reason"] for _, _, kind, data in found if kind == "waiting"]


async def test_an_offer_counts_until_it_is_found_silent_or_withdrawn(cell: Cell, offer: Offers) -> None:
    first, silent = offer("a", "t", "u"), offer("b", "t", keep_ms=0)
    offer("c")
    assert await cell.offers.all() == {"a": {"t", "u"}, "b": {"t"}, "c": frozenset()}
    assert await cell.offers.forget_silent() == 1
    assert set(await cell.offers.all()) == {"a", "c"}
    silent.renew()
    first.withdraw()
    assert set(await cell.offers.all()) == {"b", "c"}


async def test_an_offer_renewed_is_one_and_the_same(cell: Cell, offer: Offers) -> None:
    offer("a", "t", keep_ms=0)
    offer("a", "t")
    assert await cell.offers.forget_silent() == 0
    assert await cell.client.zcard(cell.keys.offers) == 1


async def test_an_offer_is_renewed_on_a_full_server(cell: Cell, offer: Offers) -> None:
    made = offer("a", "t", keep_ms=0)
    await cell.client.config_set("maxmemory", 1)
    try:
        made.renew()
    finally:
        await cell.client.config_set("maxmemory", 0)


async def test_when_the_last_tool_worker_is_silent_its_queue_waits_and_says_so(cell: Cell, offer: Offers) -> None:
    offer("a", "t", keep_ms=0)
    desk, workflow = await queued(cell)
    await recoverer(desk)
    # The server may have come back just now: everybody has the time of a lease to be heard.
    assert set(await cell.offers.all()) == {"a"}
    assert await cell.client.zcard(cell.keys.queue("tools")) == 1
    while await cell.client.zcard(cell.keys.queue("tools")):
        await recoverer(desk)
    desk.refresh()
    await completions(desk)
    assert await reasons(cell, workflow) == ["no tool worker is running"]
    assert (await cell.instances.backlogs())["tools"] == 0


async def test_while_one_is_left_the_queue_is_left_alone(cell: Cell, offer: Offers) -> None:
    offer("a", "t", keep_ms=0)
    offer("b", "t")
    desk, workflow = await queued(cell)
    while len(await cell.offers.all()) == 2:
        await recoverer(desk)
    await recoverer(desk)
    assert await cell.client.zcard(cell.keys.queue("tools")) == 1
    assert await reasons(cell, workflow) == []


async def test_tool_workers_are_shown_beside_the_instances(cell: Cell, offer: Offers) -> None:
    assert await cell.offers.describe() == []
    offer("a", "t", "u")
    desk, _ = await queued(cell)
    (shown,) = await desk.cell.offers.describe()
    assert (shown["instance"], shown["status"], shown["models"], shown["queued"]) == ("a", "ready", ["t", "u"], 1)
    assert shown["backlog_s"] > 0
