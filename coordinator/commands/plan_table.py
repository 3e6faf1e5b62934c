"""What `plan` prints of candidates judged: a table and the answer in a sentence. Judges nothing."""

from collections.abc import Sequence

import click
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from common.model import Json
from coordinator.simulator.capacity import Load, Verdict


def told(one: Verdict) -> dict[str, Json]:
    """A verdict as JSON. price_per_1000: of so many workflows, at the highest rate."""
    candidate = one.candidate
    return {
        "name": candidate.name,
        "instances": len(candidate.cluster),
        "price_per_hour": candidate.price,
        "attainment": one.attainment,
        "holds": one.holds,
        "highest_rate": one.highest_rate,
        "price_per_1000": one.price_per_1000,
        "fault": one.fault or None,
    }


def show(verdicts: Sequence[Verdict], load: Load, rate: float | None, best: Verdict | None) -> None:
    """Print a row for each candidate, what is wrong with those that cannot run, and which is the cheapest."""
    table = Table(box=SIMPLE, padding=(0, 1))
    at_rate = [f"in time at {rate:g} /s"] if rate is not None else []
    for name in ("cluster", "instances", "price /h", *at_rate, "holds /s", "price of 1000"):
        table.add_column(name, justify="left" if name == "cluster" else "right", no_wrap=name == "instances")
    for one in verdicts:
        shown = [_number(one.attainment, ".1%")] if rate is not None else []
        highest = "-" if one.fault else f"{one.highest_rate:.4f}"
        price, each = _number(one.candidate.price, ".2f"), _number(one.price_per_1000, ".2f")
        table.add_row(one.candidate.name, str(len(one.candidate.cluster)), price, *shown, highest, each)
    Console().print(table)
    for one in verdicts:
        if one.fault:
            click.echo(f"{one.candidate.name}: the trace {one.fault}")
    click.echo(_answer(verdicts, load, rate, best))


def _answer(verdicts: Sequence[Verdict], load: Load, rate: float | None, best: Verdict | None) -> str:
    met = f"{100 * load.attainment:g} % of them within {load.slo_s:.0f} s"
    held = f"any rate of workflows with {met}" if rate is None else f"{rate:g} workflows/s, {met}"
    if best is not None:
        cheapest = f"the cheapest that holds {held}" if rate is not None else f"the least price of each workflow, {met}"
        return f"{cheapest}: {best.candidate.name}"
    names = [one.candidate.name for one in verdicts if one.holds]
    if not names:
        return f"none holds {held}"
    holding = "" if rate is None else f"{', '.join(names)} hold{'s' if len(names) == 1 else ''} {held}; "
    return f"{holding}the cheapest is told where prices are (NAME=PRICE)"


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
