"""A run as trace events: every call once where it ran and once with its workflow, and counters that end at 0."""

import json
from itertools import groupby

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.profiles import A100, L40S
from coordinator.simulator.comparison import Run, Setting, played
from coordinator.simulator.timeline import WORKFLOWS, Timeline, lanes, trace_events
from coordinator.simulator.trace import TracedCall, TracedWorkflow

CALLS = (TracedCall("a", 900, 40), TracedCall("b", 800, 20, (0,)), TracedCall("b", 700, 20, (0,)),
         TracedCall("tool", 0, 0, (1, 2), 2.0))  # fmt: skip


@pytest.fixture(scope="module")
def timeline() -> Timeline:
    setting = Setting.of((TracedWorkflow(CALLS),), [A100, L40S])
    workload, came = played(setting, Run("flow", 1.0, 0, 30, 60.0))
    return Timeline(came.rows, workload.stages, ["a100 0", "l40s 1"])


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 20)), max_size=40))
def test_spans_in_a_lane_do_not_overlap_and_lanes_are_few(spans: list[tuple[int, int]]) -> None:
    starts = np.array([start for start, _ in spans], float)
    ends = starts + [length for _, length in spans]
    found = lanes(starts, ends)
    for lane in set(found):
        own = np.argsort(starts[found == lane])
        assert (ends[found == lane][own][:-1] <= starts[found == lane][own][1:]).all()
    at_once = max((int(((starts <= at) & (ends > at)).sum()) for at in starts), default=0)
    assert len(set(found)) == at_once


def test_every_call_is_shown_with_its_instance_and_its_workflow(timeline: Timeline) -> None:
    events = json.loads(json.dumps(trace_events(timeline)))["traceEvents"]
    slices = [event for event in events if event["ph"] == "X" and event["name"] != "queued"]
    on_instances = [event for event in slices if event["pid"] != WORKFLOWS]
    assert len(on_instances) == 90
    assert len(slices) - len(on_instances) == 120
    assert {event["name"] for event in on_instances} == {"a", "b"}
    assert all(event["dur"] > 0 for event in slices)
    for event in on_instances:
        assert event["pid"] == event["args"]["instance"] + 1


def test_slices_of_a_track_follow_each_other(timeline: Timeline) -> None:
    slices = [event for event in trace_events(timeline)["traceEvents"] if event["ph"] == "X"]
    slices.sort(key=lambda event: (event["pid"], event["tid"], event["ts"]))
    for _, track in groupby(slices, lambda event: (event["pid"], event["tid"])):
        ended = 0.0
        for event in track:
            assert event["ts"] >= ended - 0.2
            ended = event["ts"] + event["dur"]


def test_counters_go_forward_and_end_at_0(timeline: Timeline) -> None:
    counters: dict[tuple[int, str], list[tuple[float, int]]] = {}
    for event in trace_events(timeline)["traceEvents"]:
        if event["ph"] == "C":
            counters.setdefault((event["pid"], event["name"]), []).append((event["ts"], event["args"]["value"]))
    assert {name for _, name in counters} == {"running calls", "KV tokens of prompts", "calls queued"}
    for levels in counters.values():
        times = [at for at, _ in levels]
        assert times == sorted(set(times))
        assert min(level for _, level in levels) == levels[-1][1] == 0
