"""What the store does while the server is full or has lost its data, and when incarnations of an instance overlap."""

import pytest

from common.errors import StoreUnavailable
from common.events import Outcome
from common.model import InstanceProfile
from common.settings import load
from common.store.cell import Cell
from common.store.client import connect_sync, translated
from common.store.embedded import EmbeddedServer
from common.store.queues import Room, Seat
from coordinator.desk import Desk
from coordinator.loops.completions import completions
from coordinator.loops.intake import intake
from coordinator.service import look_at_server

PROFILE = InstanceProfile("test", 1000.0, 0.03, 0.005, 1e-7, 1000)
ROOM = Room(1, 1000, 1000)


async def join(cell: Cell) -> Seat:
    return Seat("a", await cell.instances.register("a", PROFILE, ["default"], [], []), "a/1")


async def dispatched(cell: Cell) -> Seat:
    """A workflow whose one request is in the queue of this seat."""
    seat, desk = await join(cell), Desk(cell, load(policy="hexgen"))
    await cell.records.submit({"workflow": {"name": "one", "stages": {"s": {"prompt": "say it"}}}})
    await intake(desk)
    await completions(desk)
    return seat


async def test_leases_are_renewed_on_a_full_server(cell: Cell) -> None:
    seat = await dispatched(cell)
    (held,) = await cell.queues.claim(seat, "c", 1, ROOM)
    await cell.client.config_set("maxmemory", 1)
    try:
        with pytest.raises(StoreUnavailable):
            await cell.records.submit({"workflow": "chain"})
        assert await cell.queues.renew(seat, 60_000, [(held.request, held.token)]) == ("ready", [])
    finally:
        await cell.client.config_set("maxmemory", 0)
    assert await cell.queues.reap(0, 3) == []


@pytest.mark.parametrize("how", ["read", "take over", "forget"])
async def test_whoever_reads_makes_the_group_of_a_server_that_has_lost_its_data(cell: Cell, how: str) -> None:
    await cell.client.delete(cell.keys.submissions, cell.keys.completions)
    if how == "read":
        assert await cell.inbox.read(cell.keys.submissions, "c1", 10) == []
    elif how == "take over":
        assert await cell.inbox.stale(cell.keys.submissions, 0) == []
    else:
        await cell.inbox.forget_consumers(0)
    entry = await cell.records.submit({"workflow": "chain"})
    assert [name for name, _ in await cell.inbox.read(cell.keys.submissions, "c1", 10)] == [entry]


async def test_a_later_incarnations_leave_keeps_the_load_an_earlier_one_still_holds(cell: Cell) -> None:
    (held,) = await cell.queues.claim(await dispatched(cell), "c", 60_000, ROOM)
    assert await cell.instances.remove("a", (await join(cell)).epoch)
    await join(cell)
    assert (await cell.instances.backlogs())["a"] > 0
    assert await cell.queues.finish([(held.request, held.token, Outcome("late"))]) == [True]
    assert (await cell.instances.backlogs())["a"] == 0


async def test_a_server_without_tls_is_told_from_one_that_is_away(server: EmbeddedServer, cell: Cell) -> None:
    async def connections() -> int:
        return int((await cell.client.info("stats"))["total_connections_received"])

    url = server.url.replace("redis://", "rediss://") + "?socket_connect_timeout=0.3&socket_timeout=0.3"
    opened, sync, before = Cell.open(url, "any"), connect_sync(url), await connections()
    with pytest.raises(StoreUnavailable, match=r"no answer in TLS from 127\.0\.0\.1.*one without is redis://"):
        await opened.records.counts()
    with pytest.raises(StoreUnavailable, match=r"no answer in TLS from 127\.0\.0\.1"), translated():
        sync.ping()
    assert await connections() - before == 2  # each in one try
    await opened.close()
    sync.close()


async def test_settings_that_lose_workflows_are_told_once_each(cell: Cell, caplog: pytest.LogCaptureFixture) -> None:
    async def told() -> list[str]:
        caplog.clear()
        await look_at_server(cell)
        return [record.getMessage() for record in caplog.records]

    assert await told() == []
    await cell.client.config_set("maxmemory-policy", "allkeys-lru")
    await cell.client.config_set("appendonly", "no")
    try:
        policy, aof = await told()
    finally:
        await cell.client.config_set("maxmemory-policy", "noeviction")
        await cell.client.config_set("appendonly", "yes")
    assert "maxmemory-policy allkeys-lru" in policy
    assert "set appendonly to yes" in aof
    assert await told() == []


async def test_a_server_that_does_not_tell_its_settings_stops_nobody(
    server: EmbeddedServer, cell: Cell, caplog: pytest.LogCaptureFixture
) -> None:
    await cell.client.execute_command("ACL", "SETUSER", "mute", "on", ">pw", "allkeys", "allcommands", "-info")
    limited = Cell.open(f"redis://mute:pw@127.0.0.1:{server.port}/0", cell.keys.namespace)
    await look_at_server(limited)
    assert "so nobody checks here" in caplog.text
    await limited.close()
    await cell.client.execute_command("ACL", "DELUSER", "mute")
