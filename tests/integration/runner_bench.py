"""What the tests of a worker share: an engine whose calls end when told to, and one instance and its workflow."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import suppress
from typing import Any

from common.enginefit import Iteration
from common.model import InstanceProfile, LlmCall, Node, Push, Sampling, Usage
from common.store.cell import Cell
from common.store.inbox import Commit
from common.store.queues import Seat
from workers.engines.protocol import Chunk, EngineCall, EngineError, EngineInfo, EngineLoad, Progress
from workers.lease import LeaseKeeper
from workers.observer import Observer
from workers.runner import Runner

PROFILE = InstanceProfile("gated", 1000.0, 0.01, 0.001, 1e-7, kv_tokens=1000, max_batch=2, chunk_tokens=512)


class GatedEngine:
    """Answers each call when its gate is opened; prompts that begin with "fail" fail."""

    def __init__(self) -> None:
        self.gates: dict[str, asyncio.Event] = {}
        self.aborted: list[str] = []
        self.running = 0
        self.most = 0
        self.dead = False
        self.recovers = False
        self.started = asyncio.Event()
        self.changed = asyncio.Event()

    async def until(self, holds: Callable[["GatedEngine"], bool]) -> None:
        while not holds(self):
            self.changed.clear()
            await self.changed.wait()

    async def start(self) -> EngineInfo:
        return EngineInfo(("m",), PROFILE, frozenset())

    async def generate(self, call: EngineCall) -> AsyncGenerator[Chunk, None]:
        self.running += 1
        self.changed.set()
        self.most = max(self.most, self.running)
        gate = self.gates.setdefault(call.request_id, asyncio.Event())
        self.started.set()
        try:
            if self.dead:
                raise EngineError("the engine is dead")
            if call.call.text().startswith("fail"):
                raise EngineError("the engine is out of luck", retryable=False)
            if call.call.text().startswith("too long"):
                raise EngineError("the prompt is too long", retryable=False, prompt_tokens=1234)
            yield Chunk("half ")
            if call.call.text().startswith("deaf"):
                with suppress(asyncio.CancelledError):  # as `asyncio.wait_for` of Python 3.11 swallows one at times
                    await gate.wait()
            await gate.wait()
            if self.dead:
                raise EngineError("the engine is dead")
            yield Chunk("whole", "stop", Usage(10, 2, 0))
        except (asyncio.CancelledError, GeneratorExit):
            self.aborted.append(call.request_id)
            raise
        finally:
            self.running -= 1
            self.changed.set()

    async def abort(self, request_id: str) -> None:
        self.aborted.append(request_id)

    def load(self) -> EngineLoad:
        return EngineLoad(self.running, 0, 100 * self.running)

    def progress(self) -> Mapping[str, Progress]:
        return {}

    def listen(self, heard: Callable[[Iteration], None]) -> None:
        self.heard = heard

    async def health(self) -> None:
        if self.dead:
            self.dead = not self.recovers
            raise EngineError("the engine is dead")

    async def close(self) -> None: ...


class Bench:
    """One instance under test and a workflow whose requests it gets."""

    def __init__(self, cell: Cell, engine: GatedEngine, runner: Runner, seat: Seat) -> None:
        self.cell, self.engine, self.runner, self.seat = cell, engine, runner, seat
        self.stop = asyncio.Event()
        self.version = 0
        self.serving: asyncio.Task[None]
        self.leases: LeaseKeeper
        self.observer: Observer

    async def push(self, *prompts: str, **changes: Any) -> None:
        pushes = []
        for number, prompt in enumerate(prompts, changes.get("first", 0)):
            name = f"r{number}"
            call = LlmCall(prompt, None, None, Sampling(**changes.get("sampling", {})))
            limits = (changes.get("timeout_s", 30.0), changes.get("stream", False))
            pushes.append(Push(name, f"s{number}", "a", number, 10, 100, 99, 10, call, "w/s", *limits))
        nodes = {push.node: Node("running", request=push.request, phase="queued") for push in pushes}
        seen = (await self.cell.inbox.begin([("w1", self.version)], 1))[0].seen
        made = Commit("w1", "", self.version, 1, "json", nodes=nodes, pushes=pushes, seen=seen)
        self.version = (await self.cell.inbox.commit([made]))[0].version

    async def mail(self, count: int) -> list[Any]:
        """The workflow's mail, once there is that much of it."""
        while True:
            found = (await self.cell.inbox.begin([("w1", -1)], 100))[0].mail
            if len(found) >= count:
                return found
            await asyncio.sleep(0.01)
