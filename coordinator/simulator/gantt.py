"""The instances of one run over time: every call a bar, in rows side by side where calls run at once."""

from collections import defaultdict
from itertools import pairwise

import numpy as np
from matplotlib.collections import PatchCollection
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle
from numpy.typing import NDArray

from coordinator.simulator.plotstyle import BLUE, GREEN, GREY, ORANGE, PINK, RED, SKY, WINE, styled
from coordinator.simulator.timeline import Timeline, lanes

COLORS = (BLUE, ORANGE, GREEN, PINK, SKY, RED, WINE)
"""Of the stages, the one with most running time first; those beyond are grey."""
CALLS_SHOWN = 300
"""About so many calls are shown: more cannot be told apart."""


def gantt(timeline: Timeline, title: str) -> Figure:
    """The instances around the busiest time of a run, calls coloured by stage.

    The part shown is as long as some 300 calls take, about the middle of the time with the most calls at once.
    """
    begin, end = _window(timeline)
    starts, ends = timeline.calls["started_at"], timeline.calls["ended_at"]
    shown = np.flatnonzero((timeline.calls["instance"] >= 0) & (starts < end) & (ends > begin))
    colors = _colors(timeline)
    faces = [colors.get(timeline.stages[int(at)], GREY) for at in shown]
    rows, bands = _rows(timeline, shown)
    bars = [Rectangle((starts[at], row), ends[at] - starts[at], 0.86) for at, row in zip(shown, rows, strict=True)]
    size = (10.0, min(16.0, 1.6 + 0.14 * bands[-1]))
    with styled(title, f"calls as they ran, {end - begin:.0f} s about the busiest time", figsize=size) as (
        figure,
        axes,
    ):
        axes.add_collection(PatchCollection(bars, facecolor=faces, edgecolor="white", linewidth=0.4))
        axes.hlines(bands[1:-1], begin, end, color="#CCCCCC", linewidth=0.8)
        axes.set(xlim=(begin, end), ylim=(bands[-1], bands[0]), xlabel="time (s)")
        axes.set_yticks([(one + other) / 2 for one, other in pairwise(bands)], timeline.instances)
        axes.tick_params(axis="y", length=0)
        axes.grid(visible=False, axis="y")
        patches = [Patch(color=color, label=stage) for stage, color in colors.items()]
        patches += [Patch(color=GREY, label="other stages")] if GREY in faces else []
        axes.legend(handles=patches, loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0.0)
    return figure


def _rows(timeline: Timeline, shown: NDArray[np.intp]) -> tuple[NDArray[np.float64], list[float]]:
    """The row of each call, and where the bands of the instances begin and end."""
    calls = timeline.calls[shown]
    rows, bands = np.zeros(len(calls)), [0.0]
    for m in range(len(timeline.instances)):
        own = np.flatnonzero(calls["instance"] == m)
        lane = lanes(calls["started_at"][own], calls["ended_at"][own])
        rows[own] = bands[-1] + 0.75 + lane
        bands.append(bands[-1] + 1.5 + int(lane.max(initial=0)) + 0.86)
    return rows, bands


def _colors(timeline: Timeline) -> dict[str, str]:
    """The stages that run longest in all, and their colours."""
    running: dict[str, float] = defaultdict(float)
    for stage, call in zip(timeline.stages, timeline.calls, strict=True):
        if call["instance"] >= 0:
            running[stage] += float(call["ended_at"] - call["started_at"])
    return dict(zip(sorted(running, key=running.__getitem__, reverse=True), COLORS, strict=False))


def _window(timeline: Timeline) -> tuple[float, float]:
    """From when to when, in s: about the middle of the stretch with the most calls ready or running."""
    calls = timeline.calls[timeline.calls["instance"] >= 0]
    times: NDArray[np.float64] = np.concatenate([calls["ready_at"], calls["ended_at"]])
    order = np.argsort(times, kind="stable")
    present = np.cumsum(np.repeat([1, -1], len(calls))[order])
    busiest = float(times[order[int(np.argmax(present))]])
    first, last = float(calls["ready_at"].min()), float(calls["ended_at"].max())
    wide = min(last - first, (last - first) * CALLS_SHOWN / len(calls))
    begin = min(max(first, busiest - wide / 2), last - wide)
    return begin, begin + wide
