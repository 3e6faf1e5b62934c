"""scripts/compare ray-serve: hexgen-flow beside Ray Serve, on the same workflows, arrivals, lengths and engines.

Ray Serve runs one deployment whose replicas are the unequal instances, with its own router (power of two choices, 5
ongoing requests a replica, its back-off scaled down as all times are), and a client that runs the workflows. Both run
one after the other on this machine, every part a process. Times are printed as of the real engines.
"""

import json
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from statistics import fmean
from typing import Any

import click
from chains import BenchmarkError
from comparing import Plan, plan_options, planned
from contestants import HERE
from processes import answer, end_in_order
from replay import Document, documents, percentile
from replay_ours import run

from common.errors import HexgenError
from common.store.embedded import EmbeddedServerError

PEER = "ray serve"
RAY_ENVIRONMENT = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0"}
"""Its replicas are to get as much of the CPU as our workers."""
TEMPORARY = "/tmp" if Path("/tmp").is_dir() else None
"""Ray's sockets stand in there, and their paths must be short."""


def ray_serve(plan: Plan, known: Sequence[Document], seed: int) -> list[float]:
    """Latencies in s as of the real engines. Raises BenchmarkError."""
    load = plan.load(seed)
    arrivals = [(at_s / plan.scale, which) for at_s, which in load.arrivals_s()]
    task = {
        "profiles": [asdict(profile) for profile in plan.profiles],
        "time_scale": plan.scale,
        "prefix_cache": plan.prefix_cache,
        "documents": known,
        "arrivals": arrivals,
    }
    with tempfile.TemporaryDirectory(prefix="ray-", dir=TEMPORARY) as scratch:
        file = Path(scratch) / "task.json"
        file.write_text(json.dumps(task))
        command = (sys.executable, str(HERE / "ray_serve_drive.py"), str(file))
        environment = os.environ | RAY_ENVIRONMENT | {"PYTHONPATH": str(HERE)}
        longest_s = arrivals[-1][0] + plan.give_up_s
        told = answer(command, environment, Path(scratch), {}, longest_s, signal.SIGTERM)  # it has children to end
    if not all(told["served"]):
        raise BenchmarkError(f"Ray Serve left an instance idle, requests by instance: {told['served']}")
    return [plan.scale * latency for latency in told["latency_s"]]


def ours(plan: Plan, known: Sequence[Document], policy: str, seed: int) -> list[float]:
    """Latencies in s as of the real engines. Raises BenchmarkError."""
    ended = run(plan.deployment(policy), plan.load(seed), known, plan.give_up_s)
    return [one.latency_s for one in ended]


def compare(plan: Plan, policy: str, seeds: int, tell: Callable[[str], None]) -> list[dict[str, Any]]:
    """Both, seed by seed."""
    known = documents(plan.trace)
    runs = []
    for seed in range(seeds):
        for name in (PEER, policy):
            latencies = ray_serve(plan, known, seed) if name == PEER else ours(plan, known, policy, seed)
            figures = {f"p{percent}_s": round(percentile(latencies, percent), 3) for percent in (50, 95)}
            runs.append({"name": name, "seed": seed, **figures})
            tell(f"seed {seed}, {name}: P50 {figures['p50_s']:.1f} s, P95 {figures['p95_s']:.1f} s")
    return runs


def summary(runs: Sequence[dict[str, Any]], policy: str) -> dict[str, Any]:
    """Means over seeds, and how many times Ray Serve's are ours."""
    found: dict[str, Any] = {
        name: {key: round(fmean(run[key] for run in runs if run["name"] == name), 3) for key in ("p50_s", "p95_s")}
        for name in (PEER, policy)
    }
    found["ratio"] = {key: round(found[PEER][key] / found[policy][key], 3) for key in ("p50_s", "p95_s")}
    return found


@click.command(help=__doc__)
@plan_options
@click.option("--policy", default="flow", show_default=True, help="of hexgen-flow")
def main(policy: str, seeds: int, as_json: bool, **options: Any) -> None:
    try:
        plan = planned([policy], **options)
        runs = compare(plan, policy, seeds, lambda line: click.echo(line, err=True))
    except (BenchmarkError, EmbeddedServerError, HexgenError) as error:
        raise click.ClickException(str(error)) from None
    found = summary(runs, policy)
    if as_json:
        click.echo(json.dumps({**found, "runs": runs, "ray": version("ray"), **plan.about()}))
        return
    click.echo(f"{'means over seeds':16} {'P50 s':>8} {'P95 s':>8}")
    for name, row in found.items():
        form = "8.2f" if name == "ratio" else "8.1f"
        click.echo(f"{name:16} {row['p50_s']:{form}} {row['p95_s']:{form}}")


if __name__ == "__main__":
    end_in_order()
    main()
