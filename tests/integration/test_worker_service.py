"""What a worker's process tells of its end: only what is so."""

import asyncio
import logging

import pytest
from runner_bench import GatedEngine

from common.settings import load
from common.store.cell import Cell
from common.store.embedded import EmbeddedServer
from workers.engines.protocol import EngineError
from workers.runner import Runner
from workers.service import InstanceOptions, run


async def test_a_worker_whose_engine_has_ended_does_not_say_that_it_was_drained(
    server: EmbeddedServer, cell: Cell, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "hexgen.worker")
    engine = GatedEngine()
    engine.dead = True

    async def until_renewed_twice(*_: object) -> None:
        """Each renewal tells a draining instance that it is."""
        beats: set[float | None] = set()
        while len(beats) < 3:
            beats.add(await cell.client.zscore(cell.keys.instances, "a"))
            await asyncio.sleep(0.01)

    monkeypatch.setattr(Runner, "_let_finish", until_renewed_twice)
    settings = load(redis_url=server.url, namespace=cell.keys.namespace, lease_s=0.5)
    with pytest.raises(EngineError, match="the engine is dead"):
        async with asyncio.timeout(30):
            await run(settings, engine, InstanceOptions("a"))
    told = [record.getMessage() for record in caplog.records if record.levelname != "INFO"]
    assert told == ["the engine has ended: what it had goes elsewhere, and this worker ends"]
    assert "marked draining" not in caplog.text
    assert await cell.instances.all() == []
