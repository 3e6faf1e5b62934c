"""Plots show what the runs say: every policy, its figures, the SLO. How they look is judged by eye."""

from dataclasses import replace

import numpy as np
import pytest
from matplotlib.collections import PatchCollection
from matplotlib.figure import Figure

from common.profiles import A100, L40S
from coordinator.simulator import plots
from coordinator.simulator.comparison import Made, Run, Setting, every_policy, made, played
from coordinator.simulator.gantt import gantt
from coordinator.simulator.plotstyle import look
from coordinator.simulator.timeline import Timeline
from coordinator.simulator.trace import TracedCall, TracedWorkflow

CALLS = (TracedCall("draft", 6000, 300), TracedCall("check", 900, 40, (0,)))
SETTING = Setting.of((TracedWorkflow(CALLS),), [A100, L40S])
POLICIES = ("vllm", "vtc", "flow")


@pytest.fixture(scope="module")
def runs() -> list[Made]:
    run = Run("flow", 0.2, 0, 40, 60.0)
    return [
        made(SETTING, replace(run, policy=policy, rate=rate, seed=seed))
        for rate in (0.1, 0.3)
        for policy in POLICIES
        for seed in range(2)
    ]


def legend(figure: Figure) -> list[str]:
    found = figure.axes[0].get_legend()
    assert found is not None
    return [text.get_text() for text in found.get_texts()]


def texts(figure: Figure) -> str:
    axes = figure.axes[0]
    return " ".join(
        text.get_text() for text in (*axes.texts, *axes.get_yticklabels(), axes.xaxis.label, axes.yaxis.label)
    )


def test_every_policy_looks_different() -> None:
    looks = [(drawn.color, drawn.dashes) for drawn in map(look, every_policy())]
    assert len(set(looks)) == len(looks)


def test_p95_against_rate_has_each_policys_means(runs: list[Made]) -> None:
    figure = plots.p95_by_rate(runs, 60.0)
    axes = figure.axes[0]
    means = [
        [np.mean([np.percentile(one.latency_s, 95) for one in runs if (one.run.policy, one.run.rate) == (policy, rate)])
         for rate in (0.1, 0.3)]
        for policy in POLICIES
    ]  # fmt: skip
    drawn = [box.lines[0].get_ydata() for box in axes.containers]  # type: ignore[attr-defined]
    np.testing.assert_allclose(np.array(drawn, float), means)
    assert axes.get_yscale() == "log"
    assert sorted(legend(figure)) == sorted(POLICIES)
    assert "SLO 60 s" in texts(figure)
    assert "(workflows per second)" in texts(figure)


def test_p95_by_policy_has_the_best_on_top(runs: list[Made]) -> None:
    figure = plots.p95_by_policy([one for one in runs if one.run.rate == 0.3], 60.0)
    assert figure.axes[0].get_yticklabels()[-1].get_text() == "flow"


def test_attainment_at_the_scale_of_the_deadline_is_that_of_the_runs(runs: list[Made]) -> None:
    at = [one for one in runs if one.run.rate == 0.3]
    figure = plots.attainment_by_scale(at, 3.0)
    for line in figure.axes[0].lines[: len(POLICIES)]:
        own = [one.figures["attainment"] for one in at if one.run.policy == line.get_label()]
        assert np.interp(3.0, *line.get_data()) == pytest.approx(np.mean(own), abs=0.02)


@pytest.mark.parametrize("slo_s", [60.0, 300.0])
def test_the_name_of_the_slo_is_within_the_plot(runs: list[Made], slo_s: float) -> None:
    figure = plots.latency_cdf([one for one in runs if one.run.rate == 0.3], slo_s)
    figure.draw_without_rendering()
    axes = figure.axes[0]
    (name,) = [text for text in axes.texts if text.get_text().startswith("SLO")]
    assert name.get_window_extent().x1 <= axes.get_window_extent().x1


def test_a_distribution_rises_to_the_tail(runs: list[Made]) -> None:
    figure = plots.latency_cdf([one for one in runs if one.run.rate == 0.3], 60.0)
    for line in figure.axes[0].lines[: len(POLICIES)]:
        latencies, shares = (np.asarray(values, float) for values in line.get_data())
        assert (np.diff(latencies) >= 0).all()
        assert (np.diff(shares) > 0).all()
        assert 0.9 < shares[-1] <= plots.TAIL[-1]


def test_the_instances_show_their_calls_by_stage() -> None:
    workload, came = played(SETTING, Run("flow", 0.2, 0, 40, 60.0))
    figure = gantt(Timeline(came.rows, workload.stages, ["a100 0", "l40s 1"]), "flow")
    bars = figure.axes[0].collections[0]
    assert isinstance(bars, PatchCollection)
    assert len(bars.get_paths()) == 80
    assert legend(figure) == ["draft", "check"]
    assert "a100 0" in texts(figure)
