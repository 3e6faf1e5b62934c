"""The command: runs the sections on all cores, keeps their figures as JSON, writes them into docs/evaluation.md."""

import json
import sys
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path

import click
import report
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from sections import SECTIONS, Job, Row, done, jobs

from common import clock
from common.errors import HexgenError

ROOT = Path(__file__).parents[2]
GENERATED = tuple(f"generated:text2sql-{number},workflows=200" for number in (1, 2, 3))


@click.command()
@click.option("--full", is_flag=True, help="500 workflows, 5 seeds, three traces; else a sketch to see that it works")
@click.option("--trace", "traces", multiple=True, help="a trace instead of the generated ones (repeatable)")
@click.option("--only", type=click.Choice(list(SECTIONS)), multiple=True, help="this section (repeatable)")
@click.option("--json", "as_json", is_flag=True, help="print the figures as JSON, touch no document")
@click.option("--document", type=click.Path(path_type=Path), default=ROOT / "docs" / "evaluation.md", show_default=True)
def main(full: bool, traces: tuple[str, ...], only: tuple[str, ...], as_json: bool, document: Path) -> None:
    """Evaluate the policies in the simulator; with --full the tables of docs/evaluation.md are written anew."""
    started = clock.monotonic_s()
    try:
        found = run(jobs(traces or GENERATED, full, only or list(SECTIONS)))
    except HexgenError as error:
        raise click.ClickException(str(error)) from None
    took_s = clock.monotonic_s() - started
    if as_json:
        click.echo(json.dumps({"sections": found, "elapsed_s": round(took_s, 1)}))
        return
    tables = report.tables(found)
    for title, text in tables.items():
        click.echo(f"\n{title}\n\n{text}")
    if full:
        report.replace_in(document, tables)
    click.echo(f"\n{took_s:.0f} s")


def run(wanted: list[Job]) -> dict[str, list[Row]]:
    """The rows of each section, in the order of the jobs."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    console = Console(file=sys.stderr)
    with (
        ProcessPoolExecutor(mp_context=get_context("spawn")) as pool,
        Progress(*columns, console=console, disable=not console.is_terminal) as progress,
    ):
        futures = [pool.submit(done, job) for job in wanted]
        task = progress.add_task("evaluating", total=len(futures))
        for _ in as_completed(futures):
            progress.advance(task)
    found: dict[str, list[Row]] = {}
    for future in futures:
        for name, row in future.result().items():
            found.setdefault(name, []).append(row)
    return found


if __name__ == "__main__":
    main()
