"""A cell with many live workflows whose requests all wait: what it holds, and whether work in it stays as fast.

A real coordinator process fills the cell. Then, alone with it, rounds of real work are timed: a workflow comes, and as
many requests as it has are planned, claimed, completed and stepped, so that the cell stays as full as it was. In turn
with it are an empty cell, and one with a few workflows, where a look at the line has as much to show.
"""

import asyncio
import json
import os
import statistics
import time
from collections import defaultdict
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import redis

from common.events import Outcome
from common.model import LINE, InstanceProfile
from common.settings import Settings
from common.store.cell import Cell
from common.store.embedded import EmbeddedServer
from common.store.keys import Keys
from common.store.limits import DEFAULTS
from common.store.queues import Room, Seat
from common.store.scripts import Call, Scripts, call_id, load
from coordinator.desk import Desk
from coordinator.language.compiler import compile_definition
from coordinator.loops.completions import completions
from coordinator.loops.intake import intake
from coordinator.loops.planner import Planner
from hexgen_flow.processes import Processes

FEW = 10
"""Workflows of the cell that is all but empty."""
WARM_UP = 10
"""Rounds that do not count."""
LEASE_S = 3600.0
SLO_S = 86400.0
FILL_S = 1800.0
IDLE_S = 3.0
PAGE = 500
SAMPLE = 100
INSTANCE = "slow"
MOST_RATIO = 2.0
OPERATIONS = ("accept", "begin_step", "claim", "commit_step", "complete", "place", "survey")
ALWAYS = OPERATIONS[:5]
"""Whatever the policy; only a line is surveyed and placed."""
ROOM = Room(requests=1, prefill_tokens=1 << 30, kv_tokens=1 << 30)
LOGGED = 1_000_000
SERVER_OPTIONS = ("--auto-aof-rewrite-percentage", "0", "--slowlog-max-len", str(LOGGED))
Figures = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Plan:
    """What to measure; prompt: characters of each."""

    workflows: int
    copies: int
    prompt: int
    tenants: int
    rounds: int
    policy: str

    def definition(self) -> Figures:
        """A workflow that asks for all its copies at once."""
        asked = {"for_each": list(range(self.copies)), "prompt": "{{ inputs.text }} part {{ item }}", "max_tokens": 64}
        text = {"text": {"type": "string"}}
        return {"name": "fan", "inputs": text, "stages": {"work": asked}, "output": "work.output"}

    def submission(self, tenant: int) -> Figures:
        inputs = {"text": "x" * self.prompt}
        return {"workflow": "fan", "inputs": inputs, "slo_s": SLO_S, "tenant": f"tenant-{tenant}"}

    def profile(self) -> InstanceProfile:
        """An instance that starts as many requests as a workflow has."""
        room = 1 << 30
        return InstanceProfile("slow", 1e4, 0.03, 0.005, 1e-7, room, room, max_batch=self.copies, chunk_tokens=room)


@dataclass(frozen=True, slots=True)
class Site:
    """A cell on a server of its own, and the instance at which nobody works but `Rounds`."""

    settings: Settings
    seat: Seat
    filled: Figures


def measure(plan: Plan, folder: Path) -> Figures:
    """Of each cell what was filled in and how long operations took; `against`: by how much longer in the full one."""
    with ExitStack() as servers:
        sites = {}
        for name, workflows in (("empty", 0), ("few", FEW), ("full", plan.workflows)):
            server = servers.enter_context(EmbeddedServer.start(folder / name, extra_args=SERVER_OPTIONS))
            settings = Settings(redis_url=server.url, namespace=name, policy=plan.policy, lease_s=LEASE_S)
            seat = asyncio.run(prepare(settings, plan))
            filled = fill(settings, plan, workflows, folder / name / "logs") if workflows else {}
            sites[name] = Site(settings, seat, filled)
        figures = asyncio.run(timed(sites, plan))
    figures["against"] = {
        name: {what: _ratios(figures["full"][what], figures[name][what]) for what in ("server_ms", "ms")}
        for name in ("empty", "few")
    }
    return figures


