"""A worker's main loop on a real server: claiming, leases, abort, patience, draining."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from operations_bench import submitted
from runner_bench import PROFILE, Bench, GatedEngine

from common import wire
from common.errors import StoreUnavailable, Superseded, Unregistered
from common.events import Completed, Evacuated, Failed
from common.model import Head, Slo, Usage
from common.store.cell import Cell
from common.store.embedded import EmbeddedServer
from common.store.inbox import Commit
from common.store.queues import Seat
from common.store.scripts import Call, Scripts, load
from workers.lease import LeaseKeeper
from workers.observer import Observer
from workers.runner import Runner, run_until

LEASE_MS = 600


@pytest.fixture
async def bench(
    server: EmbeddedServer, cell: Cell, namespace: str, request: pytest.FixtureRequest
) -> AsyncIterator[Bench]:
    """A parameter is the grace, in s."""
    engine = GatedEngine()
    head = Head("t", "w", "d", {}, Slo(0, 1))
    await cell.inbox.accept("w1", await submitted(cell), "x", head, wire.pack({}), 60_000)
    seat = Seat("a", await cell.instances.register("a", PROFILE, ["m"], [], []), "a/1")
    observer = Observer(engine, await engine.start())
    runner = Runner(cell, engine, observer, seat, LEASE_MS)
    loop = asyncio.get_running_loop()
    leases = LeaseKeeper(
        server.url, seat, namespace, LEASE_MS,
        on_gone=lambda request: loop.call_soon_threadsafe(runner.gone, request) and None,
        on_seat_lost=lambda _: None,
    )  # fmt: skip
    runner.attach(leases)
    leases.start()
    made = Bench(cell, engine, runner, seat)
    made.version = (await cell.inbox.begin([("w1", -1)], 1))[0].version
    made.leases = leases
    made.observer = observer
    made.serving = asyncio.create_task(run_until(runner, made.stop, getattr(request, "param", 0.0)))
    async with asyncio.timeout(30):
        yield made
        made.stop.set()
        await asyncio.wait({made.serving})
    await leases.ended()


async def test_claims_up_to_the_batch_and_goes_on_as_room_comes_free(bench: Bench) -> None:
    await bench.push("one", "two", "three")
    await bench.engine.until(lambda engine: engine.running == 2)
    assert await bench.cell.client.zcard(bench.cell.keys.queue("a")) == 1
    for name in ("r0", "r1", "r2"):
        bench.engine.gates.setdefault(name, asyncio.Event()).set()
    mail = await bench.mail(3)
    assert {event.outcome.output for event in mail} == {"half whole"}
    assert all(isinstance(event, Completed) for event in mail)
    assert bench.engine.most == 2
    assert mail[0].outcome.usage == Usage(10, 2, 0)


async def test_a_worker_claims_no_oftener_than_something_is_pushed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[str] = []
    run = Scripts.run

    async def noted(scripts: Scripts, name: str, *args: Any) -> Any:
        ran.append(name)
        return await run(scripts, name, *args)

    monkeypatch.setattr(Scripts, "run", noted)
    for number in range(10):
        await bench.push("one", first=number)
        await bench.engine.until(lambda engine: engine.running == 1)
        bench.engine.gates[f"r{number}"].set()
        assert len(await bench.mail(1)) == 1  # which the next push answers
    assert ran.count("claim") == 10


@pytest.mark.parametrize("running", [0, 1])
async def test_a_wake_that_is_lost_with_its_connection_delays_nothing(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, running: int
) -> None:
    client, send = bench.cell.client, Scripts._send
    await bench.push(*["one"] * running, first=1)
    await bench.engine.until(lambda engine: engine.running == running)
    waiting: list[str] = []
    while not waiting:
        found = await client.client_list()
        waiting = [one["id"] for one in found if one["cmd"] == "bzpopmin" and "b" in one["flags"]]

    async def send_and_break(scripts: Scripts, calls: Sequence[Call]) -> list[Any]:
        """In one go, so that the server has no time to tell the reader that it was woken."""
        if calls[0].script != "commit_step":
            return await send(scripts, calls)
        pipeline = client.pipeline(transaction=False)
        pipeline.execute_command("EVALSHA", load("commit_step").sha, 1, bench.cell.keys.prefix, *calls[0].args)
        pipeline.client_kill_filter(_id=waiting[0])
        committed, killed = await pipeline.execute()
        assert killed == 1
        return [committed]

    await client.script_load(load("commit_step").source)
    monkeypatch.setattr(Scripts, "_send", send_and_break)
    await bench.push("late")
    async with asyncio.timeout(3):  # less than one wait
        await bench.engine.until(lambda engine: engine.running == running + 1)


async def test_each_piece_of_an_answer_is_progress(bench: Bench) -> None:
    await bench.push("one")
    await bench.engine.until(lambda engine: engine.running == 1)
    bench.engine.gates["r0"].set()
    await bench.mail(1)
    assert bench.observer.advances == 2


async def test_a_failure_is_told_with_its_kind(bench: Bench) -> None:
    await bench.push("fail please")
    (event,) = await bench.mail(1)
    assert event == Failed("r0", "s0", "the engine is out of luck", retryable=False)


async def test_a_prompt_too_long_is_told_with_its_length(bench: Bench) -> None:
    await bench.push("too long")
    (event,) = await bench.mail(1)
    assert event == Failed("r0", "s0", "the prompt is too long", retryable=False, prompt_tokens=1234)


async def test_a_time_out_aborts_and_fails(bench: Bench) -> None:
    await bench.push("slow", timeout_s=0.05)
    (event,) = await bench.mail(1)
    assert isinstance(event, Failed)
    assert "timeout_s = 0.05" in event.error
    assert bench.engine.aborted[0] == "r0"


async def test_output_that_is_not_what_the_schema_says_fails_and_may_be_tried_again(bench: Bench) -> None:
    bench.engine.gates["r0"] = asyncio.Event()
    bench.engine.gates["r0"].set()
    await bench.push("json", sampling={"json_schema": {"type": "object"}})
    (event,) = await bench.mail(1)
    assert isinstance(event, Failed)
    assert event.retryable
    assert "not JSON" in event.error


async def test_leases_outlive_their_length_while_the_engine_works(bench: Bench) -> None:
    await bench.push("long")
    await bench.engine.started.wait()
    await asyncio.sleep(3 * LEASE_MS / 1000)  # what is tested is that time does not take the lease away
    await bench.cell.queues.reap(0, 3)
    bench.engine.gates["r0"].set()
    (event,) = await bench.mail(1)
    assert isinstance(event, Completed)


@pytest.mark.parametrize("prompt", ["unwanted", "deaf to the first"])
async def test_a_request_whose_workflow_has_dropped_it_is_aborted(bench: Bench, prompt: str) -> None:
    await bench.push(prompt)
    await bench.engine.started.wait()
    await bench.cell.inbox.commit([Commit("w1", "", bench.version, 0, "json", drops=["r0"])])
    async with asyncio.timeout(15):
        await bench.engine.until(lambda engine: engine.aborted == ["r0"] and engine.running == 0)


async def test_draining_gives_back_what_does_not_end_in_time(bench: Bench) -> None:
    await bench.push("one", "two", "three")
    await bench.engine.until(lambda engine: engine.running == 2)
    bench.stop.set()
    mail = await bench.mail(3)
    assert {type(event) for event in mail} == {Evacuated}
    assert await bench.cell.client.zcard(bench.cell.keys.leases) == 0
    assert (await bench.cell.instances.all())[0].status == "draining"
    assert sorted(bench.engine.aborted) == ["r0", "r1"]


@pytest.mark.parametrize("bench", [3600.0], indirect=True)
async def test_a_drain_that_is_told_to_hurry_gives_back_at_once(bench: Bench) -> None:
    await bench.push("one", "two", "three")
    await bench.engine.until(lambda engine: engine.running == 2)
    bench.stop.set()
    assert await bench.mail(1) == [Evacuated("r2", "s2")]
    assert bench.engine.running == 2  # the grace is for these
    bench.runner.hurry()
    await bench.serving
    assert sorted(bench.engine.aborted) == ["r0", "r1"]
    assert [type(event) for event in await bench.mail(3)] == [Evacuated] * 3


async def test_tokens_are_streamed_when_asked_for(bench: Bench) -> None:
    await bench.push("talk", stream=True)
    await bench.engine.started.wait()
    bench.engine.gates["r0"].set()
    await bench.mail(1)
    found = await bench.cell.records.look({"w1": "0"}, 0.1)
    text = "".join(data["text"] for _, _, kind, data in found if kind == "token")
    assert text == "half whole"


async def test_a_superseded_worker_leaves_the_later_one_alone(bench: Bench) -> None:
    await bench.push("one", "two", "three")
    await bench.engine.until(lambda engine: engine.running == 2)
    await bench.cell.instances.register("a", PROFILE, ["m"], [], [])
    bench.runner.lose_seat(Superseded("a"))
    bench.stop.set()
    with pytest.raises(Superseded):
        await bench.serving
    assert (await bench.cell.instances.all())[0].status == "ready"
    assert await bench.cell.client.zcard(bench.cell.keys.queue("a")) == 1
    assert {type(event) for event in await bench.mail(2)} == {Evacuated}  # what it was running costs no lease


@pytest.mark.parametrize("by", ["claim", "renewal"])
async def test_a_worker_whose_seat_is_gone_stops_all_and_gives_back_what_is_still_known(bench: Bench, by: str) -> None:
    """Here only the instance's record is lost; whatever else is lost with it counts no more by itself."""
    await bench.push("one", "two", "three")
    await bench.engine.until(lambda engine: engine.running == 2)
    await bench.cell.client.delete(bench.cell.keys.instance("a"))
    if by == "claim":
        bench.engine.gates["r0"].set()  # there is room, so it looks at its queue
    else:
        bench.runner.lose_seat(Unregistered("a"))
    with pytest.raises(Unregistered):
        await bench.serving
    assert bench.engine.running == 0
    ends = {"r0": Completed, "r1": Evacuated} if by == "claim" else {"r0": Evacuated, "r1": Evacuated}
    assert {event.request: type(event) for event in await bench.mail(2)} == ends
    assert await bench.cell.client.zcard(bench.cell.keys.leases) == 0


