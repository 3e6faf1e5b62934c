"""What the demo shows on a terminal: a progress bar while it runs, a table at its end; or one JSON object."""

import json
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from common.model import Json
from hexgen_flow import demo

VLLM = demo.Plan(engine="vllm", workflows=4, rate=0.1, slo_s=600.0, time_scale=1.0, max_tokens=64)


def show(options: Mapping[str, Any], keep: Path | None, as_json: bool) -> None:
    """Run the demo with these options (None: the engine's default) and print what came of it."""
    given = {name: value for name, value in options.items() if value is not None}
    plan = replace(VLLM if given["engine"] == "vllm" else demo.Plan(), **given)
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with tempfile.TemporaryDirectory(prefix="hexgen-demo-") as scratch, Progress(*columns, console=console) as bar:
        task = bar.add_task("workflows", total=plan.workflows)
        found = demo.run(
            plan,
            (keep or Path(scratch)).absolute(),
            tell=bar.console.print,
            progress=lambda done, total: bar.update(task, completed=done, total=total),
        )
    if as_json:
        print(json.dumps(found))  # noqa: T201
    else:
        Console().print(_table(found))


def _table(found: Mapping[str, Json]) -> Table:
    total = max(1, sum(found["instances"].values()))
    table = Table("figure", "value", title=f"{found['workflows']} text2sql workflows, policy {found['policy']}")
    table.add_row("completed / failed", f"{found['completed']} / {found['failed']}")
    table.add_row("latency P50 / P95", f"{found['p50_s']} s / {found['p95_s']} s")
    table.add_row(f"SLO attainment ({found['slo_s']:g} s)", f"{found['slo_attainment']:.0%}")
    table.add_row("execution accuracy", f"{found['execution_accuracy']:.0%}")
    table.add_row("answers", found["answers"])
    if found["time_scale"] != 1:
        table.add_row("time", f"engines {found['time_scale']:g} times faster than real; times are this machine's")
    for name, count in found["instances"].items():
        table.add_row(f"requests on {name}", f"{count} ({count / total:.0%})")
    table.add_row("requests of tools", str(found["tool_requests"]))
    for stage, cost in found["usage"].items():
        table.add_row(
            f"cached, {stage}",
            f"{cost['cached_tokens'] / cost['prompt_tokens']:.0%} of {cost['prompt_tokens']} tokens",
        )
    for error in found["errors"]:
        table.add_row("error", error)
    return table
