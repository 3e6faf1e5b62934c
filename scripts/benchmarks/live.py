"""scripts/compare live: the same workload through real processes and through the simulator, policy by policy.

Live are a Redis server, a coordinator and a worker for each instance, every one a process, with simulated engines that
run --scale times faster than the real ones; each run has them anew. The simulator is given the same workflows, arrivals
and lengths, and the same means to know. Where all depends on who comes first by a millisecond (round robin on
unequal instances), one run of it says little: it runs several times, each with another delay between calls, around the
one measured on this machine beforehand. Times are printed as of the real engines.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from multiprocessing import get_context
from statistics import fmean, stdev

import click
from chains import BenchmarkError
from comparing import Plan, plan_options, planned
from processes import end_in_order
from replay import Document, documents, percentile
from replay_ours import Ended, run

from common.errors import HexgenError
from common.policy.registry import policy as rules_of
from common.store.embedded import EmbeddedServerError
from coordinator.simulator.simulation import simulate
from coordinator.simulator.trace import TracedCall, TracedWorkflow

PREDICTIONS = 20
SPREAD = 0.2
"""The hops of the predictions lie so much around the one measured, up and down."""
PROBE = (TracedWorkflow(tuple(TracedCall("probe", 64, 8, (at - 1,) if at else ()) for at in range(20))),)
PROBES, PROBE_RATE = 4, 0.05
"""So many workflows with next to nothing to do, at so many a second, tell what this machine adds to each call."""


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


@dataclass(frozen=True, slots=True)
class Job:
    """A pair to be made."""

    plan: Plan
    policy: str
    seed: int
    hop_s: float


def latency(values: Sequence[float]) -> Latency:
    """Percentiles as the simulator takes them."""
    return Latency(percentile(values, 50), percentile(values, 95))


def simulated(plan: Plan, policy: str, seed: int, hop_s: float) -> list[float]:
    """Latencies. hop_s: from a call's end to the next call, in this machine's time."""
    load, rules = plan.load(seed), rules_of(policy, plan.parameters(policy))
    found: list[float] = simulate(load.workload(), load.profiles, rules, hop_s=plan.scale * hop_s).latency_s.tolist()
    return found


def live(plan: Plan, known: Sequence[Document], policy: str, seed: int) -> list[Ended]:
    """The same with processes."""
    return run(plan.deployment(policy), plan.load(seed), known, plan.give_up_s)


def measured_hop_s(plan: Plan, policy: str) -> float:
    """This machine's time from a call's end to the next call: what a chain of short calls takes beyond its engines."""
    probe = replace(plan, trace=PROBE, workflows=PROBES, rate=PROBE_RATE, arrivals="poisson")
    took_s = fmean(one.latency_s for one in live(probe, documents(PROBE), policy, seed=0))
    engines_s = fmean(simulated(probe, policy, seed=0, hop_s=0.0))
    return max(0.0, took_s - engines_s) / plan.scale / len(PROBE[0].calls)


def pair(job: Job) -> Pair:
    """One run live, and its predictions."""
    plan, policy, seed, hop_s = job.plan, job.policy, job.seed, job.hop_s
    hops = [hop_s * (1.0 + SPREAD * (2.0 * number / (PREDICTIONS - 1) - 1.0)) for number in range(PREDICTIONS)]
    predictions = tuple(latency(simulated(plan, policy, seed, hop)) for hop in hops)
    ended = live(plan, documents(plan.trace), policy, seed)
    late_s = max(one.late_s for one in ended)
    return Pair(policy, seed, latency([one.latency_s for one in ended]), predictions, late_s)


def compare(
    plan: Plan, policies: Sequence[str], seeds: int, hop_s: float | None, together: int, tell: Callable[[str], None]
) -> tuple[dict[str, float], list[Pair]]:
    """The hop of each policy, measured if not given, and all runs, policy by policy within a seed.

    So a busy minute of the machine does not fall on one policy alone.
    """
    found = []
    # Started anew, not forked, and each run in the main thread of its process: its children are tied to that.
    with get_context("spawn").Pool(together, initializer=end_in_order) as pool:
        hops_s = dict.fromkeys(policies, hop_s or 0.0)
        if hop_s is None:
            # As many at a time as of the runs: they get in each other's way as much.
            measured = pool.starmap(measured_hop_s, [(plan, policy) for policy in policies], chunksize=1)
            hops_s = dict(zip(policies, measured, strict=True))
        jobs = [Job(plan, policy, seed, hops_s[policy]) for seed in range(seeds) for policy in policies]
        for one in pool.imap_unordered(pair, jobs):
            expected_s = fmean(latency.p95_s for latency in one.simulated)
            figures = f"P95 {one.live.p95_s:.1f} s live, {expected_s:.1f} s simulated, {one.late_s:.2f} s late"
            tell(f"seed {one.seed}, {one.policy}: {figures}")
            found.append(one)
        pool.close()  # else they are terminated, in the midst of their own end
        pool.join()
    return hops_s, found


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
@click.option("--hop-ms", type=click.FloatRange(0, min_open=True), show_default="measured",
              help="simulated: this machine's time from the end of a call to the next")  # fmt: skip
@click.option("--together", type=click.IntRange(1, 64), default=1, show_default=True, help="live runs at a time")
@plan_options
def main(policies: str, hop_ms: float | None, together: int, seeds: int, as_json: bool, **options: object) -> None:
    names = [name.strip() for name in policies.split(",")]
    try:
        plan = planned(names, **options)  # type: ignore[arg-type]
        hop_s = None if hop_ms is None else hop_ms / 1000
        hops_s, pairs = compare(plan, names, seeds, hop_s, together, lambda line: click.echo(line, err=True))
    except (BenchmarkError, EmbeddedServerError, HexgenError) as error:
        raise click.ClickException(str(error)) from None
    rows = {name: means([one for one in pairs if one.policy == name]) for name in names}
    told_ms = {name: round(1000 * hop_s, 2) for name, hop_s in hops_s.items()}
    if as_json:
        runs = [asdict(one) for one in pairs]
        click.echo(json.dumps({"policies": rows, "runs": runs, "hop_ms": told_ms, **plan.about()}))
    else:
        click.echo(table(rows))
        hops = ", ".join(f"{name} {ms}" for name, ms in told_ms.items())
        click.echo(f"from a call's end to the next, ms of this machine: {hops}")


if __name__ == "__main__":
    end_in_order()
    main()
