"""A cell that is offered many times what it can do: it goes on at its pace, and refuses the rest at once.

Coordinators, two workers with simulated engines and their Redis, all processes. First what a workflow takes when the
cell is nearly idle, then how many the cell completes when it has as many as it may; then the flood. Every submission
is looked up at the end: it must have been refused, or have completed.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import redis
from chaos_checks import residue

from common.store.embedded import EmbeddedServer
from common.store.keys import Keys
from hexgen_flow.processes import Processes

WORKFLOW: dict[str, Any] = {
    "name": "chain",
    "stages": {
        "draft": {"prompt": "Draft an answer"},
        "mend": {"needs": ["draft"], "prompt": "Mend {{ draft.output }}"},
        "judge": {"needs": ["mend"], "prompt": "Judge {{ mend.output }}"},
    },
    "output": "judge.output",
}
WORKERS = {"fast": "a100", "slow": "a6000"}
ENGINE = ("--time-scale", "10", "--responder", "echo:150")
CALM = 4
"""Workflows at a time that a nearly idle cell has."""
RAMP = 1 / 3
"""Share of a run in which the cell is only filling: its pace is that of the rest."""
READY_S = 60.0
SETTLE_S = 120.0
TICK_S = 0.02
PAGE = 500
LEAST_GOODPUT = 0.9
REFUSED_BYTES, ENDED_BYTES = 1000, 10_000
"""What is kept of a submission for its submitter, at most: of a refused one, and of one that completed."""
SLACK_BYTES = 3 << 20
UNREAD_S = 1.0
"""So long the coordinators may take to notice that the stream is too long."""
RETRY_S = (1.0, 60.0)
Figures = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Plan:
    """seconds of a flood so many times as fast as the cell is; workflows, submissions: its limits."""

    seconds: float
    times: float
    workflows: int
    submissions: int
    coordinators: int


@dataclass(slots=True)
class Offer:
    """Submissions by their entries, in the ms of Redis time from `began_at` to `ended_at`; what there was at most."""

    began_at: int
    ended_at: int = 0
    entries: list[str] = field(default_factory=list)
    most_unread: int = 0
    most_live: int = 0


@dataclass(slots=True)
class Answers:
    """Seconds until submissions were refused and until they completed, and when; what became of the others.

    aimless: refusals that do not say when to try again.
    """

    refused_s: list[float] = field(default_factory=list)
    completed_s: list[float] = field(default_factory=list)
    completed_at: list[int] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    aimless: int = 0


class Gate:
    """Where submissions go in. `url` and `keys` of the cell."""

    def __init__(self, url: str, keys: Keys) -> None:
        self._keys = keys
        self.store: Any = redis.Redis.from_url(url)

    def closed(self, live: int, seconds: float) -> Offer:
        """As many as keep so many alive."""
        return self._offer(seconds, lambda _, waiting: live - waiting)

    def open(self, per_s: float, seconds: float) -> Offer:
        """So many each second, whatever becomes of them."""
        offered = 0

        def due(elapsed_s: float, _: int) -> int:
            nonlocal offered
            more = round(per_s * elapsed_s) - offered
            offered += more
            return more

        return self._offer(seconds, due)

    def _offer(self, seconds: float, due: Callable[[float, int], int]) -> Offer:
        """due: how many to submit, from the seconds since the beginning and what is unread and live."""
        made, began, elapsed_s = Offer(self._now()), time.monotonic(), 0.0
        while elapsed_s < seconds:
            unread, live = self.store.xlen(self._keys.submissions), self.store.zcard(self._keys.live)
            made.most_unread, made.most_live = max(made.most_unread, unread), max(made.most_live, live)
            pipeline = self.store.pipeline(transaction=False)
            for _ in range(due(elapsed_s, unread + live)):
                pipeline.xadd(self._keys.submissions, {"json": json.dumps({"workflow": "chain"})})
            made.entries += [entry.decode() for entry in pipeline.execute()]
            time.sleep(TICK_S)
            elapsed_s = time.monotonic() - began
        made.ended_at = self._now()
        return made

    def settle(self) -> list[str]:
        """Wait until nothing is left, at most SETTLE_S; what is left then."""
        until = time.monotonic() + SETTLE_S
        while self.store.zcard(self._keys.live) + self.store.xlen(self._keys.submissions) and time.monotonic() < until:
            time.sleep(0.1)
        while (left := residue(self.store, self._keys)) and time.monotonic() < until:
            time.sleep(0.5)
        return left

    def answers(self, entries: Sequence[str]) -> Answers:
        """What became of them."""
        found = Answers()
        for first in range(0, len(entries), PAGE):
            page = entries[first : first + PAGE]
            pipeline = self.store.pipeline(transaction=False)
            for entry in page:
                pipeline.xrevrange(self._keys.events(entry), count=1)
            for entry, last in zip(page, pipeline.execute(), strict=True):
                _note(found, entry, last)
        return found

    def memory(self) -> int:
        """Bytes that Redis uses."""
        return int(self.store.info("memory")["used_memory"])

    def _now(self) -> int:
        seconds, micros = self.store.time()
        return int(seconds * 1000 + micros // 1000)


def _note(found: Answers, entry: str, last: Sequence[Any]) -> None:
    """Put a submission with its last event where it belongs."""
    kind = last[0][1][b"type"] if last else b"nothing"
    ended_at = _ms(last[0][0].decode()) if last else 0
    took_s = (ended_at - _ms(entry)) / 1000
    if kind == b"rejected":
        found.refused_s.append(took_s)
        pause_s = json.loads(last[0][1][b"json"]).get("retry_after_s") or 0.0
        found.aimless += not RETRY_S[0] <= pause_s <= RETRY_S[1]
    elif kind == b"completed":
        found.completed_s.append(took_s)
        found.completed_at.append(ended_at)
    else:
        found.lost.append(f"submission {entry}: the last of it is {kind.decode()}")


def _ms(entry: str) -> int:
    return int(entry.partition("-")[0])


@dataclass(frozen=True, slots=True)
class Run:
    """Submissions, what became of them, and what was left when all should have ended."""

    offer: Offer
    answers: Answers
    left: list[str]

    @property
    def per_s(self) -> float:
        """Workflows that completed each second, once the cell was filled."""
        began, ended = self.offer.began_at, self.offer.ended_at
        since = began + RAMP * (ended - began)
        return sum(since <= at < ended for at in self.answers.completed_at) / ((ended - since) / 1000)


def measure(plan: Plan, folder: Path) -> tuple[Figures, list[str]]:
    """The figures, and what should not be."""
    keys = Keys("flood")
    with EmbeddedServer.start(folder / "redis") as server:
        environment = {"HEXGEN_REDIS_URL": server.url, "HEXGEN_NAMESPACE": keys.namespace}
        with Processes(folder / "logs", environment) as processes:
            gate = Gate(server.url, keys)
            start(plan, folder, processes, gate, keys)
            calm = run(gate, gate.closed(CALM, plan.seconds / 4))
            busy = run(gate, gate.closed(plan.workflows, plan.seconds / 2))
            limit(plan, environment)
            before = gate.memory()
            flood = run(gate, gate.open(plan.times * busy.per_s, plan.seconds))
            processes.check()
            figures = compare(calm, busy, flood) | {"memory_before": before, "memory_after": gate.memory()}
            return figures, faults(plan, figures, [calm, busy, flood])


def start(plan: Plan, folder: Path, processes: Processes, gate: Gate, keys: Keys) -> None:
    """Start all, and wait until all are there."""
    (folder / "workflows").mkdir()
    (folder / "workflows" / "chain.json").write_text(json.dumps(WORKFLOW))
    for number in range(plan.coordinators):
        processes.start(f"coordinator-{number}", ["coordinator", "--workflows", str(folder / "workflows")])
    for name, profile in WORKERS.items():
        processes.start(name, ["worker", "--instance", name, "--profile", profile, *ENGINE])
    until = time.monotonic() + READY_S
    wanted = [plan.coordinators, len(WORKERS)]
    while [gate.store.zcard(key) for key in (keys.coordinators, keys.instances)] != wanted:
        processes.check()
        if time.monotonic() > until:
            raise TimeoutError(f"the processes were not ready within {READY_S:.0f} s")
        time.sleep(0.1)


def limit(plan: Plan, environment: dict[str, str]) -> None:
    """Set the cell's limits, as an operator does."""
    command = [sys.executable, "-m", "hexgen_flow", "limits", "set"]
    for name, most in (("workflows", plan.workflows), ("submissions", plan.submissions)):
        subprocess.run([*command, name, str(most)], env=os.environ | environment, check=True, stdout=subprocess.DEVNULL)


