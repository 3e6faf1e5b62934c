"""The tuner against a step in the load, in simulated time: what it chooses, how soon, and what that is worth.

A simulated cell serves workflows under `hexgen`. The tuner's own judgement has its rounds when they are due, sees what
a live one would see by then (workflows that have completed, arrivals), and its choices take effect from then on. The
same workflows run with alpha fixed. The cell runs as plain Python, since its parameters change: it takes minutes.
"""

import json
from collections import defaultdict
from dataclasses import replace
from typing import Any

import click
import numpy as np

from common.policy.registry import policy
from common.policy.rules import Rules
from common.recorded import Recorded, RecordedCall
from coordinator.replay import Replay, arrival_rate, burstiness, warm
from coordinator.simulator import loop, simulation
from coordinator.simulator.cluster import load_cluster
from coordinator.simulator.expectation import Expectation
from coordinator.simulator.source import load_trace
from coordinator.simulator.workload import Workload, draw
from coordinator.tuner import ENOUGH, Limits, Memory, Situation, decide, is_due
from coordinator.tuning import Values

BEAT_S = 5.0
INTERVAL_S, SHARE, CPU_S = 30.0, 0.05, 1.3
POLICY = "hexgen"
FIXED = (0.9, 0.5, 0.3)


class Cell:
    """A cell under simulation with a tuner at its side: `rules` are those in force."""

    def __init__(self, workload: Workload, cluster: str, alpha: float) -> None:
        self.workload, self.profiles = workload, load_cluster(cluster)
        self.calls = _recorded_calls(workload)
        self.values: Values = {"alpha": alpha}
        self.rules: Rules = policy(POLICY, self.values)
        self.memory, self.since, self.decided_at, self.last = Memory(), 0, -INTERVAL_S, {"cpu_s": 0.0, "rate": 0.0}
        self.beat_at = 0.0
        self.decisions: list[dict[str, Any]] = []

    def beat(self, now_s: float) -> None:
        """As much of the tuner's life as lies before this moment."""
        while self.beat_at + BEAT_S <= now_s:
            self.beat_at += BEAT_S
            self._look(self.beat_at)

    def _look(self, now_s: float) -> None:
        now, arrivals = round(1000 * now_s), self.workload.workflows["arrival"]
        times = [round(1000 * at) for at in arrivals[arrivals <= now_s]][-200:]
        rate = arrival_rate(times, now)
        told = {"cpu_s": CPU_S, "rate": rate.per_s}
        if not is_due(self.last, now_s - self.decided_at, rate.per_s, INTERVAL_S, SHARE):
            return
        records = self._records(now_s)
        recent = [one for one in records if one.arrival_at >= self.since]
        situation = Situation(POLICY, self.values, rate.per_s, len(records), recent)
        if len(records) < ENOUGH:
            return
        evaluate = Replay(records, self.profiles, POLICY, rate, burstiness(times)).p95_s
        found = decide(situation, self.memory, Limits(), evaluate, seed=now)
        self.memory, self.decided_at, self.last = found.memory, now_s, told
        if found.values is not None:
            change = {"at_s": now_s, "action": found.action, "before": self.values, "values": found.values}
            self.decisions.append(change | told)
            self.values, self.since, self.rules = found.values, now, policy(POLICY, found.values)

    def _records(self, now_s: float) -> list[Recorded]:
        rows = self.workload.workflows
        ended = [number for number, row in enumerate(rows) if 0.0 < row["ended_at"] <= now_s]
        ended.sort(key=lambda number: float(rows[number]["ended_at"]))
        found = [_record(number, rows[number], self.calls[number], self.values) for number in ended[-1000:]]
        return sorted(found, key=lambda one: one.arrival_at)


def _record(number: int, row: Any, calls: tuple[RecordedCall, ...], values: Values) -> Recorded:
    arrival_at, deadline_at, ended_at = (round(1000 * float(row[name])) for name in ("arrival", "deadline", "ended_at"))
    return Recorded("w", f"t{number}", arrival_at, deadline_at, ended_at, POLICY, values, calls)


def _recorded_calls(workload: Workload) -> list[tuple[RecordedCall, ...]]:
    """What each workflow's record will say of its calls."""
    needs: dict[int, list[int]] = defaultdict(list)
    first: dict[int, int] = {}
    for at, row in enumerate(workload.calls):
        first.setdefault(int(row["workflow"]), at)
        for child in workload.children[row["first_child"] : row["first_child"] + row["children"]]:
            needs[int(child)].append(at - first[int(row["workflow"])])
    found: dict[int, list[RecordedCall]] = defaultdict(list)
    for at, (row, stage) in enumerate(zip(workload.calls, workload.stages, strict=True)):
        tokens = (int(row["prompt_tokens"]), int(row["output_tokens"]), 0)
        call = RecordedCall(stage, *tokens, tuple(needs[at]), 0.0, float(row["tool_s"]))
        found[int(row["workflow"])].append(call)
    return [tuple(found[number]) for number in range(len(workload.workflows))]


