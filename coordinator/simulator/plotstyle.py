"""How plots look: one style, and for each policy a colour, a dash and a marker that stay the same from plot to plot.

The palette is one that the colour-blind can tell apart. No window and no state of pyplot: figures stand alone.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from coordinator.simulator.comparison import every_policy

BLUE, ORANGE, GREEN, RED, SKY, PINK, GREY, WINE = (
    "#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9", "#CC79A7", "#808080", "#882255",
)  # fmt: skip
PALETTE = (BLUE, ORANGE, GREEN, SKY, PINK, GREY, WINE)
"""After Okabe and Ito, without the yellow, which is weak on white; red is kept for `flow`."""
SOLID, DASHED, DOTTED = (0, ()), (0, (5, 1.5)), (0, (1.0, 2.0))
MARKERS = "sD^vPXo"
DARK = "#444444"
HALO = {"facecolor": "white", "alpha": 0.7, "edgecolor": "none", "pad": 1.0}
STYLE: Any = {
    "figure.figsize": (8.4, 4.8),
    "figure.constrained_layout.use": True,
    "savefig.dpi": 160,
    "font.size": 10,
    "axes.titlesize": 12,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#666666",
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E4E4E4",
    "grid.linewidth": 0.7,
    "lines.linewidth": 1.7,
    "lines.markersize": 5,
    "legend.frameon": False,
    "svg.hashsalt": "hexgen-flow",
}


class Look(NamedTuple):
    """How a policy is drawn."""

    color: str
    dashes: tuple[float, Any]
    marker: str
    width: float


def look(policy: str) -> Look:
    """The look of a policy: `flow` stands out; the others take colours and dashes in turn.

    Policies that follow each other may draw the same line (`vllm` and `vtc` for one tenant): dashes let both be seen.
    """
    if policy == "flow":
        return Look(RED, SOLID, "o", 2.8)
    names = [name for name in every_policy() if name != "flow"]
    at = names.index(policy) if policy in names else len(names)
    dashes = (SOLID, DASHED, DOTTED)[at % 3]
    return Look(PALETTE[at % len(PALETTE)], dashes, MARKERS[at % len(MARKERS)], 1.7)


def line(policy: str) -> dict[str, Any]:
    """A policy's look as the options of a line."""
    drawn = look(policy)
    front = 2.0 + 0.1 * (drawn.dashes != SOLID) + (policy == "flow")
    return {"color": drawn.color, "linestyle": drawn.dashes, "linewidth": drawn.width, "zorder": front, "label": policy}


@contextmanager
def styled(title: str, note: str, **size: Any) -> Iterator[tuple[Figure, Axes]]:
    """An empty plot in our style, with a title and a smaller note under it."""
    with rc_context(STYLE):
        figure = Figure(**size)
        axes = figure.add_subplot()
        axes.set_title(f"{title}\n", fontweight="bold")
        axes.annotate(note, (0, 1), xycoords="axes fraction", xytext=(0, 6), textcoords="offset points", color=DARK,
                      fontsize=9)  # fmt: skip
        yield figure, axes


def beside(axes: Axes, policies: Sequence[str], order: Callable[[str], float]) -> None:
    """A legend right of the plot, from the largest of what `order` gives, as the lines lie there, to the least."""
    names = sorted(policies, key=order, reverse=True)
    lines = [Line2D([], [], color=one.color, linestyle=one.dashes, linewidth=one.width) for one in map(look, names)]
    axes.legend(lines, names, loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0.0, handlelength=2.6)


def mark(axes: Axes, value: float, told: str, *, upright: bool) -> None:
    """A dashed line at a value, and what it is; to be called when all is drawn."""
    if upright:
        axes.axvline(value, color=DARK, linewidth=1.0, linestyle=DASHED, zorder=1)
        at = axes.transAxes.inverted().transform(axes.transData.transform((value, 1.0)))[0]
        side = {"xytext": (-4, 5), "ha": "right"} if at > 0.85 else {"xytext": (4, 5)}  # within the plot
        place: dict[str, Any] = {"xy": (value, 0.0), "xycoords": ("data", "axes fraction"), **side}
    else:
        axes.axhline(value, color=DARK, linewidth=1.0, linestyle=DASHED, zorder=1)
        place = {"xy": (0.0, value), "xycoords": ("axes fraction", "data"), "xytext": (4, 4)}
    axes.annotate(told, **place, textcoords="offset points", color=DARK, fontsize=9, bbox=HALO)


def logarithmic(axes: Axes, which: str) -> None:
    """A logarithmic axis that reads 20, 50, 100 and not powers of ten; to be called when all is drawn."""
    axis = axes.xaxis if which == "x" else axes.yaxis
    (axes.set_xscale if which == "x" else axes.set_yscale)("log")
    low, high = axes.get_xlim() if which == "x" else axes.get_ylim()
    marked = (1.0, 2.0, 5.0) if high > 12 * low else (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0)
    axis.set_major_locator(LogLocator(subs=marked, numticks=30))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())
