"""What a worker at work publishes, and when it claims, on a real server with the simulated engine."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from operations_bench import submitted

from common import wire
from common.errors import StoreUnavailable
from common.events import Failed
from common.model import Head, InstanceLoad, LlmCall, Node, Push, Sampling, Slo
from common.prefix import HASH_BYTES, chain
from common.profiles import PROFILES
from common.store.cell import Cell
from common.store.embedded import EmbeddedServer
from common.store.inbox import Commit
from common.store.instances import Instances
from common.store.queues import Seat
from workers import publisher
from workers.engines.responders import Echo
from workers.engines.simulated import SimulatedEngine
from workers.lease import LeaseKeeper
from workers.observer import Observer
from workers.runner import Runner, run_until
from workers.shadow import PrefixShadow

PROFILE = replace(PROFILES["a100"], kv_tokens=40_000)
SCALE = 10.0
TURNS = 5000


class Bench:
    def __init__(self, cell: Cell, engine: SimulatedEngine, observer: Observer) -> None:
        self.cell, self.engine, self.observer = cell, engine, observer
        self.version = 0

    async def push(self, *prompts: str, output: int = 5) -> None:
        pushes = []
        for number, text in enumerate(prompts):
            call = LlmCall(text, None, None, Sampling(max_tokens=output))
            pushes.append(
                Push(
                    f"r{self.version}.{number}", f"s{self.version}.{number}", "a", number, 10, 100, 99, len(text) // 4,
                    call, "w/s", 30.0, False, chain(text), expected_tokens=output, slo_ms=60_000,
                )
            )  # fmt: skip
        nodes = {push.node: Node("running", request=push.request, phase="queued") for push in pushes}
        version = (await self.cell.inbox.begin([("w1", -1)], 1))[0].version
        assert await self.cell.inbox.commit([Commit("w1", "", version, 0, "json", nodes=nodes, pushes=pushes)])
        self.version += 1

    async def load(self, holds: Callable[[InstanceLoad], bool]) -> InstanceLoad:
        """The load published, once it is like this."""
        for _ in range(TURNS):
            load = (await self.cell.instances.loads(["a"])).get("a")
            if load is not None and holds(load):
                return load
            await asyncio.sleep(0.002)
        raise AssertionError("it was never published")

    async def done(self, count: int) -> None:
        for _ in range(TURNS):
            if len((await self.cell.inbox.begin([("w1", -1)], 100))[0].mail) > count:
                return
            await asyncio.sleep(0.002)
        raise AssertionError("not all have ended")


@pytest.fixture
async def bench(server: EmbeddedServer, cell: Cell, namespace: str) -> AsyncIterator[Bench]:
    engine = SimulatedEngine(PROFILE, responder=Echo(400), models=("m",), time_scale=SCALE)
    info = await engine.start()
    head = Head("t", "w", "d", {}, Slo(0, 1))
    await cell.inbox.accept("w1", await submitted(cell), "x", head, wire.pack({}), 60_000)
    seat = Seat("a", await cell.instances.register("a", info.profile, ["m"], [], []), "a/1")
    observer = Observer(engine, info)
    runner = Runner(cell, engine, observer, seat, 30_000)
    leases = LeaseKeeper(server.url, seat, namespace, 30_000, on_gone=lambda _: None, on_seat_lost=lambda _: None)
    runner.attach(leases)
    leases.start()
    stop = asyncio.Event()
    serving = asyncio.create_task(run_until(runner, stop, 0.0))
    yield Bench(cell, engine, observer)
    stop.set()
    await serving
    await leases.ended()
    await engine.close()


async def test_an_idle_worker_tells_what_its_engine_is(bench: Bench) -> None:
    load = await bench.load(lambda _: True)
    assert load.prefill_tokens_per_s == pytest.approx(SCALE * PROFILE.prefill_tokens_per_s)
    assert load.step_s == pytest.approx(0.035 / SCALE)
    assert (load.kv_room, load.chunk_tokens, load.max_batch) == (40_000, 512, 64)
    assert (load.kv_tokens, load.unprefilled_tokens, load.running) == (0, 0, ())


async def test_a_worker_tells_what_runs_and_how_far_it_is(bench: Bench) -> None:
    await bench.push("x" * 8000, output=400)
    (call,) = (await bench.load(lambda load: bool(load.running))).running
    assert (call.request, call.prompt_tokens, call.expected_tokens, call.slo_ms) == ("r0.0", 2000, 400, 60_000)
    assert call.key_ms > 1_000_000_000_000
    load = await bench.load(lambda load: bool(load.running) and load.running[0].generated_tokens > 20)
    assert load.running[0].unprefilled_tokens == load.unprefilled_tokens == 0
    assert load.kv_tokens == pytest.approx(2000 + load.running[0].generated_tokens, abs=2)
    assert load.iterations > 3
    assert load.token_s > 0
    load = await bench.load(lambda load: not load.running)
    assert load.kv_tokens == 0


async def test_the_next_request_is_claimed_while_the_last_chunk_is_prefilled(bench: Bench) -> None:
    """Not before: what waits in the queue can still be reordered; and not at the end of the call."""
    await bench.push(*("x" * 16_000 for _ in range(3)), output=300)
    seen = []
    while len(seen) < 3:
        load = bench.observer.load()
        if len(load.running) > len(seen):
            seen.append(load)
        await asyncio.sleep(0)
    for load in seen[1:]:
        assert 4000 <= load.unprefilled_tokens <= 4000 + PROFILE.chunk_tokens
        assert load.running[-2].generated_tokens < 100
    await bench.done(3)
    assert bench.observer.idle_prefill < 0.5


async def test_what_waits_for_kv_waits_in_the_queue(bench: Bench) -> None:
    await bench.push("x" * 80_000, "y" * 80_000, "z" * 400, output=600)  # the first two do not fit together
    load = bench.observer.load()
    while not load.running or load.running[0].generated_tokens == 0:
        await asyncio.sleep(0)
        load = bench.observer.load()
    assert [call.request for call in load.running] == ["r0.0"]
    assert await bench.cell.client.zcard(bench.cell.keys.queue("a")) == 2
    await bench.done(3)


async def test_the_cache_is_told_and_a_prompt_that_shares_is_found_in_it(bench: Bench) -> None:
    shared = "".join(f"{at:08d}" for at in range(1024))
    await bench.push(shared + "first")
    await bench.done(1)
    load = await bench.load(lambda load: not load.running)
    assert load.cache_version > 0
    assert (await bench.cell.instances.caches(["a"]))["a"] == chain(shared)
    await bench.push(shared + "second" * 200)
    await bench.done(2)
    events = (await bench.cell.inbox.begin([("w1", -1)], 100))[0].mail
    assert events[-1].outcome.usage.cached_tokens == 2048
    await bench.load(lambda later: later.cache_version > load.cache_version)
    blocks = (await bench.cell.instances.caches(["a"]))["a"]
    assert blocks == chain(shared + "second" * 200)
    assert len(blocks) == 9 * HASH_BYTES


async def test_a_worker_that_cannot_publish_goes_on_and_publishes_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish, failed = Instances.publish, asyncio.Event()

    async def away(*_: Any) -> bool:
        failed.set()
        raise StoreUnavailable("Redis is away")

    await bench.load(lambda _: True)
    monkeypatch.setattr(Instances, "publish", away)
    await bench.push("hello")
    await failed.wait()
    await bench.done(1)
    monkeypatch.setattr(Instances, "publish", publish)
    await bench.push("hello again", output=200)
    assert await bench.load(lambda load: bool(load.running))


async def test_what_an_idle_worker_could_not_publish_it_publishes_when_the_store_is_back(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish = Instances.publish

    async def away(*_: Any) -> bool:
        raise StoreUnavailable("Redis is away")

    await bench.push("hello", output=400)
    await bench.load(lambda load: bool(load.running))
    monkeypatch.setattr(Instances, "publish", away)
    await bench.done(1)
    await asyncio.sleep(0.05)  # its last word is lost too
    monkeypatch.setattr(Instances, "publish", publish)
    assert await bench.load(lambda load: not load.running)


async def test_an_idle_worker_tells_again_what_a_store_has_forgotten(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publisher, "IDLE_S", 0.05)
    await bench.push("hello")
    await bench.done(1)
    await bench.load(lambda load: not load.running)
    await bench.cell.client.hdel(bench.cell.keys.instance("a"), "load")
    assert await bench.load(lambda load: not load.running)


@pytest.mark.parametrize("deed", ["begin", "end"])
async def test_a_request_ends_though_the_account_of_the_cache_is_broken(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, deed: str
) -> None:
    def broken(*_: Any) -> None:
        raise KeyError(deed)

    with monkeypatch.context() as patched:
        patched.setattr(PrefixShadow, deed, broken)
        await bench.push("hello")
        await bench.done(1)
    event = (await bench.cell.inbox.begin([("w1", -1)], 100))[0].mail[-1]
    assert isinstance(event, Failed)
    assert "KeyError" in event.error
    await bench.load(lambda load: not load.running)


async def test_many_changes_are_told_together(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[float] = []
    first = asyncio.Event()
    publish = Instances.publish

    async def counted(*args: Any) -> bool:
        told.append(asyncio.get_running_loop().time())
        first.set()
        return await publish(*args)

    await bench.load(lambda _: True)
    monkeypatch.setattr(Instances, "publish", counted)
    await bench.push(*("hello" for _ in range(60)), output=1)
    await bench.done(60)
    async with asyncio.timeout(10):
        await first.wait()  # all may have ended while it rests from what it told before
    assert all(after - before >= 0.019 for before, after in pairwise(told))
