"""What tenants are charged, on a real server: once a request, corrected at its end, never saved up while away."""

from dataclasses import replace

import pytest
from operations_bench import LEASE_MS, ROOM, accept, commit, join, push

from common.errors import AttemptFailed
from common.events import Outcome
from common.model import LINE, Node, Push, Usage
from common.policy.fairness import price
from common.store.cell import Cell
from common.store.inbox import End
from common.store.instances import IDLE_TENANTS
from common.store.queues import Seat


def paid(request: str, node: str, tenant: str, tokens: int) -> Push:
    return push(request, node, tenant=tenant, price=tokens)


async def running(cell: Cell, *pushes: Push) -> Seat:
    seat = await join(cell)
    await accept(cell)
    await commit(cell, 0, 1, nodes={p.node: Node("running", request=p.request) for p in pushes}, pushes=pushes)
    return seat


async def test_a_request_is_charged_once_and_corrected_at_its_end(cell: Cell) -> None:
    seat = await running(cell, paid("r1", "s", "acme", 300), paid("r2", "t", "other", 50), push("r3", "u"))
    assert await cell.instances.shares() == ({"acme": 300, "other": 350}, {"acme", "other"})
    claims = {claim.request: claim for claim in await cell.queues.claim(seat, "c1", LEASE_MS, ROOM)}
    await cell.queues.finish([("r1", claims["r1"].token, AttemptFailed("no"))])
    await commit(cell, 1, 1, pushes=[paid("r1", "s", "acme", 400)])
    assert (await cell.instances.shares())[0]["acme"] == 300
    (again,) = await cell.queues.claim(seat, "c2", LEASE_MS, ROOM)
    usage = Usage(prompt_tokens=100, output_tokens=7)
    await cell.queues.finish([("r1", again.token, Outcome("x", usage=usage)), ("r2", claims["r2"].token, Outcome("x"))])
    assert await cell.instances.shares() == ({"acme": price(100, 7, 1.0), "other": 350}, set())


async def test_a_new_tenant_costs_as_much_whoever_else_is_there(cell: Cell) -> None:
    await running(cell)
    costs, version = [], 1
    for others in (2, 200):
        crowd = [paid(f"{others}-{n}", f"s{n}", f"tenant-{others}-{n}", n) for n in range(others)]
        assert await commit(cell, version, pushes=crowd) == 1
        before = await _commands(cell)
        assert await commit(cell, version + 1, pushes=[paid(f"new-{others}", "s", f"new-{others}", 1)]) == 1
        costs.append(await _commands(cell) - before)
        version += 2
    assert costs[0] == costs[1]


async def _commands(cell: Cell) -> int:
    """How many the server has carried out, those of operations counted."""
    return sum(found["calls"] for found in (await cell.client.info("commandstats")).values())


async def test_a_tenant_that_comes_back_has_saved_nothing_up(cell: Cell) -> None:
    await running(cell, paid("r1", "s", "busy", 900), paid("r2", "t", "idle", 10))
    await commit(cell, 1, 0, pushes=[paid("r3", "u", "new", 5)])
    assert (await cell.instances.shares())[0] == {"busy": 900, "idle": 910, "new": 905}


@pytest.mark.parametrize("status", ["cancelled", "failed"])
async def test_what_is_dropped_is_no_longer_outstanding(cell: Cell, status: str) -> None:
    seat = await running(cell, paid("r1", "s", "acme", 300), push("r2", "t"), paid("r3", "u", "acme", 50))
    assert [c.request for c in await cell.queues.claim(seat, "c1", LEASE_MS, replace(ROOM, requests=1))] == ["r1"]
    await commit(cell, 1, 0, drops=["r1", "r2", "r3"], end=End(status, {}, 60_000), broken=status == "failed")
    assert await cell.instances.shares() == ({"acme": 300}, set())  # what never ran costs nothing
    assert await cell.client.exists(*map(cell.keys.request, ("r1", "r2", "r3"))) == 0


@pytest.mark.parametrize("how", ["evacuate", "unplace", "release", "fail", "reap", "dead"])
async def test_a_request_of_a_workflow_that_has_ended_is_forgotten_when_it_comes_back(cell: Cell, how: str) -> None:
    seat = await join(cell)
    await accept(cell)
    asked = push("r1", "s", LINE if how == "unplace" else "a", tenant="acme", price=300)
    await commit(cell, 0, 1, pushes=[asked])
    claims = await cell.queues.claim(seat, "c1", LEASE_MS, ROOM) if how not in ("evacuate", "unplace") else []
    await commit(cell, 1, 0, end=End("failed", {}, 60_000))  # its state could not be read: nobody knows of r1
    held = [("r1", claim.token) for claim in claims]
    if how == "evacuate":
        await cell.instances.evacuate("a", "lost")
    elif how == "unplace":
        await cell.line.give_back(["r1"])
    elif how == "release":
        await cell.queues.release(held)
    elif how == "fail":
        await cell.queues.finish([(*held[0], AttemptFailed("no"))])
    else:
        await cell.client.zadd(cell.keys.leases, {"r1": 0})
        await cell.queues.reap(0, 1 if how == "dead" else 3)
    assert (await cell.instances.shares())[1] == set()
    assert await cell.client.exists(cell.keys.request("r1")) == 0


async def test_tenants_that_would_be_lifted_anyway_are_forgotten(cell: Cell) -> None:
    seat = await running(
        cell, paid("r1", "s", "gone", 100), paid("r2", "t", "busy", 500), paid("r3", "u", "owing", 900)
    )
    claims = await cell.queues.claim(seat, "c1", LEASE_MS, ROOM)
    ended = [(claim.request, claim.token, Outcome("x")) for claim in claims if claim.request != "r2"]
    await cell.queues.finish(ended)
    before, _ = await cell.instances.shares()
    await cell.instances.forget_tenants()
    assert (await cell.instances.shares())[0] == {name: before[name] for name in ("busy", "owing")}
    await commit(cell, 1, 0, drops=["r2"], end=End("cancelled", {}, 60_000))
    await cell.instances.forget_tenants()
    assert await cell.instances.shares() == ({}, set())


async def test_of_tenants_that_are_away_a_thousand_at_most_are_remembered_who_were_served_most(cell: Cell) -> None:
    await running(cell, paid("r1", "s", "busy", 5))
    away = {f"t{number}": 100 + number for number in range(IDLE_TENANTS + 3)}
    await cell.client.zadd(cell.keys.shares, away)
    assert await cell.instances.forget_tenants() == 3
    charged, _ = await cell.instances.shares()
    assert charged == {"busy": 5} | {name: tokens for name, tokens in away.items() if tokens >= 103}
