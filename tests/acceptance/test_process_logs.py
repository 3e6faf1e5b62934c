"""The logs of all kinds of processes: one form from the first line to the last, and no library's chatter."""

import re
import time
from pathlib import Path

import pytest
from deployment import Deployment, chain

from common.store.embedded import EmbeddedServer

LINE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} (DEBUG|INFO) (hexgen\.\w+): (.+)")
NEWS = {
    "coordinator": (r"coordinator \S+ is ready: policy flow, namespace \S+", r"coordinator \S+ has stopped; .*"),
    "only": (r"instance only is ready: noop, epoch \d+", r"instance only has stopped"),
    "tools": (r"tool worker \S+ is ready", r"tool worker has stopped"),
}


def until_told(cell: Deployment, what: str, name: str = "coordinator") -> None:
    """Until the coordinator's log has it."""
    while what not in cell.log(name):
        cell.processes.check()
        time.sleep(0.05)


def test_every_line_has_one_form_and_the_ends_are_told(server: EmbeddedServer, namespace: str, tmp_path: Path) -> None:
    with Deployment(server, namespace, tmp_path, HEXGEN_LOG_LEVEL="DEBUG") as cell:
        cell.define(chain(1))
        cell.worker("only", "--engine", "noop")
        cell.tools()
        until_told(cell, "tool worker")
        workflow = cell.client.submit("chain1", {"text": "hello"}, tenant="acme")
        assert cell.client.wait(workflow, timeout_s=30)
        until_told(cell, f"workflow {workflow} completed: chain1 of acme")
    for name, (ready, stopped) in NEWS.items():
        lines = [LINE.fullmatch(line) for line in cell.log(name).splitlines()]
        assert all(lines), cell.log(name)
        told = [line[3] for line in lines if line]
        assert sum(bool(re.fullmatch(ready, line)) for line in told) == 1
        assert re.fullmatch(stopped, told[-1])
    assert re.search(r"INFO hexgen.coordinator: (there are: |.*)instance only", cell.log("coordinator"))


@pytest.mark.slow
def test_the_policy_is_changed_one_coordinator_after_the_other(
    server: EmbeddedServer, namespace: str, tmp_path: Path
) -> None:
    with Deployment(server, namespace, tmp_path) as cell:
        cell.define(chain(1))
        cell.worker("only", "--engine", "noop")
        until_told(cell, "ready")
        cell.coordinator("next", "--policy", "hexgen")
        until_told(cell, "policies differ: ", "coordinator")
        until_told(cell, "policies differ: ", "next")
        workflows = [cell.client.submit("chain1", {"text": "hello"}) for _ in range(20)]
        cell.processes.stop_one("coordinator")
        until_told(cell, "policies differ no more: all coordinators have hexgen", "next")
        workflows += [cell.client.submit("chain1", {"text": "hello"}) for _ in range(20)]
        assert all(cell.client.wait(workflow, timeout_s=30) for workflow in workflows)
    for name, own, its in (("coordinator", "flow", "hexgen"), ("next", "hexgen", "flow")):
        (line,) = [line for line in cell.log(name).splitlines() if " WARNING " in line]
        assert re.search(rf"policies differ: this coordinator, \S+, has {own}, but \S+ has {its};", line)
