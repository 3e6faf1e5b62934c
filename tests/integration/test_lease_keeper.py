"""The thread that keeps leases alive, on a real server: for as long as there is somebody to keep them for."""

import asyncio
import threading
from typing import Any

import pytest
from operations_bench import PROFILE

from common.errors import StoreUnavailable
from common.store.cell import Cell
from common.store.embedded import EmbeddedServer
from common.store.queues import Queues, Seat
from workers import lease
from workers.lease import LeaseKeeper


async def test_leases_are_kept_whatever_goes_wrong_once(
    server: EmbeddedServer,
    cell: Cell,
    namespace: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    again = threading.Event()
    renew, faults = Queues.renew, [ValueError("nobody thought of this"), TypeError("nor of this")]

    async def renew_at_last(*args: Any) -> Any:
        if faults:
            raise faults.pop()
        again.set()
        return await renew(*args)

    monkeypatch.setattr(Queues, "renew", renew_at_last)
    seat = Seat("a", await cell.instances.register("a", PROFILE, ["m"], [], []), "a/1")
    leases = LeaseKeeper(server.url, seat, namespace, 150, on_gone=lambda _: None, on_seat_lost=lambda _: None)
    leases.start()
    assert await asyncio.to_thread(again.wait, 20)
    await leases.ended()
    assert "leases could not be renewed" in caplog.text


async def test_a_store_that_is_away_is_asked_as_often_as_leases_are_renewed(
    server: EmbeddedServer, cell: Cell, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long it was away: once it is back, nobody's lease is taken for one lease, and no longer."""
    asked = threading.Semaphore(0)

    async def away(*args: Any) -> Any:
        asked.release()
        raise StoreUnavailable("it is away")

    monkeypatch.setattr(Queues, "renew", away)
    monkeypatch.setattr(lease, "pause_s", lambda failures: 30.0)
    seat = Seat("a", await cell.instances.register("a", PROFILE, ["m"], [], []), "a/1")
    leases = LeaseKeeper(server.url, seat, namespace, 150, on_gone=lambda _: None, on_seat_lost=lambda _: None)
    leases.start()
    for _ in range(3):
        assert await asyncio.to_thread(asked.acquire, timeout=20)
    await leases.ended()


async def test_a_main_loop_that_hangs_renews_nothing_until_it_goes_on(
    server: EmbeddedServer, cell: Cell, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    renewed, again = [0], threading.Event()
    renew = Queues.renew

    async def counted(*args: Any) -> Any:
        renewed[0] += 1
        again.set()
        return await renew(*args)

    monkeypatch.setattr(Queues, "renew", counted)
    monkeypatch.setattr(lease, "HANGS_S", 0.2)
    seat = Seat("a", await cell.instances.register("a", PROFILE, ["m"], [], []), "a/1")
    leases = LeaseKeeper(server.url, seat, namespace, 60, on_gone=lambda _: None, on_seat_lost=lambda _: None)
    leases.start()
    assert await asyncio.to_thread(again.wait, 20)
    threading.Event().wait(0.5)  # this loop has no turn
    before = renewed[0]
    threading.Event().wait(0.2)
    assert renewed[0] == before
    again.clear()
    assert await asyncio.to_thread(again.wait, 20)
    await leases.ended()