def faults(figures: Figures) -> list[str]:
    """Operations that take too long in the full cell, or that nobody measured, and work that was lost."""
    expected, measured = figures["empty"]["completed"], figures["against"]["few"]["server_ms"]
    found = [
        f"{name}: {figures[name]['completed']} requests completed, {expected} in the empty cell"
        for name in ("few", "full")
        if figures[name]["completed"] != expected
    ]
    found += [f"{name} was not measured" for name in ALWAYS if name not in measured]
    return found + [
        f"{name} takes {ratios['p50']} times as long in the full cell ({what})"
        for what, found in figures["against"]["few"].items()
        for name, ratios in found.items()
        if name in OPERATIONS and ratios["p50"] > MOST_RATIO
    ]


async def prepare(settings: Settings, plan: Plan) -> Seat:
    """The cell with its definition, room for all that comes, and one instance at which nobody works but `Rounds`."""
    async with Cell.opened(settings.redis_url, settings.namespace) as cell:
        await cell.inbox.prepare()
        await Desk(cell, settings, [compile_definition(plan.definition())]).own.register()
        for name in DEFAULTS:
            await cell.limits.set(name, 2 * (plan.workflows + FEW) * plan.copies)
        epoch = await cell.instances.register(INSTANCE, plan.profile(), ["default"], [], [])
        return Seat(INSTANCE, epoch, f"{INSTANCE}/1")


# -- filling


def fill(settings: Settings, plan: Plan, workflows: int, folder: Path) -> Figures:
    """Let a coordinator take so many workflows; what they hold, and what it does."""
    keys = Keys(settings.namespace)
    cell = {"HEXGEN_REDIS_URL": settings.redis_url, "HEXGEN_NAMESPACE": settings.namespace}
    rules = {"HEXGEN_POLICY": plan.policy, "HEXGEN_LEASE_S": str(LEASE_S)}
    with Processes(folder, cell | rules) as processes, redis.Redis.from_url(settings.redis_url) as store:
        before, began = _dataset(store), time.monotonic()
        pid = processes.start("coordinator", ["coordinator"])
        _submit(store, keys, plan, workflows)
        while (found := _held(store, keys)) != (workflows, workflows * plan.copies):
            processes.check()
            if time.monotonic() - began > FILL_S:
                raise TimeoutError(f"after {FILL_S:.0f} s there are {found[0]} workflows with {found[1]} requests")
            time.sleep(0.1)
        took_s, used = time.monotonic() - began, _dataset(store) - before
        request = _mean_bytes(store, [keys.request(name) for name in _waiting(store, keys)])
        busy_s = _cpu_s(pid)
        time.sleep(IDLE_S)
        return {
            "workflows": found[0],
            "requests": found[1],
            "workflows_per_s": round(workflows / took_s, 1),
            "dataset_bytes": used,
            "bytes_per_request": request,
            "bytes_per_workflow": round(used / workflows - request * plan.copies),
            "coordinator_rss_mb": _rss_mb(pid),
            "coordinator_cpu_share": round((_cpu_s(pid) - busy_s) / IDLE_S, 3),
        }


def _submit(store: Any, keys: Keys, plan: Plan, workflows: int) -> None:
    for first in range(0, workflows, PAGE):
        pipeline = store.pipeline(transaction=False)
        for number in range(first, min(first + PAGE, workflows)):
            pipeline.xadd(keys.submissions, {"json": json.dumps(plan.submission(number % plan.tenants))})
        pipeline.execute()


def _held(store: Any, keys: Keys) -> tuple[int, int]:
    """Live workflows and requests that wait."""
    return store.zcard(keys.live), sum(store.zcard(queue) for queue in _queues(store, keys))


def _queues(store: Any, keys: Keys) -> list[str]:
    lanes = [lane.decode() for lane in store.smembers(keys.lanes)]
    return [keys.queue(name) for name in (INSTANCE, LINE, *lanes)]


def _waiting(store: Any, keys: Keys) -> list[str]:
    """Some of the requests that wait."""
    found = [name for queue in _queues(store, keys) for name in store.zrange(queue, 0, SAMPLE - 1)]
    return [name.decode() for name in found[-SAMPLE:]]


def _mean_bytes(store: Any, names: Sequence[str]) -> int:
    found: list[int] = [store.memory_usage(name, samples=0) for name in names]
    return round(statistics.mean(found))


def _dataset(store: Any) -> int:
    return int(store.info("memory")["used_memory_dataset"])


