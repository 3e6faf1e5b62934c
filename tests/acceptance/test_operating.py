"""doctor on a deployment of real processes: faults while it is not there, none when it is, one when its workers die."""

import json
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from deployment import Deployment, chain

from common.store.embedded import EmbeddedServer
from hexgen_flow.cli import main


def doctor(cell: Deployment) -> tuple[int, dict[str, dict[str, Any]]]:
    done = CliRunner().invoke(main, ["doctor", "--json"], env=cell.environment, catch_exceptions=False)
    return done.exit_code, {one["check"]: one for one in json.loads(done.stdout)["checks"]}


def until(cell: Deployment, code: int) -> dict[str, dict[str, Any]]:
    """What is found once it leaves with that code."""
    while True:
        left, found = doctor(cell)
        if left == code:
            return found
        cell.processes.check()
        time.sleep(0.2)


@pytest.mark.slow
def test_doctor_sees_a_deployment_come_and_die(server: EmbeddedServer, namespace: str, tmp_path: Path) -> None:
    with Deployment(server, namespace, tmp_path) as cell:
        assert doctor(cell)[0] == 1
        cell.define(chain(1))
        cell.worker("a", "--engine", "noop")
        cell.tools()
        found = until(cell, 0)
        while found["tools"]["state"] != "ok":
            time.sleep(0.2)
            found = until(cell, 0)
        assert {one["state"] for one in found.values()} == {"ok"}, found
        assert cell.events(cell.client.submit("chain1", {"text": "x"}))[-1].type == "completed"
        cell.kill("a")
        found = until(cell, 1)
        assert [check for check, one in found.items() if one["state"] == "fault"] == ["instances"]
        assert found["instances"]["found"].startswith("0 ready; a is ")
