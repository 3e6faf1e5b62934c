"""The command `plan`: how many workflows per second clusters hold, and which is the cheapest that holds enough."""

import json
from typing import Any

import click

from common import clock
from common.errors import InvalidDocument
from common.options import Finite, json_option
from common.policy.registry import DEFAULT
from common.profiles import A100
from coordinator.commands.simulate_options import ABOVE_0, RATE, load_options, progress


@click.command()
@json_option
@load_options
@click.option("--cluster", "wanted", multiple=True, required=True, metavar="CLUSTER[=PRICE]",
              help="a name or YAML file, with its price an hour; or a file of several (repeatable)")  # fmt: skip
@click.option("--rate", type=RATE, help="workflows per second that must be held")
@click.option("--attainment", type=Finite(0, 1, min_open=True), default=0.95, show_default=True,
              help="the share of workflows that must meet their deadline")  # fmt: skip
@click.option("--slo-scale", type=ABOVE_0, default=3.0, show_default=True,
              help="the deadline, in mean latencies of a workflow alone on unlimited A100s")  # fmt: skip
@click.option("--slo-s", type=ABOVE_0, help="the deadline in seconds, instead of --slo-scale")
@click.option("--policy", default=DEFAULT, show_default=True)
def plan(
    wanted: tuple[str, ...], rate: float | None, attainment: float, slo_scale: float, slo_s: float | None, policy: str,
    as_json: bool, **load: Any,
) -> None:  # fmt: skip
    """Find the cheapest cluster that holds a load, and the highest rate each holds, in simulated time."""
    from coordinator.commands import plan_table  # numpy and all: only for those who simulate
    from coordinator.simulator.capacity import Load, cheapest, judge_all
    from coordinator.simulator.cluster import load_candidates
    from coordinator.simulator.comparison import policies
    from coordinator.simulator.expectation import alone_s
    from coordinator.simulator.source import load_trace

    started = clock.monotonic_s()
    if len(policies(policy)) > 1:
        raise InvalidDocument("--policy", f"must be one policy, not {policy}")
    candidates = [candidate for name in wanted for candidate in load_candidates(name)]
    trace = load_trace(load["trace"], prefixes=load["prefix_cache"])
    slo_s = slo_s or slo_scale * alone_s(trace, A100)
    goal = Load(slo_s, attainment, load["seeds"], load["workflows"], load["arrivals"])
    with progress("clusters") as tell:
        verdicts = judge_all(trace, policy, goal, rate, candidates, tell)
    best = cheapest(verdicts, rate)
    if as_json:
        about = {"policy": policy, "rate": rate, "attainment": attainment, "slo_s": slo_s}
        found = {"candidates": [plan_table.told(one) for one in verdicts], "cheapest": best and best.candidate.name}
        click.echo(json.dumps({**found, **about, "elapsed_s": round(clock.monotonic_s() - started, 3)}))
    else:
        plan_table.show(verdicts, goal, rate, best)
