"""Drives Ray Serve through one load, in a process of its own; prints latencies (s) and requests by instance as JSON.

Argument: a file with a `Task`'s fields as JSON. One deployment, whose replicas are the unequal instances: each takes
the profile of its rank and runs the engine that ours run. Ray's own router chooses; workflows are run from here.
"""

import asyncio
import json
import logging
import os
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
from ray import serve
from ray.serve.config import RequestRouterConfig
from replay import mark
from replay_worker import engine

from common import clock
from common.model import InstanceProfile, LlmCall, Sampling
from coordinator.language.compiler import compile_definition
from coordinator.language.definition import Definition, LlmBody
from workers.engines.protocol import EngineCall

MOST_ONGOING = 5
"""Ray Serve's own default."""
INITIAL_BACKOFF_S, MAX_BACKOFF_S = 0.025, 0.5
"""Ray Serve's own: how long its router waits when all replicas are full. Scaled down as all times are."""
STORE_BYTES = 100_000_000
WARM_UP = 40


@dataclass(frozen=True, slots=True)
class Task:
    """What to run: instances, how many times faster they are; of each arrival s from the start and which document."""

    profiles: list[dict[str, Any]]
    time_scale: float
    prefix_cache: bool
    documents: list[dict[str, Any]]
    arrivals: list[tuple[float, int]]


class Instance:
    """A replica: one simulated engine."""

    def __init__(self, profiles: list[dict[str, Any]], time_scale: float, prefix_cache: bool) -> None:
        self._rank: int = serve.get_replica_context().rank.rank
        profile = InstanceProfile(**profiles[self._rank])
        self._engine = engine(profile, time_scale, prefix_cache=prefix_cache)
        self._begun = False

    async def __call__(self, request: str, stage: str, prompt: str, max_tokens: int) -> int:
        if not self._begun:
            self._begun = True
            await self._engine.start()
        call = LlmCall(prompt, None, None, Sampling(max_tokens=max_tokens))
        async for _ in self._engine.generate(EngineCall(request, call, stage)):
            pass
        return self._rank


class Workflows:
    """Runs workflows call by call, each as soon as those it needs have ended."""

    def __init__(self, handle: Any, task: Task) -> None:
        self._handle = handle
        self._task = task
        self._definitions: list[Definition] = [compile_definition(document) for document in task.documents]
        self.served: Counter[int] = Counter()

    async def run(self) -> list[float]:
        """The latency of each, in s from when it was due."""
        begun_at = clock.monotonic_s() + 1.0
        due = [(begun_at + at_s, which) for at_s, which in self._task.arrivals]
        return await asyncio.gather(*(self._workflow(number, *one) for number, one in enumerate(due)))

    async def _workflow(self, number: int, due_at: float, which: int) -> float:
        await clock.sleep(max(0.0, due_at - clock.monotonic_s()))
        definition = self._definitions[which]
        text = next(given.default for given in definition.inputs if given.name == "text")
        inputs = {"mark": mark(number), "text": text}
        calls: dict[str, asyncio.Task[None]] = {}
        for spec in definition.root.stages:
            assert isinstance(spec.body, LlmBody)
            assert spec.body.prompt is not None
            prompt = spec.body.prompt.render({"inputs": inputs})
            needed = [calls[name] for name in spec.needs]
            calls[spec.name] = asyncio.create_task(self._call(f"{number}/{spec.name}", prompt, spec.body, needed))
        await asyncio.gather(*calls.values())
        return clock.monotonic_s() - due_at

    async def _call(self, request: str, prompt: str, body: LlmBody, needed: list[asyncio.Task[None]]) -> None:
        await asyncio.gather(*needed)
        self.served[await self._handle.remote(request, "replay", prompt, body.max_tokens)] += 1


def start(task: Task, scratch: Path) -> Any:
    """Ray, and the deployment's handle. Nothing of it is reachable from elsewhere."""
    ray.init(
        num_cpus=2, include_dashboard=False, object_store_memory=STORE_BYTES, log_to_driver=False,
        logging_level=logging.ERROR, _temp_dir=str(scratch), namespace="compare",
    )  # fmt: skip
    serve.start(proxy_location="Disabled")
    router = RequestRouterConfig(
        initial_backoff_s=INITIAL_BACKOFF_S / task.time_scale, max_backoff_s=MAX_BACKOFF_S / task.time_scale
    )
    deployment = serve.deployment(
        Instance, num_replicas=len(task.profiles), max_ongoing_requests=MOST_ONGOING, request_router_config=router,
        ray_actor_options={"num_cpus": 0},
    )  # fmt: skip
    return serve.run(deployment.bind(task.profiles, task.time_scale, task.prefix_cache), route_prefix=None)


async def drive(handle: Any, task: Task) -> dict[str, Any]:
    """Warm up, then run all."""
    await asyncio.gather(*(handle.remote(f"warm-{number}", "warm", "warm\n2", 2) for number in range(WARM_UP)))
    workflows = Workflows(handle, task)
    latencies = await workflows.run()
    return {"latency_s": latencies, "served": [workflows.served[rank] for rank in range(len(task.profiles))]}


def main(file: Path) -> dict[str, Any]:
    """Everything that Ray starts ends with it."""
    task = Task(**json.loads(file.read_text()))
    try:
        return asyncio.run(drive(start(task, file.parent / "ray"), task))
    finally:
        serve.shutdown()
        ray.shutdown()


if __name__ == "__main__":
    with os.fdopen(os.dup(1), "w") as told:
        os.dup2(2, 1)  # Ray prints too
        told.write(json.dumps(main(Path(sys.argv[1]))))
