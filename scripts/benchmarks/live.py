"""scripts/compare live: the same workload through real processes and through the simulator, policy by policy.

Live are a Redis server, a coordinator and a worker for each instance, every one a process, with simulated engines that
run --scale times faster than the real ones; each run has them anew. The simulator is given the same workflows, arrivals
and lengths, and the same means to know. Where all depends on who comes first by a millisecond (round robin on
unequal instances), one run of it says little: it runs several times, each with another delay between calls. Times are
printed as of the real engines.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean, stdev

import click
from chains import BenchmarkError
from comparing import Plan, plan_options, planned
from replay import Document, documents, percentile
from replay_ours import run

from common.errors import HexgenError
from common.policy.registry import policy as rules_of
from common.store.embedded import EmbeddedServerError
from coordinator.simulator.simulation import simulate

PREDICTIONS = 20
SPREAD = 0.2
"""The delays of the predictions lie so much around the one given, up and down."""


@dataclass(frozen=True, slots=True)
class Latency:
    """Percentiles of the workflows' latencies, in s."""

    p50_s: float
    p95_s: float


@dataclass(frozen=True, slots=True)
class Pair:
    """One run live, and its predictions. late_s: how late the last workflow was submitted."""

    policy: str
    seed: int
    live: Latency
    simulated: tuple[Latency, ...]
    late_s: float


def latency(values: Sequence[float]) -> Latency:
    """Percentiles as the simulator takes them."""
    return Latency(percentile(values, 50), percentile(values, 95))


def predictions(plan: Plan, policy: str, seed: int, hop_s: float) -> tuple[Latency, ...]:
    """What the simulator says. hop_s: from a call's end to the next call, in this machine's time."""
    load, rules = plan.load(seed), rules_of(policy, plan.parameters())
    found = []
    for number in range(PREDICTIONS):
        hop = plan.scale * hop_s * (1.0 + SPREAD * (2.0 * number / (PREDICTIONS - 1) - 1.0))
        came = simulate(load.workload(), load.profiles, rules, hop_s=hop)
        found.append(latency(came.latency_s.tolist()))
    return tuple(found)


def compare(plan: Plan, policies: Sequence[str], seeds: int, hop_s: float, tell: Callable[[str], None]) -> list[Pair]:
    """All runs, policy by policy within a seed, so that a busy minute of the machine does not fall on one of them."""
    known = documents(plan.trace)
    return [_pair(plan, known, policy, seed, hop_s, tell) for seed in range(seeds) for policy in policies]


def _pair(
    plan: Plan, known: Sequence[Document], policy: str, seed: int, hop_s: float, tell: Callable[[str], None]
) -> Pair:
    simulated = predictions(plan, policy, seed, hop_s)
    ended = run(plan.deployment(policy), plan.load(seed), known, plan.give_up_s)
    live = latency([one.latency_s for one in ended])
    late_s = max(one.late_s for one in ended)
    expected_s = fmean(one.p95_s for one in simulated)
    tell(f"seed {seed}, {policy}: P95 {live.p95_s:.1f} s live, {expected_s:.1f} s simulated, {late_s:.2f} s late")
    return Pair(policy, seed, live, simulated, late_s)


def means(pairs: Sequence[Pair]) -> dict[str, float]:
    """Over seeds: live, simulated, their ratio, and how much such a mean of single runs varies in the simulator."""
    found: dict[str, float] = {}
    for name in ("p50_s", "p95_s"):
        live = fmean(getattr(pair.live, name) for pair in pairs)
        by_number = zip(*(pair.simulated for pair in pairs), strict=True)
        simulated = [fmean(getattr(one, name) for one in ones) for ones in by_number]
        found[f"live_{name}"], found[f"simulated_{name}"] = live, fmean(simulated)
        found[f"spread_{name}"] = stdev(simulated)
        found[f"ratio_{name}"] = live / fmean(simulated)
    return {name: round(value, 3) for name, value in found.items()}


def table(rows: dict[str, dict[str, float]]) -> str:
    """The means for people to read."""
    lines = [" " * 14 + "".join(f" {f'live {name}':>9} {'simulated':>15} {'ratio':>6}" for name in ("P50", "P95"))]
    for policy, row in rows.items():
        line = f"{policy:14}"
        for name in ("p50_s", "p95_s"):
            simulated = f"{row[f'simulated_{name}']:.1f} +- {row[f'spread_{name}']:.1f}"
            line += f" {row[f'live_{name}']:9.1f} {simulated:>15} {row[f'ratio_{name}']:6.3f}"
        lines.append(line)
    return "\n".join(lines)


@click.command(help=__doc__)
@click.option("--policies", default="vllm,ray,hexgen,flow", show_default=True, help="names with commas between them")
@click.option("--hop-ms", type=click.FloatRange(0, min_open=True), default=5.0, show_default=True,
              help="simulated: this machine's time from the end of a call to the next")  # fmt: skip
@plan_options
def main(policies: str, hop_ms: float, seeds: int, as_json: bool, **options: object) -> None:
    names = [name.strip() for name in policies.split(",")]
    try:
        plan = planned(names, **options)  # type: ignore[arg-type]
        pairs = compare(plan, names, seeds, hop_ms / 1000, lambda line: click.echo(line, err=True))
    except (BenchmarkError, EmbeddedServerError, HexgenError) as error:
        raise click.ClickException(str(error)) from None
    rows = {name: means([pair for pair in pairs if pair.policy == name]) for name in names}
    if as_json:
        click.echo(json.dumps({"policies": rows, "runs": [asdict(pair) for pair in pairs], **plan.about()}))
    else:
        click.echo(table(rows))


if __name__ == "__main__":
    main()
