"""What the comparisons on recorded workflows have in common: their options, and the plan that follows from them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import click
from replay import Load, prepared
from replay_ours import Deployment

from common.model import InstanceProfile
from common.policy.registry import names as live_policies
from common.policy.registry import score_ratio, used
from common.profiles import A100
from coordinator.simulator.cluster import load_cluster
from coordinator.simulator.expectation import alone_s
from coordinator.simulator.source import load_trace
from coordinator.simulator.trace import Trace

SLO_SCALE = 3.0
PATIENCE = 60.0


@dataclass(frozen=True, slots=True)
class Plan:
    """What is compared, in times of the real engines. rate in workflows/s; alpha is `hexgen`'s."""

    trace: Trace
    profiles: tuple[InstanceProfile, ...]
    workflows: int
    rate: float
    scale: float
    alpha: float
    arrivals: str
    prefix_cache: bool

    @property
    def slo_s(self) -> float:
        return SLO_SCALE * alone_s(self.trace, A100)

    @property
    def give_up_s(self) -> float:
        """How long the last workflow may take, in this machine's time."""
        return PATIENCE * self.slo_s / self.scale + 60.0

    def parameters(self, policy: str, scale: float = 1.0) -> dict[str, float]:
        """The policy's numbers that are times, for a world that runs so many times faster."""
        return used(policy, {"r": score_ratio(self.alpha) / scale**2, "floor_s": 1.0 / scale})

    def load(self, seed: int) -> Load:
        return Load(self.trace, self.profiles, self.workflows, self.rate, seed, self.slo_s, self.arrivals)

    def deployment(self, policy: str) -> Deployment:
        return Deployment(policy, self.parameters(policy, self.scale), self.scale, self.prefix_cache)

    def about(self) -> dict[str, Any]:
        """What was asked for, for the record."""
        names = ("workflows", "rate", "scale", "alpha", "arrivals", "prefix_cache")
        told = {name: getattr(self, name) for name in names}
        return told | {"instances": [profile.name for profile in self.profiles], "slo_s": round(self.slo_s, 1)}


def plan_options(command: Callable[..., None]) -> Callable[..., None]:
    """The options that make a plan, `seeds` and `as_json`."""
    options = (
        click.option("--trace", "source", default="generated:text2sql-3", show_default=True,
                     help="as for `hexgen-flow simulate`"),
        click.option("--cluster", default="hetero1", show_default=True, help="as for `hexgen-flow simulate`"),
        click.option("--workflows", type=click.IntRange(1, 10_000), default=150, show_default=True),
        click.option("--rate", type=click.FloatRange(0, min_open=True), default=0.025, show_default=True,
                     help="workflows per second of the real engines' time"),
        click.option("--scale", type=click.FloatRange(0, 100, min_open=True), default=8.0, show_default=True,
                     help="how many times faster than the real engines"),
        click.option("--seeds", type=click.IntRange(1, 100), default=3, show_default=True),
        click.option("--alpha", type=click.FloatRange(0, 1), default=0.5, show_default=True, help="of hexgen"),
        click.option("--arrivals", type=click.Choice(["poisson", "gamma", "step", "file"]), default="poisson",
                     show_default=True),
        click.option("--prefix-cache", is_flag=True, help="share what the trace says is shared"),
        click.option("--json", "as_json", is_flag=True, help="print one JSON object on stdout and nothing else"),
    )  # fmt: skip
    for option in reversed(options):
        command = option(command)
    return command


def planned(
    policies: Sequence[str], *, source: str, cluster: str, workflows: int, rate: float, scale: float, alpha: float,
    arrivals: str, prefix_cache: bool,
) -> Plan:  # fmt: skip
    """The plan. Raises InvalidDocument, BenchmarkError, BadParameter for a policy that does not run live."""
    if unknown := [name for name in policies if name not in live_policies()]:
        known = ", ".join(live_policies())
        raise click.BadParameter(f"{unknown[0]!r} is not one of {known}", param_hint="policy")
    profiles = tuple(load_cluster(cluster))
    trace = prepared(load_trace(source, prefixes=prefix_cache), profiles, prefix_cache=prefix_cache)
    return Plan(trace, profiles, workflows, rate, scale, alpha, arrivals, prefix_cache)
