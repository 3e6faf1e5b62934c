"""What the tests of the Lua operations share: a workflow, an instance, requests. Not a test itself."""

from typing import Any

from common import wire
from common.model import Head, InstanceProfile, LlmCall, Node, Push, Sampling, Slo
from common.store.cell import Cell
from common.store.inbox import Commit
from common.store.limits import Full
from common.store.queues import Room, Seat

PROFILE = InstanceProfile("test", 1000.0, 0.03, 0.005, 1e-7, 1000)
ROOM = Room(requests=8, prefill_tokens=10_000, kv_tokens=10_000, empty=True)
LEASE_MS = 60_000


async def submitted(cell: Cell) -> str:
    """The id of an entry on the stream of submissions."""
    return (await cell.client.xadd(cell.keys.submissions, {"json": "{}"})).decode()


async def accept(cell: Cell, workflow: str = "w1", digest: str = "d1", entry: str = "") -> str | Full:
    """Of an entry of its own, if none is named."""
    entry = entry or await submitted(cell)
    head = Head("acme", "chain", "def1", {"x": 1}, Slo(1_000, 61_000))
    return await cell.inbox.accept(workflow, entry, digest, head, wire.pack({"name": "chain"}), 60_000)


async def join(cell: Cell, instance: str = "a") -> Seat:
    epoch = await cell.instances.register(instance, PROFILE, ["m"], ["fast"], ["chat"])
    return Seat(instance, epoch, f"{instance}/p1")


def push(request: str, node: str, instance: str = "a", **changes: Any) -> Push:
    call = LlmCall(f"prompt of {node}", None, None, Sampling())
    fields: dict[str, Any] = {
        "request": request, "node": node, "instance": instance, "offset_ms": 0, "load_ms": 100, "budget_ms": 500,
        "deadline_at": 61_000, "prompt_tokens": 10, "call": call, "stage": f"chain/{node}", "timeout_s": 5.0,
        "stream": False,
    }  # fmt: skip
    return Push(**(fields | changes))


async def commit(
    cell: Cell, version: int, handled: int = 0, entry: str = "", workflow: str = "w1", **parts: Any
) -> int:
    """Let a step take effect that was computed after so many other ones of this workflow (version)."""
    seen = _VERSIONS.setdefault(cell.keys.workflow(workflow), [])
    now = await version_of(cell, workflow)
    if now not in seen:
        seen.append(now)
    found = (await cell.inbox.begin([(workflow, -1)], handled))[0].seen
    made = Commit(workflow, entry, seen[version], handled, "json", seen=found, **parts)
    return (await cell.inbox.commit([made]))[0].state


_VERSIONS: dict[str, list[int]] = {}
"""Those that were met, by the key of the workflow."""


async def version_of(cell: Cell, workflow: str = "w1") -> int:
    """The version it has now."""
    return int(await cell.client.hget(cell.keys.workflow(workflow), "version") or 0)


async def mail(cell: Cell, workflow: str = "w1") -> list[Any]:
    return (await cell.inbox.begin([(workflow, -1)], 100))[0].mail


async def queued(cell: Cell, instance: str = "a") -> list[str]:
    return [name.decode() for name in await cell.client.zrange(cell.keys.queue(instance), 0, -1)]


async def dispatched(cell: Cell, *pushes: Push) -> Seat:
    """A running workflow with these requests in the queue of instance a."""
    seat = await join(cell)
    await accept(cell)
    nodes = {p.node: Node("running", request=p.request, phase="queued") for p in pushes}
    assert await commit(cell, 0, 1, nodes=nodes, pushes=pushes) == 1
    return seat
