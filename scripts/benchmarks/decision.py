"""scripts/bench decision: what it takes to decide where one request goes: the pure policy alone, as it runs live.

Instances with work, of three kinds in turn. Each policy decides on the same requests; the least of several rounds
counts, as everything else on the machine only adds.
"""

import json
from dataclasses import dataclass

import click

from common import clock
from common.enginerecords import NONE
from common.policy.candidate import Candidate, candidate
from common.policy.dispatch import choose
from common.policy.line import plan
from common.policy.registry import POLICIES
from common.policy.rules import LEAST_COST, Rules
from common.profiles import A100, A6000, L40S

ROUNDS, DECISIONS = 7, 300


@dataclass(slots=True)
class Call:
    """A request that waits."""

    prompt_tokens: int
    expected_tokens: float
    weight: float = 1.0


@click.command()
@click.option("--instances", type=click.IntRange(1, 1000), default=16, show_default=True)
@click.option("--json", "as_json", is_flag=True)
def main(instances: int, as_json: bool) -> None:
    """Microseconds per decision, by policy."""
    found = {name: round(least_us(rules, instances), 1) for name, rules in POLICIES.items()}
    if as_json:
        click.echo(json.dumps({"instances": instances, "decision_us": found}))
        return
    for name, micros in found.items():
        click.echo(f"{name:14} {micros:6.1f} us")


def least_us(rules: Rules, instances: int) -> float:
    """Of one decision."""
    least = float("inf")
    for _ in range(ROUNDS):
        cluster = [busy(at) for at in range(instances)]
        calls = [Call(200 + 37 * at % 12_000, 20.0 + at % 700) for at in range(DECISIONS)]
        began = clock.monotonic_s()
        for turn, call in enumerate(calls):
            decide(rules, call, cluster, turn)
        least = min(least, (clock.monotonic_s() - began) / DECISIONS)
    return least * 1e6


def decide(rules: Rules, call: Call, cluster: list[Candidate], turn: int) -> int:
    """One decision, without its effects: that the cluster is the same for the next is a few assignments."""
    count = len(cluster)
    if rules.dispatch != LEAST_COST:
        return choose(rules, call, cluster, range(count), count, turn, (0.3, 0.6))
    targets = [NONE]
    plan([call], [0], 1, cluster, count, [[0] * count], rules.weights, targets)
    if targets[0] != NONE:
        cluster[targets[0]] = busy(targets[0])
    else:
        for one in cluster:
            one.planned, one.planned_tokens, one.planned_kv_time = 0, 0.0, 0.0
    return targets[0]


def busy(at: int) -> Candidate:
    """An instance in the middle of its work."""
    found = candidate((A100, A6000, L40S)[at % 3])
    found.running, found.kv_tokens, found.unprefilled_tokens = 8, 20_000, 100
    found.weight, found.kv_time, found.token_s = 8.0, 1e6, 0.05
    found.queued, found.queued_tokens, found.backlog_s = 2, 300.0, 20.0 + at
    return found


if __name__ == "__main__":
    main()
