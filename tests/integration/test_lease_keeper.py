"""The thread that keeps leases alive, on a real server: for as long as there is somebody to keep them for."""

import asyncio
import threading
from typing import Any

import pytest
from operations_bench import PROFILE

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
