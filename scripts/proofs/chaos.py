"""scripts/chaos: everything is killed, stopped and drained at random while workflows are submitted all the time.

Then faults and submissions stop. Within 10 leases every workflow must have ended, once, with the right answer, and
nothing of it be left: counted by the events, by the server's append-only file, and by what is still in the store.
Exit code 1 if anything was lost, wrong, done twice or left over; its logs and the append-only file are kept then.
"""

import json
import os
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import click
from chaos_cell import KINDS, LEASE_S, ChaosCell
from chaos_checks import Findings, judge, residue
from chaos_load import SLO_S, WORKFLOWS, Load, databases
from ledger import Ledger
from sabotage import SWAPS, copy_without

from common.store.keys import Keys
from hexgen_flow.client import Client

ROOT = Path(__file__).resolve().parents[2]
QUIET_S = 10 * LEASE_S
PAUSES_S = (0.3, 2.0)
SHOWN = 20


@dataclass(frozen=True, slots=True)
class Plan:
    """One run: how long faults go on, and what its code lacks, if it is a control."""

    seed: int
    seconds: float
    without: str | None


def storm(cell: ChaosCell, chance: Random, seconds: float) -> None:
    """Faults for so long: first one of each kind, then by chance."""
    once = chance.sample(KINDS, len(KINDS))
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        cell.check()
        cell.inject(once.pop() if once else chance.choice(KINDS))
        time.sleep(chance.uniform(*PAUSES_S))
    cell.wake()


def settle(cell: ChaosCell, keys: Keys) -> list[str]:
    """Wait until nothing is left, at most QUIET_S from now; what is left then."""
    until = time.monotonic() + QUIET_S
    while (left := residue(cell.store, keys)) and time.monotonic() < until:
        time.sleep(0.2)
    cell.check()
    return left


def run(plan: Plan, folder: Path) -> tuple[Findings, dict[str, Any]]:
    """What was found, and the figures of it."""
    began = time.monotonic()
    keys, chance, found, ledger = Keys("chaos"), Random(plan.seed), Findings(), Ledger(Keys("chaos").prefix)
    code = copy_without(plan.without, ROOT, folder / "code") if plan.without else ROOT
    environment = {
        "PYTHONPATH": os.pathsep.join([str(code), *filter(None, [os.environ.get("PYTHONPATH")])]),
        "PYTHONSAFEPATH": "1",  # else the code in the working directory comes first
        "HEXGEN_DATABASES": json.dumps(databases(folder)),
    }
    with ChaosCell(folder, keys, chance, environment) as cell:
        cell.start(WORKFLOWS)
        load = Load(cell.url, cell.store, keys, plan.seed)
        load.start()
        storm(cell, chance, plan.seconds)
        load.stop()
        found.residue = settle(cell, keys)
        with Client(cell.url, keys.namespace) as client:
            judge(client, load.answers, load.cancelled, found, SLO_S, load.amended)
        ledger.read(cell.state)
        found.double_effects += ledger.double_effects()
        if not found.ends["completed"]:
            found.lost.append("no workflow completed")
        if len(ledger.ended) != found.ends.total():
            told = f"the append-only file tells of {len(ledger.ended)} ends, the events of {found.ends.total()}"
            found.wrong.append(told)
    figures = {
        "seed": plan.seed,
        "workflows": len(load.answers),
        **{end: found.ends[end] for end in ("completed", "cancelled", "failed")},
        "requests": ledger.served,
        "amended": found.amended,
        "lost": len(found.lost),
        "wrong": len(found.wrong),
        "double_effects": len(found.double_effects),
        "residue": len(found.residue),
        "faults": dict(sorted(cell.faults.items())),
        "elapsed_s": round(time.monotonic() - began, 1),
    }
    return found, figures


@click.command(help=__doc__)
@click.option("--seed", type=int, required=True, help="of the faults and the workflows")
@click.option("--seconds", type=click.FloatRange(0), default=60.0, show_default=True, help="for how long faults go on")
@click.option("--minutes", type=click.FloatRange(0), help="the same in minutes")
@click.option(
    "--without", type=click.Choice(sorted(SWAPS)), help="a control: code without this, which must be found out"
)
@click.option("--json", "as_json", is_flag=True, help="print one JSON object")
def main(seed: int, seconds: float, minutes: float | None, without: str | None, as_json: bool) -> None:
    folder = Path(tempfile.mkdtemp(prefix="chaos-"))
    found, figures = run(Plan(seed, seconds if minutes is None else 60 * minutes, without), folder)
    if as_json:
        click.echo(json.dumps(figures))
    else:
        faults = figures.pop("faults")
        for name, value in [*figures.items(), *((f"fault: {kind}", count) for kind, count in faults.items())]:
            click.echo(f"{name:28}{value}")
    if found.clean:
        shutil.rmtree(folder)
        return
    for line in (found.lost + found.wrong + found.double_effects + found.residue)[:SHOWN]:
        click.echo(line, err=True)
    click.echo(f"the logs and the server's append-only file are in {folder}", err=True)
    sys.exit(1)


if __name__ == "__main__":
    main()
