"""One run as a timeline: lanes for calls that overlap, and the trace events that Perfetto and chrome://tracing read.

Reads a run's calls after it; knows no policy and writes no file.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from common.model import Json
from coordinator.simulator.records import Rows

WORKFLOWS = 1_000_000
"""The track group of workflows; those of instances are 1, 2, ..."""
LANES = 4096
"""More lanes than a workflow has: its number times this, and the lane, name a track."""


@dataclass(frozen=True, slots=True)
class Timeline:
    """The calls of a run (rows of `records.CALL`), the stage of each, and a name for each instance."""

    calls: Rows
    stages: Sequence[str]
    instances: Sequence[str]


def lanes(starts: NDArray[np.float64], ends: NDArray[np.float64]) -> NDArray[np.int64]:
    """For each span the lowest lane that is free from its start to its end, given in the order of starts."""
    found = np.zeros(len(starts), np.int64)
    free_at: list[float] = []
    for at in np.argsort(starts, kind="stable"):
        lane = next((lane for lane, end in enumerate(free_at) if end <= starts[at]), len(free_at))
        free_at[lane : lane + 1] = [float(ends[at])]
        found[at] = lane
    return found


def trace_events(timeline: Timeline) -> dict[str, Json]:
    """The run as a JSON object of trace events, times in microseconds."""
    return {"displayTimeUnit": "ms", "traceEvents": list(_events(timeline))}


def _events(timeline: Timeline) -> Iterator[dict[str, Json]]:
    calls = timeline.calls
    for m, name in enumerate(timeline.instances):
        yield _name("process_name", m + 1, 0, name)
        own = np.flatnonzero(calls["instance"] == m)
        for at, lane in zip(own, lanes(calls["started_at"][own], calls["ended_at"][own]), strict=True):
            yield _slice(m + 1, int(lane) + 1, timeline, int(at))
        yield from _counter(m + 1, "running calls", calls["started_at"][own], calls["ended_at"][own])
        yield from _kv(m + 1, calls[own])
    yield _name("process_name", WORKFLOWS, 0, "workflows")
    timed = calls["instance"] >= 0
    yield from _counter(WORKFLOWS, "calls queued", calls["ready_at"][timed], calls["started_at"][timed])
    for number in np.unique(calls["workflow"]):
        yield from _workflow(timeline, int(number))


def _workflow(timeline: Timeline, number: int) -> Iterator[dict[str, Json]]:
    """The calls of a workflow, and before each the time it waited."""
    calls = timeline.calls
    own = np.flatnonzero(calls["workflow"] == number)
    named = set()
    for at, lane in zip(own, lanes(calls["ready_at"][own], calls["ended_at"][own]), strict=True):
        track = number * LANES + int(lane) + 1
        if track not in named:
            named.add(track)
            yield _name("thread_name", WORKFLOWS, track, f"workflow {number}")
        if calls["started_at"][at] > calls["ready_at"][at]:
            yield _span(WORKFLOWS, track, "queued", calls["ready_at"][at], calls["started_at"][at])
        yield _slice(WORKFLOWS, track, timeline, int(at))


def _slice(process: int, track: int, timeline: Timeline, at: int) -> dict[str, Json]:
    call = timeline.calls[at]
    span = _span(process, track, timeline.stages[at], call["started_at"], call["ended_at"])
    told = ("workflow", "instance", "prompt_tokens", "cached_tokens", "output_tokens", "preemptions")
    span["args"] = {name: int(call[name]) for name in told}
    span["args"]["queued_s"] = round(float(call["started_at"] - call["ready_at"]), 6)
    return span


def _span(process: int, track: int, name: str, start_s: float, end_s: float) -> dict[str, Json]:
    return {"ph": "X", "pid": process, "tid": track, "name": name, "cat": "call", "ts": _us(start_s),
            "dur": _us(end_s - start_s)}  # fmt: skip


def _counter(
    process: int, name: str, starts: NDArray[np.float64], ends: NDArray[np.float64]
) -> Iterator[dict[str, Json]]:
    """How many spans are open, at each change."""
    times = np.concatenate([starts, ends])
    steps = np.repeat([1, -1], len(starts))
    return _levels(process, name, times, steps)


def _kv(process: int, calls: Rows) -> Iterator[dict[str, Json]]:
    """Prompt tokens of the running calls: what they hold of the KV memory but for their answers."""
    times = np.concatenate([calls["started_at"], calls["ended_at"]])
    steps = np.concatenate([calls["prompt_tokens"], -calls["prompt_tokens"]])
    return _levels(process, "KV tokens of prompts", times, steps)


def _levels(process: int, name: str, times: NDArray[np.float64], steps: NDArray[np.int64]) -> Iterator[dict[str, Json]]:
    order = np.argsort(times, kind="stable")
    levels = np.cumsum(steps[order])
    for at, (time, level) in enumerate(zip(times[order], levels, strict=True)):
        if at + 1 == len(levels) or times[order[at + 1]] > time:  # the last of those at one time
            yield {"ph": "C", "pid": process, "name": name, "ts": _us(time), "args": {"value": int(level)}}


def _name(kind: str, process: int, track: int, name: str) -> dict[str, Json]:
    return {"ph": "M", "pid": process, "tid": track, "name": kind, "args": {"name": name}}


def _us(seconds: float) -> float:
    return round(float(seconds) * 1e6, 1)
