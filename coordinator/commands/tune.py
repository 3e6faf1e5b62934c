"""The commands `tuner` (the process that tunes a cell) and `tune` (one round by hand, or what has been decided)."""

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any

import click

from common import clock, logs, settings
from common.errors import HexgenError
from common.model import Json
from common.options import Finite, json_option, log_option, store_options
from common.store.cell import Cell
from coordinator.tuner import Limits

HISTORY = 20
FOLLOW_S = 5.0
UNITS = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def plan_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """How to decide."""
    gain = "share by which a replay's P95 must be lower for a change"
    command = click.option("--minimum-gain", type=Finite(0, 1), default=0.03, show_default=True, help=gain)(command)
    margin = "take a change back when the live P95 is higher by so much, and by so much more than foreseen"
    command = click.option("--margin", type=Finite(0, 10), default=0.1, show_default=True, help=margin)(command)
    return click.option("--shadow", is_flag=True, help="decide and record, change nothing")(command)


@click.command()
@store_options
@plan_options
@click.option("--interval-s", type=Finite(1, 86400), default=30.0, show_default=True, help="between rounds")
@click.option("--cpu-share", type=Finite(0.001, 1), default=0.05, show_default=True,
              help="of one core; rounds that cost more are had less often")  # fmt: skip
@log_option
def tuner(minimum_gain: float, margin: float, shadow: bool, interval_s: float, cpu_share: float, **flags: Any) -> None:
    """Keep a cell's policy tuned: replay recent workflows with other parameters, and take what serves them better."""
    from coordinator.loops.round import Plan  # numpy and all: only for those who tune
    from coordinator.loops.tuner import serve

    values = settings.load(**flags)
    logs.configure(values.log_level)
    serve(values, Plan(shadow, interval_s, cpu_share, Limits(minimum_gain, margin)))


@click.command()
@store_options
@json_option
@plan_options
@click.option("--once", "what", flag_value="once", help="have one round now")
@click.option("--watch", "what", flag_value="watch", help="show decisions as they are made, until you stop it")
@click.option("--history", "what", flag_value="history", default=True, help="show the latest decisions [default]")
@click.option("--reset", "what", flag_value="reset", help="go back to the coordinators' own settings")
@click.option(
    "--count", type=click.IntRange(1, 2000), default=HISTORY, show_default=True, help="how many, with --history"
)
def tune(what: str, as_json: bool, shadow: bool, minimum_gain: float, margin: float, count: int, **flags: Any) -> None:
    """Have one round of tuning, or look at what was decided."""
    values = settings.load(**flags)
    if what == "once":
        told = asyncio.run(_once(values, shadow, Limits(minimum_gain, margin)))
        click.echo(json.dumps(told) if as_json else _round_text(told))
    elif what == "reset":
        asyncio.run(_reset(values))
        click.echo(json.dumps({"reset": True}) if as_json else "the coordinators go on with their own settings")
    else:
        asyncio.run(_show(values, count if what == "history" else 0, as_json))


async def _once(values: settings.Settings, shadow: bool, limits: Limits) -> Json:
    from coordinator.loops.round import Plan, tune_once  # numpy and all: only for those who tune

    async with Cell.opened(values.redis_url, values.namespace) as cell:
        return await tune_once(cell, values, Plan(shadow=shadow, limits=limits), clock.cpu_s())


async def _reset(values: settings.Settings) -> None:
    async with Cell.opened(values.redis_url, values.namespace) as cell:
        await cell.tuning.forget()


async def _show(values: settings.Settings, count: int, as_json: bool) -> None:
    """The latest `count` decisions; with 0 those from now on, for ever."""
    async with Cell.opened(values.redis_url, values.namespace) as cell:
        if count:
            found = await cell.tuning.history(count)
            now = await cell.records.now_ms()
            for entry, told in found:
                click.echo(_line(entry, told, as_json, now))
            if not found and not as_json:
                raise HexgenError("nothing has been decided yet: start `hexgen-flow tuner`, or try `tune --once`")
            return
        last = await cell.tuning.history(1)
        after = last[0][0] if last else "0"
        while True:
            for entry, told in await cell.tuning.follow(after, FOLLOW_S):
                click.echo(_line(entry, told, as_json))
                after = entry


def _line(entry: str, told: Mapping[str, Json], as_json: bool, now: int = 0) -> str:
    """One decision on a line."""
    at = int(entry.partition("-")[0])
    if as_json:
        return json.dumps({"at": at, **told})
    age = f"{_ago((now - at) / 1000):>10}  " if now else ""
    return f"{age}{told['action']:<16}  {told['policy']} {_change(told)}: {told['reason']}"


def _round_text(told: Mapping[str, Json]) -> str:
    """One round in full."""
    lines = [f"{told['action']}: {told['reason']}", f"  policy {told['policy']}: {_change(told)}"]
    lines.append(f"  {told['replayable']} of {told['recorded']} recorded workflows can be replayed; now "
                 f"{told['rate']:g} arrive per second")  # fmt: skip
    if "p95_s" in told:
        lines.append(f"  predicted P95: {told['now_p95_s']:.1f} s as it is, {told['p95_s']:.1f} s with "
                     f"{_values(told['best'])}; the best of {told['tried']}")  # fmt: skip
    if told.get("live_p95_s") is not None:
        lines.append(f"  live P95: {told['live_p95_s']:.1f} s")
    return "\n".join([*lines, f"  {told['cpu_s']:.2f} s of CPU"])


def _change(told: Mapping[str, Json]) -> str:
    before, after = told["before"], told["values"]
    changed = {name: value for name, value in after.items() if before.get(name) != value}
    if not changed:
        return _values(after) or "-"
    return ", ".join(f"{name} {before[name]:.3g} -> {value:.3g}" for name, value in changed.items())


def _values(values: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.3g}" for name, value in values.items())


def _ago(seconds: float) -> str:
    size, unit = next((one for one in UNITS if seconds >= one[0]), UNITS[-1])
    return f"{max(0, int(seconds // size))} {unit} ago"
