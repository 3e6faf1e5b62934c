"""How a workflow stands: as data for programs, and as lines for people. Reads records; decides nothing."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from common.model import LINE, Json, Node
from common.states import ENDED
from common.store.cell import Cell
from common.store.records import Whereabouts

MOST_COPIES = 8
"""More copies of one stage than this are counted for people, not listed."""
Stage = Mapping[str, Any]
_LABELS = {"age_s": "age", "left_s": "time left", "elapsed_s": "elapsed", "slo_s": "SLO", "slo_met": "SLO met",
           "retry_after_s": "try again after"}  # fmt: skip
_COPY = re.compile(r"\[\d+\]")


async def standing(cell: Cell, workflow: str) -> dict[str, Json]:
    """All there is to tell of a workflow that is kept. Times in ms of Redis time, durations in s."""
    found, now = await cell.records.workflow(workflow), await cell.records.now_ms()
    if found is None:
        return {}
    status, head, nodes = found
    at = await cell.records.whereabouts([node.request for node in nodes.values() if node.phase == "queued"])
    told = {
        "workflow": workflow,
        "name": head.name,
        "tenant": head.tenant,
        "status": status,
        "arrival_at": head.slo.arrival_at,
        "deadline_at": head.slo.deadline_at,
        "age_s": (now - head.slo.arrival_at) / 1000,
    }
    if status == "running":
        told["left_s"] = (head.slo.deadline_at - now) / 1000
    else:
        ended = await cell.records.result(workflow) or {}
        told |= {key: ended[key] for key in ("stage", "error", "elapsed_s", "slo_s", "slo_met") if key in ended}
    return told | {"stages": {key: _stage(nodes[key], at, now) for key in sorted(nodes, key=_natural)}}


def _stage(node: Node, at: Mapping[str, Whereabouts], now: int) -> dict[str, Json]:
    told: dict[str, Json] = {"status": node.status, "phase": None, "attempt": node.attempt + 1, "error": node.error}
    if not node.request and node.phase == "new":
        return told  # no leaf, or none yet
    told["phase"] = node.phase
    here = at.get(node.request) if node.status == "running" else None
    if here is not None and here.claimed_at is not None:
        running_s = (now - here.claimed_at) / 1000
        told |= {"phase": "running", "instance": here.instance, "claimant": here.claimant, "running_s": running_s}
    elif here is not None and here.place is not None:
        waited_s = (now - here.enqueued_at) / 1000
        told |= {"instance": here.instance, "place": here.place, "queued": here.queued, "waited_s": waited_s}
    return told


def _natural(key: str) -> list[tuple[int, str]]:
    """Sorts copy 10 after copy 9."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", key)]


def lines(told: Mapping[str, Json]) -> Iterator[str]:
    """The same for people: a line for each fact and stage. Moments are left out: there are durations."""
    for name, value in told.items():
        if name == "stages":
            yield "stages:"
            yield from (f"  {line}" for line in _stage_lines(value))
        elif not name.endswith("_at"):
            yield f"{_LABELS.get(name, name)}: {_text(name, value)}"


def _text(name: str, value: Json) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ", ".join(f"{count} {what}" for what, count in value.items()) or "none"
    if name.endswith("_s"):
        return f"{value:.1f} s"
    return "submitted, not accepted yet" if (name, value) == ("status", "submitted") else str(value)


def _stage_lines(stages: Mapping[str, Stage]) -> Iterator[str]:
    """One for each stage, copy and round; where there are many copies, their stage tells how they stand."""
    copies: dict[str, list[Stage]] = {}
    for key, stage in stages.items():
        if key.endswith("]"):
            copies.setdefault(key[: key.rindex("[")], []).append(stage)
    many = {key for key, found in copies.items() if len(found) > MOST_COPIES}
    for key, stage in stages.items():
        around = {key[: found.start()] for found in _COPY.finditer(key)}
        if many.isdisjoint(around):
            yield f"{key}: {_words(stage)}" + (_summary(copies[key]) if key in many else "")


def _summary(copies: Sequence[Stage]) -> str:
    counts = Counter(stage["phase"] if stage["status"] == "running" else stage["status"] for stage in copies)
    counts["running"] += counts.pop(None, 0)  # a copy that is a group or has rounds
    return f", copies: {len(copies)}, " + ", ".join(f"{counts[word]} {word}" for word in sorted(counts) if counts[word])


def _words(stage: Stage) -> str:
    status, phase, error = stage["status"], stage["phase"], stage["error"]
    if status in ENDED:
        return f"{status}: {error}" if error else str(status)
    again = f", attempt {stage['attempt']}" if stage["attempt"] > 1 else ""
    if "running_s" in stage:
        return f"running on {stage['instance']} for {stage['running_s']:.0f} s{again}"
    if "place" in stage:
        place = f"place {stage['place']} of {stage['queued']}"
        where = "in the line" if stage["instance"] == LINE else f"queued on {stage['instance']}"
        return f"{where}, {place}, waits {stage['waited_s']:.0f} s{again}"
    if phase in ("waiting", "delayed"):
        return f"{phase}{again}: {error}"
    return f"{phase or status}{again}"
