"""Coordinators that really die: what kills three of them is given up, and everything else is done."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from deployment import Deployment, chain
from redis import Redis

from common.lifeline import tied
from common.store.embedded import EmbeddedServer
from common.store.keys import Keys

SIMULATED = ("--engine", "simulated", "--time-scale", "20", "--responder", "echo:4")
DEADLY = """
import os
from coordinator import core
from coordinator.loops import intake

def dying(function):
    def call(first, *others):
        if "poison" in str(first):
            os.kill(os.getpid(), 9)
        return function(first, *others)
    return call

if os.environ["DIES_OF"] == "workflow":
    core.step = dying(core.step)
else:
    intake.digest_of = dying(intake.digest_of)

from hexgen_flow.start import main
main()
"""


@pytest.mark.slow
@pytest.mark.parametrize("what", ["workflow", "submission"])
def test_what_kills_three_coordinators_is_given_up(
    server: EmbeddedServer, namespace: str, tmp_path: Path, what: str
) -> None:
    (tmp_path / "deadly.py").write_text(DEADLY)
    with Deployment(server, namespace, tmp_path, DIES_OF=what) as cell:
        environment = os.environ | cell.environment
        cell.worker("only", *SIMULATED)
        document = chain(2)
        poison = cell.client.submit(document, {"text": "poison"})
        good = [cell.client.submit(document, {"text": f"{n}"}) for n in range(5)]
        deaths, running = 0, None
        with (tmp_path / "coordinators.log").open("ab") as log, Redis.from_url(server.url) as store:
            while not store.xlen(Keys(namespace).dead) or len(ended(cell, good)) < len(good):
                if running is None or running.poll() is not None:
                    deaths += running is not None
                    command = tied([sys.executable, str(tmp_path / "deadly.py"), "coordinator"])
                    running = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
                time.sleep(0.05)
        assert running is not None
        running.terminate()
        assert running.wait(30) == 0
        assert deaths == 3
        reason = "internal error: 3 coordinators died while they worked on it"
        assert [(letter["workflow"], letter["reason"]) for letter in dead(environment)] == [(poison, reason)]
        last = cell.events(poison)[-1]
        assert (last.type, last.data["error"]) == ("failed" if what == "workflow" else "rejected", reason)
        assert [cell.events(name)[-1].type for name in good] == ["completed"] * len(good)


def dead(environment: dict[str, str]) -> list[dict[str, str]]:
    command = [sys.executable, "-m", "hexgen_flow", "dead", "list", "--json"]
    shown = subprocess.run(command, env=environment, capture_output=True, check=True).stdout
    found: list[dict[str, str]] = json.loads(shown)
    return found


def ended(cell: Deployment, workflows: Sequence[str]) -> list[str]:
    return [name for name in workflows if cell.client.result(name) is not None]
