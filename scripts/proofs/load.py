"""scripts/load: a cell that is full, and a cell that is offered many times what it can do.

Exit code 1 if work in the full cell takes more than twice as long as in an empty one, or if under the flood something
was lost or grew without bound.
"""

import json
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import load_flood
import load_full

from common.policy.registry import DEFAULT, names

json_flag = click.option("--json", "as_json", is_flag=True, help="print one JSON object")


@click.group(help=__doc__)
def main() -> None:
    pass


@main.command(help=load_full.__doc__)
@click.option("--workflows", type=click.IntRange(1), default=10_000, show_default=True, help="live ones")
@click.option("--copies", type=click.IntRange(1, 1000), default=10, show_default=True, help="requests of each")
@click.option("--prompt", type=click.IntRange(1, 100_000), default=1000, show_default=True, help="its characters")
@click.option("--tenants", type=click.IntRange(1), default=1000, show_default=True, help="whose they are")
@click.option("--rounds", type=click.IntRange(1), default=200, show_default=True, help="that are timed in each cell")
@click.option("--policy", type=click.Choice(names()), default=DEFAULT, show_default=True)
@json_flag
def full(as_json: bool, **options: Any) -> None:
    with tempfile.TemporaryDirectory(prefix="load-") as folder:
        figures = load_full.measure(load_full.Plan(**options), Path(folder))
    _end(figures, load_full.faults(figures), as_json)


@main.command(help=load_flood.__doc__)
@click.option("--seconds", type=click.FloatRange(1), default=60.0, show_default=True, help="for how long")
@click.option("--times", type=click.FloatRange(1), default=10.0, show_default=True, help="of what the cell can do")
@click.option("--workflows", type=click.IntRange(1), default=40, show_default=True, help="live ones at most")
@click.option("--submissions", type=click.IntRange(1), default=200, show_default=True, help="unread ones at most")
@click.option("--coordinators", type=click.IntRange(1), default=1, show_default=True)
@json_flag
def flood(as_json: bool, **options: Any) -> None:
    with tempfile.TemporaryDirectory(prefix="load-") as folder:
        figures, faults = load_flood.measure(load_flood.Plan(**options), Path(folder))
    _end(figures, faults, as_json)


def _end(figures: Mapping[str, Any], faults: list[str], as_json: bool) -> None:
    click.echo(json.dumps(figures) if as_json else "\n".join(_lines(figures)))
    for fault in faults:
        click.echo(fault, err=True)
    sys.exit(bool(faults))


def _lines(figures: Mapping[str, Any], prefix: str = "") -> list[str]:
    lines = []
    for name, value in figures.items():
        if isinstance(value, dict):
            lines += _lines(value, f"{prefix}{name} ")
        else:
            lines.append(f"{prefix + name:44}{value}")
    return lines


if __name__ == "__main__":
    main()
