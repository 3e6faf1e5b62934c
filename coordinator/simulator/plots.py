"""Plots of a comparison: each function makes a matplotlib Figure of runs. Nothing here writes a file."""

from collections.abc import Callable, Iterable, Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator, PercentFormatter
from numpy.typing import NDArray

from coordinator.simulator.comparison import Made
from coordinator.simulator.plotstyle import HALO, beside, line, logarithmic, look, mark, styled
from coordinator.simulator.spread import half_width

TAIL = (0.0, 0.5, 0.8, 0.9, 0.95, 0.98, 0.99, 0.998)
"""Shares marked on the axis of a distribution, which is stretched towards 1."""
SURE = "mean over {}, bars: 95 % confidence"


def p95_by_rate(made: Sequence[Made], slo_s: float) -> Figure:
    """Mean P95 of each policy against the rate, with 95 % confidence, and the SLO."""
    rates = sorted({one.run.rate for one in made})
    with styled("P95 latency against load", SURE.format(_seeds(made))) as (figure, axes):
        for policy, runs in _groups(made).items():
            p95s = [[_p95(one) for one in runs if one.run.rate == rate] for rate in rates]
            axes.errorbar(rates, [float(np.mean(p95)) for p95 in p95s], yerr=[half_width(p95) for p95 in p95s],
                          capsize=2, elinewidth=0.9, marker=look(policy).marker, **line(policy))  # fmt: skip
        logarithmic(axes, "y")
        mark(axes, slo_s, f"SLO {slo_s:.0f} s", upright=False)
        axes.set(xlabel="arrivals (workflows per second)", ylabel="P95 latency (s)")
        axes.margins(x=0.17)  # room for the SLO's name
        busiest = [one for one in made if one.run.rate == rates[-1]]
        beside(axes, list(_groups(made)), _means(busiest, _p95))
    return figure


def p95_by_policy(made: Sequence[Made], slo_s: float) -> Figure:
    """Mean P50 and P95 of each policy at one rate, P95 with 95 % confidence, and the SLO; the best on top."""
    groups = _groups(made)
    names = sorted(groups, key=_means(made, _p95), reverse=True)
    with styled(f"P50 and P95 latency at {_load(made)}", SURE.format(_seeds(made))) as (figure, axes):
        for at, policy in enumerate(names):
            p95s, p50 = [_p95(one) for one in groups[policy]], _means(made, _p50)(policy)
            mean, wide, color = float(np.mean(p95s)), half_width(p95s), look(policy).color
            axes.plot([p50, mean], [at, at], color=color, linewidth=1.4, alpha=0.45)
            axes.plot(p50, at, "|", color=color, markersize=11, markeredgewidth=2)
            axes.errorbar(mean, at, xerr=wide, fmt="o", color=color, capsize=3, markersize=7)
            axes.annotate(f"{mean:.0f}", (mean + wide, at), xytext=(8, 0), textcoords="offset points", va="center",
                          bbox=HALO)  # fmt: skip
        logarithmic(axes, "x")
        mark(axes, slo_s, f"SLO {slo_s:.0f} s", upright=True)
        axes.set(xlabel="latency (s): stroke P50, dot P95")
        axes.set_yticks(range(len(names)), names)
        axes.grid(visible=False, axis="y")
        axes.margins(x=0.08, y=0.1)  # room below the last bar for the SLO's name
    return figure


def attainment_by_scale(made: Sequence[Made], scale: float) -> Figure:
    """The share of workflows done within so many times U, at one rate, read off the latencies.

    Policies that look at deadlines were given those at `scale` all along the curve.
    """
    scales = np.linspace(0.4 * scale, 2.4 * scale, 201)
    note = f"{_seeds(made)} together; deadlines as policies knew them: {scale:g} U"
    with styled(f"SLO attainment at {_load(made)}", note) as (figure, axes):
        for policy, runs in _groups(made).items():
            ratios = np.sort(np.concatenate([one.slo_shares for one in runs])) * scale
            axes.plot(scales, np.searchsorted(ratios, scales, side="right") / len(ratios), **line(policy))
        mark(axes, scale, "deadline", upright=True)
        mark(axes, 0.95, "95 %", upright=False)
        axes.set(xlabel="SLO scale (multiples of U, the mean latency alone on A100s)", ylabel="workflows in time",
                 ylim=(0, 1.02), xlim=(scales[0], scales[-1]))  # fmt: skip
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, symbol=" %"))
        beside(axes, list(_groups(made)), _means(made, lambda one: float((one.slo_shares <= 1.0).mean())))
    return figure


def latency_cdf(made: Sequence[Made], slo_s: float) -> Figure:
    """The distribution of latencies at one rate; the axis of shares is stretched towards 1, to show the tail."""
    with styled(f"Latencies at {_load(made)}", f"{_seeds(made)} together") as (figure, axes):
        for policy, runs in _groups(made).items():
            latencies = np.sort(np.concatenate([one.latency_s for one in runs]))
            shares = np.arange(1, len(latencies) + 1) / len(latencies)
            shown = shares <= TAIL[-1]
            axes.plot(latencies[shown], shares[shown], **line(policy))
        axes.set_yscale("function", functions=(_stretched, _unstretched))
        axes.yaxis.set_major_locator(FixedLocator(TAIL))
        axes.yaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{100 * share:g} %"))
        logarithmic(axes, "x")
        mark(axes, slo_s, f"SLO {slo_s:.0f} s", upright=True)
        axes.set(xlabel="latency (s)", ylabel="workflows done", ylim=(0, TAIL[-1]))
        order = _means(made, _p95)
        beside(axes, list(_groups(made)), lambda policy: -order(policy))
    return figure


def _groups(made: Iterable[Made]) -> dict[str, list[Made]]:
    found: dict[str, list[Made]] = {}
    for one in made:
        found.setdefault(one.run.policy, []).append(one)
    return found


def _means(made: Iterable[Made], figure: Callable[[Made], float]) -> Callable[[str], float]:
    """A policy's mean of a figure over its runs."""
    means = {policy: float(np.mean([figure(one) for one in runs])) for policy, runs in _groups(made).items()}
    return means.__getitem__


def _p50(one: Made) -> float:
    return float(np.percentile(one.latency_s, 50))


def _p95(one: Made) -> float:
    return float(np.percentile(one.latency_s, 95))


def _load(made: Sequence[Made]) -> str:
    return f"{made[0].run.rate:g} workflows/s"


def _seeds(made: Iterable[Made]) -> str:
    count = len({one.run.seed for one in made})
    return f"{count} seeds" if count > 1 else "one seed"


def _stretched(shares: NDArray[np.float64]) -> NDArray[np.float64]:
    stretched: NDArray[np.float64] = -np.log10(1.0 - np.minimum(shares, 0.9999))
    return stretched


def _unstretched(heights: NDArray[np.float64]) -> NDArray[np.float64]:
    return 1.0 - 10.0**-heights
