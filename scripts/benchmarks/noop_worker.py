"""`hexgen-flow worker --engine noop`, but each answer is the time at which it was given, which the benchmark needs."""

import asyncio
import os
from collections.abc import AsyncGenerator

from common import clock, logs, settings
from workers import service
from workers.engines.noop import NoopEngine
from workers.engines.protocol import Chunk, EngineCall


class StampingEngine(NoopEngine):
    """Answers with the wall clock in ms."""

    async def generate(self, call: EngineCall) -> AsyncGenerator[Chunk, None]:
        async for chunk in super().generate(call):
            yield Chunk(str(clock.wall_ms()), chunk.finish_reason, chunk.usage)


if __name__ == "__main__":
    logs.configure("WARNING")
    options = service.InstanceOptions(f"bench-{os.getpid()}")
    asyncio.run(service.run(settings.load(), StampingEngine(("default",)), options))
