"""scripts/bench dispatch: chains of no-op requests through hexgen-flow and through job queues, on the same server.

Every run has a fresh server (AOF, fsync every second), one worker process and a load process. All chains are in flight
from the start; within a chain each request waits for the one before. Figures: requests per second from the first
enqueuing to the last completion, and ms from the completion of a request (the engine or the job's body has its result)
to the moment at which the next request of its chain is claimable (the call that put it in the queue has returned).
"""

import json
import os
import platform
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import click
from chains import BenchmarkError, Figures, Load, middle
from contestants import CONTESTANTS, HERE, Contestant
from processes import answer, end_in_order, running

from common.store.embedded import EmbeddedServer, EmbeddedServerError

BASE = "rq"
Measured = dict[tuple[str, str], list[Figures]]
"""Runs by name and by who enqueued the next request."""


def measure(contestant: Contestant, successor: str, load: Load, timeout_s: float) -> tuple[Figures, str]:
    """One run on a fresh server, and the server's version. Raises BenchmarkError."""
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        server = stack.enter_context(EmbeddedServer.start(scratch / "server", extra_args=("--appendfsync", "everysec")))
        environment = os.environ | {
            "PYTHONPATH": str(HERE),
            "BENCH_URL": server.url,
            "BENCH_SUCCESSOR": successor,
            "RQ_REDIS_URL": server.url,
            "HEXGEN_REDIS_URL": server.url,
        }
        others = {}
        for number, command in enumerate(contestant.processes):
            log = scratch / f"{number}.log"
            others[log] = stack.enter_context(running(command, environment, scratch, log, contestant.on_parent_death))
        size = (str(load.chains), str(load.length), str(load.payload_bytes))
        told = answer((*contestant.driver, *size), environment, scratch, others, timeout_s)
        return Figures(**told), server.version


def measure_all(names: list[str], load: Load, repeats: int, timeout_s: float) -> tuple[Measured, str]:
    """Every name in turn, as often as asked for, so that a busy minute of the machine does not fall on one of them."""
    measured: Measured = {}
    server = ""
    for number in range(repeats):
        for name in names:
            for successor in CONTESTANTS[name].successors:
                figures, server = measure(CONTESTANTS[name], successor, load, timeout_s)
                measured.setdefault((name, successor), []).append(figures)
                progress = f"run {number + 1} of {repeats}, {load.payload_bytes} bytes, {name} ({successor})"
                click.echo(f"{progress}: {figures.requests_per_s:.0f} requests/s", err=True)
    return measured, server


def row(load: Load, measured: Measured) -> dict[str, Any]:
    """The median of each name's runs, in the variant that has the most requests per second."""
    results: dict[str, dict[str, Any]] = {}
    for (name, successor), runs in measured.items():
        figures = middle(runs)
        if name not in results or figures.requests_per_s > results[name]["requests_per_s"]:
            rounded = {key: round(value, 3) for key, value in asdict(figures).items()}
            results[name] = {**rounded, "next_enqueued_by": successor}
    found: dict[str, Any] = {"payload_bytes": load.payload_bytes, "results": results}
    if BASE in results:
        base = results[BASE]["requests_per_s"]
        found[f"times_{BASE}"] = {name: round(result["requests_per_s"] / base, 2) for name, result in results.items()}
    return found


def table(found: dict[str, Any]) -> str:
    """A row for people to read."""
    lines = [f"\n{found['payload_bytes']} bytes per request"]
    lines.append(f"{'':12} {'requests/s':>10} {'x ' + BASE:>7} {'p50 ms':>8} {'p99 ms':>8}  next enqueued by")
    for name, result in found["results"].items():
        times = found.get(f"times_{BASE}", {}).get(name, "")
        lines.append(
            f"{name:12} {result['requests_per_s']:10.0f} {times:>7} {result['p50_ms']:8.2f} {result['p99_ms']:8.2f}"
            f"  {result['next_enqueued_by']}"
        )
    return "\n".join(lines)


@click.command(help=__doc__)
@click.option("--chains", type=click.IntRange(1, 10_000), default=200, show_default=True, help="chains in flight")
@click.option("--length", type=click.IntRange(2, 200), default=20, show_default=True, help="requests in a chain")
@click.option("--payload", "payloads", type=click.IntRange(1, 500_000), multiple=True, default=(2048, 46080),
              show_default=True, help="bytes of a request's prompt (repeatable)")  # fmt: skip
@click.option("--only", metavar="NAMES", default=",".join(CONTESTANTS), show_default=True, help="separated by commas")
@click.option("--repeats", type=click.IntRange(1, 100), default=3, show_default=True, help="runs; the median counts")
@click.option(
    "--timeout-s", type=click.FloatRange(1), default=300.0, show_default=True, help="longest that a run may take"
)
@click.option("--json", "as_json", is_flag=True, help="print one JSON object on stdout and nothing else")
def main(
    chains: int, length: int, payloads: tuple[int, ...], only: str, repeats: int, timeout_s: float, as_json: bool
) -> None:
    names = [name.strip() for name in only.split(",")]
    if unknown := [name for name in names if name not in CONTESTANTS]:
        raise click.BadParameter(f"{unknown[0]!r} is not one of {', '.join(CONTESTANTS)}", param_hint="--only")
    rows, server = [], ""
    try:
        for payload in payloads:
            load = Load(chains, length, payload)
            measured, server = measure_all(names, load, repeats, timeout_s)
            rows.append(row(load, measured))
            if not as_json:
                click.echo(table(rows[-1]))
    except (BenchmarkError, EmbeddedServerError) as error:
        raise click.ClickException(str(error)) from None
    if as_json:
        about = {"chains": chains, "length": length, "repeats": repeats} | machine(names) | {"redis_version": server}
        click.echo(json.dumps({"rows": rows, **about}))


def machine(names: list[str]) -> dict[str, Any]:
    """What the figures depend on beside the load."""
    packages = {name: name.replace("_", "-") for name in names}
    return {
        "python": platform.python_version(),
        "cpus": len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count(),
        "machine": platform.machine(),
        "versions": {name: version(package) for name, package in packages.items()},
    }


if __name__ == "__main__":
    end_in_order()
    main()
