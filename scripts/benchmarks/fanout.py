"""scripts/bench fanout: what a wide workflow costs its coordinators.

One workflow with a for_each of 500 copies, 5 KB of output each, two coordinators on one namespace, an engine that
answers one call every few ms. Figures: bytes of state written per completion (the fields of all commits), and the share
of commits that found a newer version.
"""

import asyncio
import json
import tempfile
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from common import clock, wire
from common.backoff import keep
from common.settings import Settings
from common.store.cell import Cell
from common.store.embedded import EmbeddedServer
from common.store.inbox import Answer, Commit, Inbox
from common.store.queues import Seat
from common.tasks import end as ended
from coordinator.desk import Desk
from coordinator.language.compiler import compile_definition
from coordinator.loops.completions import completions
from coordinator.loops.intake import intake
from hexgen_flow.client import ENDS
from hexgen_flow.commands.following import follow
from workers.engines.noop import NoopEngine
from workers.engines.protocol import Chunk, Engine, EngineCall
from workers.lease import LeaseKeeper
from workers.observer import Observer
from workers.runner import Runner, run_until


@dataclass(slots=True)
class Count:
    """What the coordinators wrote."""

    commits: int = 0
    conflicts: int = 0
    state_bytes: int = 0


class CountingInbox(Inbox):
    """An inbox that keeps count of its commits."""

    count: Count

    async def commit(self, commits: Sequence[Commit]) -> list[Answer]:
        answers = await super().commit(commits)
        for made, answer in zip(commits, answers, strict=True):
            self.count.commits += 1
            self.count.conflicts += answer.state == 0
            self.count.state_bytes += sum(len(key) + len(wire.pack_node(node)) for key, node in made.nodes.items())
        return answers


class SteadyEngine(NoopEngine):
    """Answers one call every pause_s, so that completions trickle in."""

    def __init__(self, text: str, pause_s: float) -> None:
        super().__init__(("default",), text)
        self._pause_s = pause_s
        self._turn = asyncio.Lock()

    async def generate(self, call: EngineCall) -> AsyncGenerator[Chunk, None]:
        async with self._turn:
            await clock.sleep(self._pause_s)
        async for chunk in super().generate(call):
            yield chunk


async def measure(url: str, copies: int, output_bytes: int, pause_s: float, coordinators: int = 2) -> dict[str, Any]:
    """Run the workflow once; the figures."""
    settings = Settings(redis_url=url, namespace="fanout", policy="hexgen")
    definition = compile_definition(
        {
            "name": "fanout",
            "inputs": {"items": {"type": "array"}},
            "stages": {
                "work": {"for_each": "inputs.items", "prompt": "{{ item }}"},
                "count": {"needs": ["work"], "prompt": "{{ work.output | length }}"},
            },
        }
    )
    cells = [Cell.open(url, "fanout") for _ in range(coordinators + 1)]
    counts = [Count() for _ in range(coordinators)]
    tasks = []
    await cells[0].inbox.prepare()
    keep_ms = settings.keep_definition_ms
    await cells[0].records.register(definition.name, definition.digest, definition.document, keep_ms)
    for cell, count in zip(cells[1:], counts, strict=True):
        inbox = CountingInbox(cell.client, cell.blocking, cell.keys)
        inbox.count = count
        object.__setattr__(cell, "inbox", inbox)
        desk = Desk(cell, settings)
        tasks.append(asyncio.create_task(keep("completions", lambda desk=desk: completions(desk))))  # type: ignore[misc]
        tasks.append(asyncio.create_task(keep("intake", lambda desk=desk: intake(desk))))  # type: ignore[misc]
    stop = asyncio.Event()
    worker = asyncio.create_task(_work(url, stop, SteadyEngine("x" * output_bytes, pause_s)))
    try:
        end = await _run(cells[0], copies)
        writes = await cells[0].client.info("commandstats")
    finally:
        stop.set()
        await worker
        await ended(*tasks)
        for cell in cells:
            await cell.close()
    commits = sum(count.commits for count in counts)
    conflicts = sum(count.conflicts for count in counts)
    return {
        "status": end["status"],
        "copies": copies,
        "output_bytes": output_bytes,
        "commits": commits,
        "commits_by_coordinator": [count.commits for count in counts],
        "conflicts": conflicts,
        "conflict_share": conflicts / commits,
        "state_bytes_per_completion": sum(count.state_bytes for count in counts) / (copies + 1),
        "hset_calls": writes["cmdstat_hset"]["calls"],
        "elapsed_s": end["elapsed_s"],
    }


async def _work(url: str, stop: asyncio.Event, engine: Engine) -> None:
    cell = Cell.open(url, "fanout")
    info = await engine.start()
    epoch = await cell.instances.register("noop", info.profile, info.models, [], info.features)
    seat = Seat("noop", epoch, "noop/1")
    runner = Runner(cell, engine, Observer(engine, info), seat, 30_000)
    leases = LeaseKeeper(url, seat, "fanout", 30_000, on_gone=runner.gone, on_seat_lost=lambda _: stop.set())
    runner.attach(leases)
    leases.start()
    await run_until(runner, stop, 1.0)
    leases.stop()
    await cell.close()


async def _run(cell: Cell, copies: int) -> dict[str, Any]:
    workflow = await cell.records.submit({"workflow": "fanout", "inputs": {"items": list(range(copies))}})
    async for _, kind, data in follow(cell, workflow):
        if kind in ENDS:
            return {"status": kind, **data}
    raise AssertionError("events end with an end")


@click.command(help=__doc__)
@click.option("--copies", type=click.IntRange(1, 1000), default=500, show_default=True)
@click.option("--output-bytes", type=click.IntRange(1, 100_000), default=5120, show_default=True)
@click.option("--pause-ms", type=click.FloatRange(0), default=3.0, show_default=True, help="between two answers")
@click.option("--json", "as_json", is_flag=True, help="print one JSON object")
def main(copies: int, output_bytes: int, pause_ms: float, as_json: bool) -> None:
    with tempfile.TemporaryDirectory(prefix="fanout-") as scratch, EmbeddedServer.start(Path(scratch)) as server:
        found = asyncio.run(measure(server.url, copies, output_bytes, pause_ms / 1000))
    if as_json:
        click.echo(json.dumps(found))
        return
    for name, value in found.items():
        click.echo(f"{name}: {value:.4g}" if isinstance(value, float) else f"{name}: {value}")


if __name__ == "__main__":
    main()
