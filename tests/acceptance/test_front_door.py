"""The commands as a user meets them: real processes, what they print where, and the code they leave with."""

import json
import os
import re
import secrets
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import plugins
import pytest
from deployment import Deployment, chain

from common.store.embedded import EmbeddedServer

pytestmark = pytest.mark.slow
LINGER = {"prompt": "linger", "max_tokens": 1_000_000, "requires": ["slow"]}


class Shell:
    """Runs commands in one cell."""

    def __init__(self, server: EmbeddedServer, namespace: str) -> None:
        self.environment = {**os.environ, "HEXGEN_REDIS_URL": server.url, "HEXGEN_NAMESPACE": namespace}

    def start(self, *words: str) -> "subprocess.Popen[str]":
        """A command whose output is not waited for."""
        return subprocess.Popen(
            [sys.executable, "-m", "hexgen_flow", *words],
            env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def run(self, *words: str) -> tuple[int, str, str]:
        """The code it leaves with, its output, and what it says beside."""
        return ended(self.start(*words))


def ended(process: "subprocess.Popen[str]") -> tuple[int, str, str]:
    try:
        stdout, stderr = process.communicate(timeout=60)
    finally:
        process.kill()
    return process.returncode, stdout, stderr


def written(folder: Path, document: Mapping[str, Any]) -> str:
    """The path of a file with this definition."""
    file = folder / document["name"]
    file.write_text(json.dumps(document))
    return str(file)


@pytest.fixture(scope="module")
def deployed(server: EmbeddedServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Shell, Deployment]]:
    namespace = f"door-{secrets.token_hex(4)}"
    folder = tmp_path_factory.mktemp("front-door")
    own = plugins.install(folder / "own")
    with Deployment(server, namespace, folder, PYTHONPATH=str(own), HEXGEN_LEASE_S="30") as cell:
        cell.define(chain(1), {"name": "endless", "stages": {"only": LINGER}})
        cell.worker("only", "--engine", "simulated", "--time-scale", "1000", "--responder", "obedient")
        cell.worker("slow", "--engine", "simulated", "--label", "slow", "--responder", "obedient")
        cell.client.wait(cell.client.submit("chain1", {"text": "all are up"}), timeout_s=30)
        yield Shell(server, namespace), cell
        cell.processes.check()


@pytest.fixture
def shell(deployed: tuple[Shell, Deployment]) -> Shell:
    return deployed[0]


def test_submit_tells_the_id_the_entry_and_the_deadline(shell: Shell) -> None:
    code, stdout, stderr = shell.run("submit", "chain1", "--input", "text=2024", "--id", "order-1")
    assert (code, stdout, stderr) == (0, "order-1\n", "")
    told = json.loads(shell.run("submit", "chain1", "--input", "text=x", "--slo-s", "20", "--json")[1])
    assert told["deadline_at"] == int(told["entry"].partition("-")[0]) + 20_000
    assert told["workflow"] == told["entry"]


def test_a_rejection_is_told_at_once_and_nothing_is_taken_for_it(shell: Shell) -> None:
    """Not even the workflow of another document that has the id."""
    words = ("submit", "chain1", "--id", "order-2", "--input")
    assert shell.run(*words, "text=first", "--wait") == (0, '{\n  "s0": "first"\n}\n', "order-2\n")
    code, stdout, stderr = shell.run(*words, "text=second")
    assert (code, stdout) == (1, "order-2\n")
    assert re.fullmatch(r"Error: submission \d+-\d rejected: id: 'order-2' is taken by another document.*\n", stderr)
    code, stdout, stderr = shell.run(*words, "text=second", "--wait", "--json")
    told = json.loads(stdout)
    assert (code, told["workflow"], told["status"], told["field"]) == (1, "order-2", "rejected", "id")
    code, stdout, stderr = shell.run("result", told["entry"])
    assert (code, stdout) == (1, "")
    assert "rejected: id: 'order-2' is taken" in stderr
    code, stdout, stderr = shell.run(*words, "txet=x", "--id", "order-3")
    assert (code, stdout) == (1, "order-3\n")
    assert "rejected: inputs.txet: is no input" in stderr


def test_the_entry_of_a_submission_leads_to_its_workflow(shell: Shell) -> None:
    told = json.loads(shell.run("submit", "chain1", "--id", "order-4", "--input", "text=x", "--json")[1])
    assert shell.run("submit", "chain1", "--id", "order-4", "--input", "text=x", "--wait")[0] == 0
    assert shell.run("result", told["entry"]) == shell.run("result", "order-4") == (0, '{\n  "s0": "x"\n}\n', "")


