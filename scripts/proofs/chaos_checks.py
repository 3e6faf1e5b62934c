"""What must hold when all is quiet: nothing lost, nothing twice, nothing left over. Looks only, with a plain client."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import redis

from common.store.keys import GROUP, Keys
from hexgen_flow.client import ENDS, Client, Event, NotInTime

GONE = ("queue:", "claimed:", "request:")
"""Keys of these kinds are there only for what has not ended."""


@dataclass(slots=True)
class Findings:
    """A line for each thing that should not be. wrong: an end that nothing accounts for."""

    lost: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    double_effects: list[str] = field(default_factory=list)
    residue: list[str] = field(default_factory=list)
    ends: Counter[str] = field(default_factory=Counter)
    amended: int = 0

    @property
    def clean(self) -> bool:
        return not (self.lost or self.wrong or self.double_effects or self.residue)


def judge(
    client: Client, answers: dict[str, Any], cancelled: set[str], found: Findings,
    slo_s: float = 0.0, amended: Mapping[str, Sequence[int]] | None = None,
) -> None:  # fmt: skip
    """Each workflow by its events: how it ended, and whether that and the way there are legal.

    amended: where workflows with an SLO of slo_s were amended, the SLOs asked for, in ms.
    """
    for workflow, answer in answers.items():
        events = _events(client, workflow)
        found.double_effects += [f"workflow {workflow}: {fault}" for fault in disorder(events)]
        end = events[-1] if events and events[-1].type in ENDS else None
        if end is None:
            found.lost.append(f"workflow {workflow} has not ended; its last event: {events[-1:]}")
            continue
        found.ends[end.type] += 1
        if amended is not None:
            wrong, twice = amendments(events, slo_s, amended.get(workflow, ()))
            found.wrong += [f"workflow {workflow}: {fault}" for fault in wrong]
            found.double_effects += [f"workflow {workflow}: {fault}" for fault in twice]
            found.amended += sum(event.type == "amended" for event in events)
        right = end.data["output"] == answer if end.type == "completed" else workflow in cancelled
        if not right or end.type not in ("completed", "cancelled"):
            found.wrong.append(f"workflow {workflow}: {end.type} {end.data}, expected {answer!r}")


def _events(client: Client, workflow: str) -> list[Event]:
    events: list[Event] = []
    try:
        for event in client.events(workflow, timeout_s=0.5):
            events.append(event)
    except NotInTime:
        pass
    return events


def disorder(events: Sequence[Event]) -> Iterator[str]:
    """What is illegal in the events of one workflow, from its first one on."""
    places = [(event.type, event.data.get("stage", "")) for event in events if event.type not in ("token", "waiting")]
    kinds = [kind if kind in ENDS else f"{kind} {stage}".strip() for kind, stage in places]
    once = Counter(kind for kind in kinds if kind != "amended")
    yield from (f"{kind} {count} times" for kind, count in once.items() if count > 1)
    if sum(kind in ENDS for kind in kinds) > 1 or any(kind in ENDS for kind in kinds[:-1]):
        yield "goes on after its end"
    if kinds and kinds[0] != "accepted":
        yield f"begins with {kinds[0]}"
    started: set[str] = set()
    for event in events:
        stage = event.data.get("stage", "")
        if event.type == "stage_started":
            started.add(stage)
        elif event.type == "stage_completed" and event.data["status"] == "completed" and stage not in started:
            yield f"{stage} completed before it started"
        elif event.type == "stage_completed":
            started.discard(stage)
        elif event.type == "completed" and started:
            yield f"completed while {sorted(started)} had not"


def amendments(events: Sequence[Event], slo_s: float, asked: Sequence[int]) -> tuple[list[str], list[str]]:
    """What is wrong in the amendments of a workflow that has ended, and what was told more often than it was asked.

    slo_s: the one it was submitted with; asked: those that were asked for later, in ms.
    """
    arrival_at = events[0].data["deadline_at"] - round(1000 * slo_s)
    told = [event.data["deadline_at"] - arrival_at for event in events if event.type == "amended"]
    last_ms, end_ms = [round(1000 * slo_s), *told][-1], round(1000 * events[-1].data["slo_s"])
    wrong = [] if end_ms == last_ms else [f"ends with an SLO of {end_ms} ms, and the last one told was {last_ms} ms"]
    return wrong, [f"was amended to {one} ms once too often" for one in (Counter(told) - Counter(asked)).elements()]


def residue(store: "redis.Redis", keys: Keys) -> list[str]:
    """What is left of workflows that have all ended; counters are held against a recount of what they count."""
    read: Any = store
    found = [f"{key} is left" for key in _left(read, keys)]
    for stream in (keys.submissions, keys.completions):
        waiting, pending = read.xlen(stream), read.xpending(stream, GROUP)["pending"]
        found += [f"{stream} has {waiting} entries, {pending} pending"] if waiting or pending else []
    gone = (keys.live, keys.running, keys.workflow_tenants, keys.leases, keys.delayed, keys.lanes, keys.outstanding)
    for name in gone:
        found += [f"{name} is left"] if read.exists(name) else []
    counted = recount(read, keys)
    for name, load in read.hgetall(keys.backlog).items():
        if int(load) != counted.pop(name.decode(), 0):
            found.append(f"the backlog of {name.decode()} is {int(load)} ms, not what its requests add up to")
    return found + [f"{name} has work that its backlog does not count" for name, load in counted.items() if load]


def recount(read: Any, keys: Keys) -> Counter[str]:
    """ms of work on each instance, by its requests' records."""
    counted: Counter[str] = Counter()
    for key in read.scan_iter(keys.request("*"), count=1000):
        instance, load = read.hmget(key, "instance", "load_ms")
        if instance:
            counted[instance.decode()] += int(load or 0)
    return counted


def _left(read: Any, keys: Keys) -> Iterator[str]:
    for found in read.scan_iter(f"{keys.prefix}*", count=1000):
        key = found.decode().removeprefix(keys.prefix)
        if key.startswith(GONE) or key.endswith((":mailbox", ":outputs")):
            yield key
