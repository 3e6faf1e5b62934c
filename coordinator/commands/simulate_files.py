"""What `simulate` writes: plots as PNG and SVG, and one run as a trace of events. Draws nothing itself."""

import json
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from common.errors import InvalidDocument
from coordinator.simulator.comparison import Made, Setting, played
from coordinator.simulator.timeline import Timeline, trace_events

HOW = "no plots: they need the extra sim (pip install 'hexgen-flow[sim]')"


def plots_folder(folder: Path, *, asked: bool) -> Path | None:
    """The folder, made; None if there can be no plots and none were asked for. Raises InvalidDocument."""
    if find_spec("matplotlib") is None:
        if asked:
            raise InvalidDocument("--plots", HOW)
        return None
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidDocument("--plots", f"{folder} cannot be made: {error.strerror}") from None
    return folder


def check_writable(file: Path) -> None:
    """Before all the work: a file that can be written, now empty if it was not there. Raises InvalidDocument."""
    try:
        with file.open("a"):
            pass
    except OSError as error:
        raise InvalidDocument("--events", f"{file} cannot be written: {error.strerror}") from None


def write(setting: Setting, made: Sequence[Made], scale: float, folder: Path | None, events: Path | None) -> list[str]:
    """Write plots to a folder and events to a file, if there are such; what was written, in lines for people.

    scale: that of the SLO. Raises InvalidDocument.
    """
    one = shown(made)
    timeline = _timeline(setting, one)
    title = f"{one.run.policy} at {one.run.rate:g} workflows/s, seed {one.run.seed}"
    told = []
    try:
        if folder:
            names = _write_plots(folder, made, scale, timeline, title)
            told.append(f"plots in {folder}: {', '.join(names)} (PNG and SVG)")
        if events:
            events.write_text(json.dumps(trace_events(timeline)), "utf-8")
            told.append(f"events of {title} in {events}: open it at ui.perfetto.dev")
    except OSError as error:
        raise InvalidDocument(str(error.filename), f"cannot be written: {error.strerror}") from None
    return told


def shown(made: Sequence[Made]) -> Made:
    """The run that is told call by call: of `flow`, if it is there, else of the first policy, at the highest rate."""
    rate = max(one.run.rate for one in made)
    at = [one for one in made if one.run.rate == rate]
    return next((one for one in at if one.run.policy == "flow"), at[0])


def _timeline(setting: Setting, one: Made) -> Timeline:
    workload, came = played(setting, one.run)  # once more: calls are not kept
    names = [f"{profile.name} {m}" for m, profile in enumerate(setting.cluster)]
    return Timeline(came.rows, workload.stages, names)


def _write_plots(folder: Path, made: Sequence[Made], scale: float, timeline: Timeline, title: str) -> list[str]:
    """All plots of a comparison, those of one rate for each; their names."""
    from coordinator.simulator import gantt, plots  # matplotlib takes its time

    slo_s = made[0].run.slo_s
    rates = sorted({one.run.rate for one in made})
    figures: dict[str, Any] = {"p95": plots.p95_by_rate(made, slo_s)} if len(rates) > 1 else {}
    for rate in rates:
        at = [one for one in made if one.run.rate == rate]
        figures[f"p95-{rate:g}"] = plots.p95_by_policy(at, slo_s)
        figures[f"attainment-{rate:g}"] = plots.attainment_by_scale(at, scale)
        figures[f"latency-{rate:g}"] = plots.latency_cdf(at, slo_s)
    figures["instances"] = gantt.gantt(timeline, title)
    for name, figure in figures.items():
        figure.savefig(folder / f"{name}.png")
        figure.savefig(folder / f"{name}.svg", metadata={"Date": None})
    return list(figures)
