"""A real engine whose core stands still, on a real server: what it had is given back, and it comes back by itself."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from cores import MODEL, cores

from common import wire
from common.events import Completed, Evacuated, Event
from common.model import Head, LlmCall, Node, Push, Sampling, Slo
from common.store.cell import Cell
from common.store.embedded import EmbeddedServer
from common.store.inbox import Commit
from common.store.queues import Loss, Seat
from workers.engines.protocol import EngineInfo
from workers.engines.vllm_engine import VllmEngine
from workers.lease import LeaseKeeper
from workers.observer import Observer
from workers.runner import Runner, run_until

LEASE_MS = 60_000
STALL_S = 5.0

pytestmark = [
    pytest.mark.vllm,
    # What vLLM imports warns about its own; ours stay errors.
    pytest.mark.filterwarnings(r"ignore::DeprecationWarning:torch(\.|$)"),
]


class Bench:
    """The engine as the instance a of a cell."""

    def __init__(self, cell: Cell, engine: VllmEngine) -> None:
        self.cell, self.engine = cell, engine
        self.lost: list[Loss] = []

    async def mail(self, workflow: str) -> list[Event]:
        return (await self.cell.inbox.begin([(workflow, -1)], 100))[0].mail

    async def ask(self, workflow: str, max_tokens: int) -> None:
        """A workflow with two calls in the queue of the instance."""
        head = Head("t", "w", "d", {}, Slo(0, 1))
        entry = (await self.cell.client.xadd(self.cell.keys.submissions, {"json": "{}"})).decode()
        await self.cell.inbox.accept(workflow, entry, "d", head, wire.pack({}), 60_000)
        call = LlmCall("Once upon a time there was a database that", None, None, Sampling(max_tokens=max_tokens))
        names = [(f"{workflow}-{number}", f"s{number}") for number in range(2)]
        pushes = [Push(name, node, "a", 0, 10, 100, 99, 10, call, "w/s", 600.0, stream=False) for name, node in names]
        nodes = {node: Node("running", request=name, phase="queued") for name, node in names}
        look = (await self.cell.inbox.begin([(workflow, -1)], 1))[0]
        made = Commit(workflow, "", look.version, 1, "json", nodes=nodes, pushes=pushes, seen=look.seen)
        await self.cell.inbox.commit([made])

    async def are_under_way(self) -> bool:
        calls = self.engine.progress().values()
        return len(calls) == 2 and all(one.generated_tokens > 2 for one in calls)

    async def are_lost(self) -> bool:
        self.lost += await self.cell.queues.reap(0, 3) or []
        return len(self.lost) == 2

    async def is_in(self, status: str) -> bool:
        return (await self.cell.instances.all())[0].status == status

    async def are_answered(self, workflow: str) -> bool:
        return len(await self.mail(workflow)) == 2


@pytest.fixture
async def engine() -> AsyncIterator[tuple[VllmEngine, EngineInfo]]:
    made = VllmEngine(("small",), ["--model", str(MODEL), "--max-model-len", "2048"])
    yield made, await made.start()
    await made.close()


@pytest.fixture
async def bench(
    server: EmbeddedServer, cell: Cell, namespace: str, engine: tuple[VllmEngine, EngineInfo]
) -> AsyncIterator[Bench]:
    made, info = engine
    seat = Seat("a", await cell.instances.register("a", info.profile, info.models, [], info.features), "a/1")
    runner = Runner(cell, made, Observer(made, info), seat, LEASE_MS, STALL_S)
    gone: list[str] = []
    leases = LeaseKeeper(server.url, seat, namespace, LEASE_MS, on_gone=gone.append, on_seat_lost=lambda _: None)
    runner.attach(leases)
    leases.start()
    stop = asyncio.Event()
    serving = asyncio.create_task(run_until(runner, stop, 0.0))
    yield Bench(cell, made)
    stop.set()
    await serving
    await leases.ended()


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(120):
        while not await holds():  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def test_a_core_that_stands_still_is_left_until_it_goes_on(bench: Bench) -> None:
    (core,) = cores(os.getpid())
    await bench.ask("first", max_tokens=1500)
    await until(bench.are_under_way)
    os.kill(core, signal.SIGSTOP)
    try:
        await until(lambda: bench.is_in("stalled"))
        await bench.engine.health()  # it says that it is well
        await until(bench.are_lost)
    finally:
        os.kill(core, signal.SIGCONT)
    assert [(one.workflow, one.losses, one.engine) for one in bench.lost] == [("first", 1, "stalled")] * 2
    assert [type(event) for event in await bench.mail("first")] == [Evacuated] * 2
    await until(lambda: bench.is_in("ready"))
    await bench.ask("second", max_tokens=5)
    await until(lambda: bench.are_answered("second"))
    assert [type(event) for event in await bench.mail("second")] == [Completed] * 2
    assert bench.engine.load().running == 0