def test_a_workflow_that_failed_is_1_and_says_why(shell: Shell) -> None:
    code, stdout, stderr = shell.run("submit", "chain1", "--input", "text=refuse", "--wait", "--json")
    told = json.loads(stdout)
    assert (code, told["status"], told["stage"]) == (1, "failed", "s0")
    assert f"Error: workflow {told['workflow']} failed: s0: " in stderr
    assert shell.run("result", told["workflow"])[0] == 1
    shown = json.loads(shell.run("status", told["workflow"], "--json")[1])
    assert (shown["status"], shown["slo_met"], shown["stage"]) == ("failed", False, "s0")
    assert shown["error"] == told["error"]
    assert shown["stages"]["s0"]["status"] == "failed"


def test_who_waits_sees_what_the_workflow_waits_for(shell: Shell, tmp_path: Path) -> None:
    lonely = {"name": "lonely", "stages": {"only": {"prompt": "x", "model": "nobody"}}}
    code, stdout, stderr = shell.run("submit", written(tmp_path, lonely), "--slo-s", "1", "--wait")
    assert (code, stdout) == (1, "")
    workflow, waiting, error = stderr.splitlines()
    assert re.fullmatch(r"waiting: stage only: no ready instance .*nobody.*", waiting)
    assert error.startswith(f"Error: workflow {workflow} failed: only: ")


def test_giving_up_and_cancelling(shell: Shell) -> None:
    code, stdout, stderr = shell.run("submit", "endless", "--id", "long-1", "--wait", "--timeout-s", "0.5")
    assert (code, stdout) == (3, "")
    assert stderr == "long-1\nError: workflow long-1 has not ended within 0.5 s\n"
    assert shell.run("result", "long-1")[::2] == (
        3, "Error: workflow long-1 has no result: it is running\n"
    )  # fmt: skip
    code, _, stderr = shell.run("events", "long-1", "--timeout-s", "0.5")
    assert (code, stderr) == (3, "Error: workflow long-1 has not ended within 0.5 s\n")
    shown = shell.run("status", "long-1")[1]
    assert re.search(r"^  only: running on slow for \d+ s$", shown, re.MULTILINE)
    assert re.search(r"^time left: 2\d\d\.\d s$", shown, re.MULTILINE)
    code, stdout, stderr = shell.run("amend", "long-1", "--slo-s", "3000", "--json")
    arrival_at = json.loads(shell.run("status", "long-1", "--json")[1])["arrival_at"]
    assert (code, json.loads(stdout)["deadline_at"], stderr) == (0, arrival_at + 3_000_000, "")
    assert shell.run("amend", "long-1", "--slo-s", "20000") == (0, "long-1 has an SLO of 20000 s\n", "")
    assert re.search(r"^time left: 19\d\d\d\.\d s$", shell.run("status", "long-1")[1], re.MULTILINE)
    assert shell.run("cancel", "long-1", "--reason", "sold out") == (0, "long-1 is cancelled\n", "")
    assert shell.run("result", "long-1") == (1, "", "Error: workflow long-1 cancelled: sold out\n")
    code, stdout, stderr = shell.run("cancel", "long-1")
    assert (code, stderr) == (1, "Error: workflow long-1 cannot be cancelled: it is cancelled\n")
    code, stdout, stderr = shell.run("amend", "long-1", "--slo-s", "5")
    assert (code, stderr) == (1, "Error: workflow long-1 cannot be amended: it is cancelled\n")


def test_a_cancellation_works_behind_a_submission_that_is_not_read_yet(
    server: EmbeddedServer, namespace: str, tmp_path: Path
) -> None:
    shell = Shell(server, namespace)
    definition = written(tmp_path, {"name": "endless", "stages": {"only": LINGER}})
    assert shell.run("submit", definition, "--id", "order-1", "--accept-timeout-s", "0")[0] == 0
    cancelling = shell.start("cancel", "order-1", "--accept-timeout-s", "60")
    with Deployment(server, namespace, tmp_path) as cell:
        cell.coordinator()
        assert ended(cancelling) == (0, "order-1 is cancelled\n", "")


def test_a_restart_of_redis_does_not_break_who_waits(namespace: str, tmp_path: Path) -> None:
    state = tmp_path / "state"
    first = EmbeddedServer.start(state)
    with first, Deployment(first, namespace, tmp_path) as cell:
        cell.define(chain(1))
        shell = Shell(first, namespace)
        waiting = [shell.start("submit", "chain1", "--input", "text=x", "--id", "order-1", "--wait")]
        cell.until("order-1", "waiting")
        waiting.append(shell.start("events", "order-1"))
        assert waiting[1].stdout is not None
        assert "accepted" in waiting[1].stdout.readline()
        first.stop()
        for process in waiting:
            assert process.stderr is not None
            for line in process.stderr:
                if "Redis cannot be reached" in line:
                    break
        with EmbeddedServer.start(state, port=first.port):
            cell.worker("late", "--engine", "noop")
            code, stdout, _ = ended(waiting[0])
            assert (code, json.loads(stdout)) == (0, {"s0": "ok"})
            code, stdout, _ = ended(waiting[1])
            assert code == 0
            assert stdout.count(" completed ") == 1
            cell.processes.stop()