@pytest.mark.parametrize("bench", [3600.0], indirect=True)
async def test_a_draining_worker_whose_seat_is_gone_does_not_wait_for_what_counts_no_more(bench: Bench) -> None:
    await bench.push("one")
    await bench.engine.until(lambda engine: engine.running == 1)
    bench.stop.set()
    while (await bench.cell.instances.all())[0].status != "draining":  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    bench.runner.lose_seat(Unregistered("a"))
    await bench.serving
    assert bench.engine.aborted == ["r0"]


async def test_a_request_that_comes_back_while_it_still_runs_runs_once_and_counts(bench: Bench) -> None:
    """As after a pause longer than a lease: the request was routed anew, and its own worker claims it again."""
    await bench.push("slow")
    await bench.engine.until(lambda engine: engine.running == 1)
    await bench.cell.client.zadd(bench.cell.keys.leases, {"r0": 0})
    await bench.cell.queues.reap(0, 3)
    await bench.push("slow")
    await bench.engine.until(lambda engine: engine.aborted == ["r0"] and engine.running == 1)
    assert bench.engine.most == 1
    await asyncio.sleep(1.5 * LEASE_MS / 1000)  # its lease is kept alive
    bench.engine.gates["r0"].set()
    assert [type(event) for event in await bench.mail(1)] == [Completed]


