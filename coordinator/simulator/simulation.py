"""One simulated run, and what came of it. The loop does the work; here its world is made and its figures are read."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from common.errors import InvalidDocument
from common.model import InstanceProfile
from coordinator.simulator import loop, records
from coordinator.simulator.compiled import compiled_run
from coordinator.simulator.workload import Workload

POLICIES: dict[str, loop.Rules] = {
    "vllm": loop.Rules(loop.ROUND_ROBIN, loop.FCFS, steals=False),
    "ray": loop.Rules(loop.TWO_CHOICES, loop.FCFS, steals=False),
    "low": loop.Rules(loop.LEAST_WORK, loop.WORKFLOW_FCFS, steals=False),
    "hexgen": loop.Rules(loop.SCORE, loop.URGENCY, steals=False),
    "hexgen-no-wb": loop.Rules(loop.ROUND_ROBIN, loop.URGENCY, steals=False),
    "hexgen-no-pq": loop.Rules(loop.SCORE, loop.FCFS, steals=False),
    "flow": loop.Rules(loop.FINISH_TIME, loop.LATEST_START, steals=True),
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """A run: latency of each workflow in s, whether it met its deadline, and what the instances did.

    busy: share of the time each instance ran; cached: share of prompt tokens that came from prefix caches.
    """

    latency_s: NDArray[np.float64]
    met: NDArray[np.bool_]
    elapsed_s: float
    calls: int
    served: tuple[int, ...]
    busy: tuple[float, ...]
    cached: float

    def percentile_s(self, percent: float) -> float:
        """Latency that so many percent of the workflows do not exceed."""
        return float(np.percentile(self.latency_s, percent))

    @property
    def attainment(self) -> float:
        """Share of the workflows that met their deadline."""
        return float(self.met.mean())


def simulate(workload: Workload, profiles: Sequence[InstanceProfile], rules: loop.Rules) -> Outcome:
    """Run a workload, which is used up by it. Raises InvalidDocument for a call that fits nowhere."""
    _check(workload, profiles)
    count, calls = len(profiles), workload.calls
    world = loop.World(
        engines=records.engines(list(profiles)),
        calls=calls,
        workflows=workload.workflows,
        blocks=workload.blocks,
        caches=records.caches(count, len(workload.blocks)),
        children=workload.children,
        roots=workload.roots,
        keys=np.zeros((count, len(calls))),
        ids=np.zeros((count, len(calls)), np.int64),
        dice=workload.dice,
        finished=np.zeros(records.MOST_SEQUENCES, np.int64),
    )
    compiled = compiled_run()
    elapsed_s = compiled(world, rules) if compiled else loop.run(_interpreted(world), rules)
    ended = workload.workflows["ended_at"]
    prompts = max(1, int(calls["prompt_tokens"].sum()))
    return Outcome(
        latency_s=ended - workload.workflows["arrival"],
        met=ended <= workload.workflows["deadline"],
        elapsed_s=elapsed_s,
        calls=len(calls),
        served=tuple(int((calls["instance"] == m).sum()) for m in range(count)),
        busy=tuple(float(engine["busy_s"]) / elapsed_s for engine in world.engines),
        cached=float(calls["cached_tokens"].sum()) / prompts,
    )


def _interpreted(world: loop.World) -> loop.World:
    """The same memory, with fields that Python reads as attributes."""
    names = ("engines", "calls", "workflows", "blocks", "caches")
    return world._replace(**{name: getattr(world, name).view(np.recarray) for name in names})


def _check(workload: Workload, profiles: Sequence[InstanceProfile]) -> None:
    """Every call must fit every instance: an engine takes no call that can never run."""
    least = min(profile.kv_tokens for profile in profiles)
    needed = int((workload.calls["prompt_tokens"] + workload.calls["output_tokens"]).max())
    if needed > least:
        raise InvalidDocument("trace", f"has a call of {needed} tokens; an instance of the cluster holds {least}")