def tuned(workload: Workload, cluster: str, alpha: float) -> Cell:
    """The workload, used up, and the cell that served it."""
    cell, ready, compiled_run = Cell(workload, cluster, alpha), loop.ready, simulation.compiled_run

    def ready_now(world: Any, _: Rules, q: int, now: float, timers: Any) -> None:
        simulation.compiled_run = compiled_run  # the tuner's replays are compiled
        cell.beat(now)
        ready(world, cell.rules, q, now, timers)

    loop.ready, simulation.compiled_run = ready_now, lambda: None  # type: ignore[assignment]
    try:
        simulation.simulate(workload, cell.profiles, cell.rules)
    finally:
        loop.ready, simulation.compiled_run = ready, compiled_run
    return cell


def stepped(trace: str, cluster: str, counts: tuple[int, int], rates: tuple[float, float], seed: int) -> Workload:
    """Poisson arrivals at one rate, then at the other."""
    drawn, profiles = load_trace(trace, prefixes=False), load_cluster(cluster)
    workload = draw(drawn, Expectation(drawn, profiles), count=sum(counts), rate=rates[0], seed=seed, slo_s=500.0)
    gaps = np.diff(workload.workflows["arrival"], prepend=0.0)
    gaps[counts[0] :] *= rates[0] / rates[1]
    workload.workflows["arrival"] = np.cumsum(gaps)
    workload.workflows["deadline"] = workload.workflows["arrival"] + 500.0
    return workload


def p95_after(workload: Workload, first: int) -> float:
    """Of the workflows that arrived after the step, in s."""
    rows = workload.workflows[first:]
    return float(np.percentile(rows["ended_at"] - rows["arrival"], 95))


def fresh(workload: Workload) -> Workload:
    return replace(workload, calls=workload.calls.copy(), workflows=workload.workflows.copy())


@click.command()
@click.option("--cluster", default="hetero1", show_default=True)
@click.option("--trace", default="generated:text2sql-3,workflows=300,seed=1", show_default=True)
@click.option("--rates", nargs=2, type=float, default=(0.02, 0.075), show_default=True, help="before, after (per s)")
@click.option("--counts", nargs=2, type=int, default=(100, 250), show_default=True, help="workflows before, after")
@click.option("--seeds", type=click.IntRange(1, 20), default=3, show_default=True)
@click.option("--json", "as_json", is_flag=True)
def main(
    cluster: str, trace: str, rates: tuple[float, float], counts: tuple[int, int], seeds: int, as_json: bool
) -> None:
    """A step in the load, with the tuner and with alpha fixed."""
    warm()
    runs = [_run(trace, cluster, counts, rates, seed) for seed in range(seeds)]
    for run in runs if as_json else []:
        click.echo(json.dumps(run))
    if as_json:
        return
    for run in runs:
        click.echo(f"seed {run['seed']}: the step is at {run['step_s']:.0f} s")
        for told in run["decisions"]:
            change = f"alpha {told['before']['alpha']:.2f} -> {told['values']['alpha']:.2f}"
            at_s = told["at_s"] - run["step_s"]
            click.echo(f"  {at_s:+7.0f} s  {told['action']}: {change} at {told['rate']:.3f} workflows/s")
        p95 = ", ".join(f"{name} {value:.0f} s" for name, value in run["p95_after_s"].items())
        click.echo(f"  P95 of those that arrived after it: {p95}")
    names = runs[0]["p95_after_s"]
    ratios = {name: np.mean([run["p95_after_s"][name] / run["p95_after_s"]["tuned"] for run in runs]) for name in names}
    click.echo("P95 over that of the tuned: " + ", ".join(f"{name} {ratio:.2f}" for name, ratio in ratios.items()))


def _run(trace: str, cluster: str, counts: tuple[int, int], rates: tuple[float, float], seed: int) -> dict[str, Any]:
    workload = stepped(trace, cluster, counts, rates, seed)
    served = fresh(workload)
    cell = tuned(served, cluster, 0.5)
    step_s = float(workload.workflows["arrival"][counts[0]])
    before = [told["values"]["alpha"] for told in cell.decisions if told["at_s"] < step_s]
    p95 = {"tuned": p95_after(served, counts[0])}
    for name, alpha in [("tuned until the step", before[-1] if before else 0.5), *((f"alpha {a}", a) for a in FIXED)]:
        fixed = fresh(workload)
        simulation.simulate(fixed, cell.profiles, policy(POLICY, {"alpha": alpha}))
        p95[name] = p95_after(fixed, counts[0])
    return {"seed": seed, "step_s": step_s, "decisions": cell.decisions, "p95_after_s": p95}


if __name__ == "__main__":
    main()