async def test_tokens_that_cannot_be_told_cost_no_attempt(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    async def away(*_: Any) -> None:
        raise StoreUnavailable("Redis is away")

    monkeypatch.setattr(bench.cell.queues, "emit_tokens", away)
    await bench.push("talk", stream=True)
    await bench.engine.started.wait()
    bench.engine.gates["r0"].set()
    (event,) = await bench.mail(1)
    assert isinstance(event, Completed)


async def test_an_output_beyond_all_bounds_ends_its_stream_at_once(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workers.answer.MAX_OUTPUT_CHARS", 3)
    await bench.push("long")
    (event,) = await bench.mail(1)
    assert isinstance(event, Failed)
    assert "longer than 3" in event.error
    assert bench.engine.running == 0
    assert bench.engine.aborted == ["r0"]


async def test_a_dead_engine_gives_all_it_had_back_and_ends_its_worker(bench: Bench) -> None:
    await bench.push("one", "two", "three")
    await bench.engine.until(lambda engine: engine.running == 2)
    bench.engine.dead = True
    bench.engine.gates["r0"].set()  # one call meets the end of the engine; the other would wait for ever
    await bench.serving
    assert (await bench.cell.instances.all())[0].status == "draining"
    lost = await bench.cell.queues.reap(0, 3)  # their leases have ended
    assert sorted((loss.request, loss.losses, loss.engine) for loss in lost or []) == [
        ("r0", 1, "ended"),
        ("r1", 1, "ended"),
    ]
    assert [type(event) for event in await bench.mail(3)] == [Evacuated] * 3  # no attempt is lost
    assert await bench.cell.client.zcard(bench.cell.keys.leases) == 0


async def test_only_what_ran_when_the_engine_stalled_has_a_loss_by_that(bench: Bench) -> None:
    leave = bench.runner._leave
    await bench.push("one")
    await bench.engine.until(lambda engine: engine.running == 1)
    await leave()
    await bench.cell.client.hset(bench.cell.keys.instance("a"), "status", "ready")  # a claim that was on its way
    await bench.push("two", first=1)
    await bench.engine.until(lambda engine: engine.running == 1)
    await leave()  # as the breaker does after each probe that failed
    assert await bench.mail(1) == [Evacuated("r1", "s1")]
    lost = await bench.cell.queues.reap(0, 3)
    assert [(loss.request, loss.losses, loss.engine) for loss in lost or []] == [("r0", 1, "stalled")]


async def test_what_must_run_alone_does(bench: Bench) -> None:
    await bench.cell.client.hset(bench.cell.keys.request("r1"), "alone", 1)
    await bench.push("before", "alone", "after")
    for name in ("r0", "r1", "r2"):
        await bench.engine.until(lambda engine, name=name: name in engine.gates)  # type: ignore[misc]
        await asyncio.sleep(0.1)  # in which another could come beside it
        bench.engine.gates[name].set()
    assert [event.request for event in await bench.mail(3)] == ["r0", "r1", "r2"]
    assert bench.engine.most == 1


@pytest.mark.parametrize("bench", [60.0], indirect=True)
async def test_an_engine_that_ends_with_its_worker_costs_nothing(bench: Bench) -> None:
    """Told to stop as its worker was, by the same signal."""
    await bench.push("one", "two")
    await bench.engine.until(lambda engine: engine.running == 2)
    bench.stop.set()
    while not bench.runner.draining:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    bench.engine.dead = True
    bench.engine.gates["r0"].set()
    bench.engine.gates["r1"].set()
    await bench.serving
    assert await bench.cell.queues.reap(0, 3) == []
    assert [type(event) for event in await bench.mail(2)] == [Evacuated, Evacuated]


async def test_an_engine_that_seems_to_recover_from_its_death_is_dead(bench: Bench) -> None:
    """What it was running waits to be given back: there is no way back."""
    await bench.push("one")
    await bench.engine.until(lambda engine: engine.running == 1)
    bench.engine.dead = True
    bench.engine.recovers = True
    bench.engine.gates["r0"].set()
    await bench.serving
    await bench.cell.queues.reap(0, 3)
    assert [type(event) for event in await bench.mail(1)] == [Evacuated]


async def test_an_engine_that_dies_idle_is_noticed(bench: Bench) -> None:
    bench.engine.dead = True
    await bench.serving
    assert (await bench.cell.instances.all())[0].status == "draining"


async def test_a_store_that_stays_away_does_not_keep_a_worker_from_stopping(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_: Any) -> None:
        raise StoreUnavailable("Redis is away")

    await bench.push("one")
    await bench.engine.until(lambda engine: engine.running == 1)
    for call in ("claim", "finish", "release"):
        monkeypatch.setattr(bench.cell.queues, call, away)
    monkeypatch.setattr(bench.cell.instances, "evacuate", away)
    bench.engine.gates["r0"].set()
    bench.stop.set()
    with pytest.raises(StoreUnavailable):
        await bench.serving
    assert bench.engine.running == 0