def _rss_mb(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return round(pages * os.sysconf("SC_PAGE_SIZE") / 1e6, 1)


def _cpu_s(pid: int) -> float:
    """Seconds of CPU a process has had."""
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


# -- timing


class Rounds:
    """Work in a cell, by the code of coordinator and worker. `ms`: how long each kind of it took, each time."""

    def __init__(self, cell: Cell, settings: Settings, plan: Plan, seat: Seat) -> None:
        self._cell, self._plan, self._seat = cell, plan, seat
        self._desk = Desk(cell, settings)
        self._planner = Planner(self._desk)
        self._desk.others = {}  # no other coordinator is there
        self.begin()

    def begin(self) -> None:
        """Forget what was measured before."""
        self.ms: dict[str, list[float]] = defaultdict(list)
        self.completed = 0

    async def one(self, number: int) -> None:
        """A workflow of a new tenant comes, and as many requests as it has are done."""
        await self._cell.records.submit(self._plan.submission(self._plan.tenants + number))
        with _operations(self.ms):
            await self._took("intake", intake(self._desk))
            await self._took("first step", completions(self._desk))
            if self._desk.policy.late:
                await self._took("plan", self._planner.plan())
            for _ in range(self._plan.copies):
                await self._request()

    async def _request(self) -> None:
        for claim in await self._cell.queues.claim(self._seat, call_id(), int(1000 * LEASE_S), ROOM):
            await self._cell.queues.finish([(claim.request, claim.token, Outcome("done", INSTANCE))])
            await self._took("step", completions(self._desk))
            self.completed += 1

    async def _took(self, what: str, work: Awaitable[Any]) -> None:
        began = time.perf_counter()
        await work
        self.ms[what].append(1000 * (time.perf_counter() - began))


async def timed(sites: Mapping[str, Site], plan: Plan) -> Figures:
    """Times of operations, on the server and from here and back, and of what they are part of.

    The cells take turns: whatever else the machine does meanwhile, it does to all of them.
    """
    async with AsyncExitStack() as cells:
        found = {}
        for name, site in sites.items():
            cell = await cells.enter_async_context(Cell.opened(site.settings.redis_url, site.settings.namespace))
            found[name] = (cell, Rounds(cell, site.settings, plan, site.seat))
        for number in range(WARM_UP + plan.rounds):
            for cell, rounds in found.values():
                if number == WARM_UP:
                    rounds.begin()
                    await cell.client.config_resetstat()
                    await cell.client.slowlog_reset()
                    await cell.client.config_set("slowlog-log-slower-than", 0)  # from now on it tells of all
                await rounds.one(number)
        return {name: sites[name].filled | await _told(*parts, plan.rounds) for name, parts in found.items()}


async def _told(cell: Cell, rounds: Rounds, count: int) -> Figures:
    stats = await cell.client.info("commandstats")
    names = {load(name).sha.encode(): name for name in OPERATIONS}
    server: dict[str, list[float]] = defaultdict(list)
    for entry in await cell.client.slowlog_get(LOGGED):
        name = names.get(entry["command"].partition(b" ")[2][:40])
        if name:
            server[name].append(entry["duration"] / 1000)
    return {
        "completed": rounds.completed,
        "commands_per_round": round(sum(found["calls"] for found in stats.values()) / count, 1),
        "server_ms": {name: _percentiles(took) for name, took in sorted(server.items())},
        "ms": {name: _percentiles(took) for name, took in sorted(rounds.ms.items())},
    }


@contextmanager
def _operations(ms: dict[str, list[float]]) -> Iterator[None]:
    """Meanwhile, how long each operation takes that is sent by itself, from here and back."""
    send = Scripts.try_many

    async def timed_send(scripts: Scripts, calls: Sequence[Call]) -> list[Any]:
        began = time.perf_counter()
        replies = await send(scripts, calls)
        if len(calls) == 1:
            ms[calls[0].script].append(1000 * (time.perf_counter() - began))
        return replies

    Scripts.try_many = timed_send  # type: ignore[assignment, method-assign]
    try:
        yield
    finally:
        Scripts.try_many = send  # type: ignore[method-assign]


def _percentiles(found: Sequence[float]) -> dict[str, float]:
    in_order = sorted(found)
    return {f"p{share}": round(in_order[min(len(in_order) - 1, len(in_order) * share // 100)], 3) for share in (50, 99)}


def _ratios(full: Mapping[str, dict[str, float]], other: Mapping[str, dict[str, float]]) -> dict[str, dict[str, float]]:
    return {
        name: {share: round(full[name][share] / other[name][share], 2) for share in full[name]}
        for name in full
        if name in other
    }
