"""One simulated run, and what came of it. The loop does the work; here its world is made and its figures are read."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from common.errors import InvalidDocument
from common.model import InstanceProfile
from common.policy.line import AHEAD
from common.policy.rules import Rules
from coordinator.simulator import loop, records
from coordinator.simulator.compiled import compiled_run
from coordinator.simulator.deciding import World
from coordinator.simulator.workload import Workload

__all__ = ["HOP_S", "Outcome", "compiled_run", "simulate"]  # compiled_run: replaced where the loop must stay Python

HOP_S = 0.005
"""From a completion to the next call's being ready."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """A run: latency of each workflow in s, whether it met its deadline, and what the instances did.

    busy: share of the time each instance ran; cached: share of prompt tokens that came from prefix caches; rows: the
    calls as they ran, see `coordinator.simulator.records.CALL`.
    """

    latency_s: NDArray[np.float64]
    met: NDArray[np.bool_]
    elapsed_s: float
    calls: int
    served: tuple[int, ...]
    busy: tuple[float, ...]
    cached: float
    rows: records.Rows

    def percentile_s(self, percent: float) -> float:
        """Latency that so many percent of the workflows do not exceed."""
        return float(np.percentile(self.latency_s, percent))

    @property
    def attainment(self) -> float:
        """Share of the workflows that met their deadline."""
        return float(self.met.mean())


def simulate(
    workload: Workload, profiles: Sequence[InstanceProfile], rules: Rules, *,
    believed: Sequence[InstanceProfile] | None = None, hop_s: float = HOP_S,
) -> Outcome:  # fmt: skip
    """Run a workload, which is used up by it. believed: profiles as the policy takes them to be, if not as they are.

    Raises InvalidDocument for a call that fits nowhere.
    """
    _check(workload, profiles)
    count, calls = len(profiles), workload.calls
    world = World(
        engines=records.engines(profiles),
        candidates=records.candidates(believed or profiles),
        calls=calls,
        workflows=workload.workflows,
        tenants=np.zeros(int(workload.workflows["tenant"].max()) + 1, records.TENANT),
        blocks=workload.blocks,
        caches=records.caches(count, len(workload.blocks)),
        children=workload.children,
        roots=workload.roots,
        keys=np.zeros((count + 1, len(calls))),
        ids=np.zeros((count + 1, len(calls)), np.int64),
        dice=workload.dice,
        finished=np.zeros(records.MOST_SEQUENCES, np.int64),
        cached=np.zeros((AHEAD, count), np.int64),
        targets=np.zeros(AHEAD, np.int64),
        eligible=np.arange(count),
        counts=np.zeros(2, np.int64),
        rate=sum(profile.prefill_tokens_per_s for profile in profiles),
    )
    compiled = compiled_run()
    elapsed_s = compiled(world, rules, hop_s) if compiled else loop.run(_interpreted(world), rules, hop_s)
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
        rows=calls,
    )


def _interpreted(world: World) -> World:
    """The same memory, with fields that Python reads as attributes."""
    names = ("engines", "candidates", "calls", "workflows", "tenants", "blocks", "caches")
    return world._replace(**{name: getattr(world, name).view(np.recarray) for name in names})


def _check(workload: Workload, profiles: Sequence[InstanceProfile]) -> None:
    """Every call must fit some instance."""
    most = max(profile.kv_tokens for profile in profiles)
    needed = int((workload.calls["prompt_tokens"] + workload.calls["output_tokens"]).max())
    if needed > most:
        raise InvalidDocument("trace", f"has a call of {needed} tokens; no instance of the cluster holds over {most}")