def run(gate: Gate, offer: Offer) -> Run:
    """What becomes of what was offered."""
    left = gate.settle()
    return Run(offer, gate.answers(offer.entries), left)


def compare(calm: Run, busy: Run, flood: Run) -> Figures:
    """The flood beside what the cell does without one."""
    offer, told = flood.offer, flood.answers
    return {
        "capacity_per_s": round(busy.per_s, 2),
        "offered_per_s": round(len(offer.entries) / ((offer.ended_at - offer.began_at) / 1000), 1),
        "goodput": round(flood.per_s / busy.per_s, 3) if busy.per_s else 0.0,
        "offered": len(offer.entries),
        "accepted": len(told.completed_s) + len(told.lost),
        "completed": len(told.completed_s),
        "refused": len(told.refused_s),
        "lost": len(told.lost),
        "most_unread": offer.most_unread,
        "most_live": offer.most_live,
        "p95_s": {name: percentile(one.answers.completed_s, 95) for name, one in _named(calm, busy, flood)},
        "refused_within_s": {f"p{share}": percentile(told.refused_s, share) for share in (50, 99, 100)},
    }


def _named(*runs: Run) -> Iterator[tuple[str, Run]]:
    return zip(("calm", "busy", "flood"), runs, strict=True)


def percentile(found: Sequence[float], share: int) -> float:
    """0 of nothing."""
    in_order = sorted(found)
    return in_order[min(len(in_order) - 1, len(in_order) * share // 100)] if in_order else 0.0


def faults(plan: Plan, figures: Figures, runs: Sequence[Run]) -> list[str]:
    """What was lost, left over, or not bounded."""
    told = runs[-1].answers
    found = [line for one in runs for line in (*one.answers.lost, *one.left)]
    if told.aimless:
        found.append(f"{told.aimless} refusals do not say in how many seconds, 1 to 60, to try again")
    if figures["goodput"] < LEAST_GOODPUT:
        found.append(f"under the flood only {figures['goodput']} of what the cell can do was completed")
    if figures["most_live"] > plan.workflows:
        found.append(f"{figures['most_live']} workflows were live, {plan.workflows} may be")
    most_unread = plan.submissions + figures["offered_per_s"] * UNREAD_S
    if figures["most_unread"] > most_unread:
        found.append(f"{figures['most_unread']} submissions were unread, {most_unread:.0f} may be")
    grown = figures["memory_after"] - figures["memory_before"]
    may_grow = REFUSED_BYTES * figures["refused"] + ENDED_BYTES * figures["completed"] + SLACK_BYTES
    if grown > may_grow:
        found.append(f"Redis has grown by {grown} bytes, {may_grow} are what answers and results take")
    return found
