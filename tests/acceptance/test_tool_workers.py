"""Tool stages while tool workers come and go, or do not have the tool: they wait, say why, and go on."""

import os
import signal
from pathlib import Path
from typing import Any

import plugins
import pytest
from deployment import Deployment

from common.store.embedded import EmbeddedServer
from hexgen_flow.client import WorkflowFailed

NONE = "no tool worker is running"


def asks(tool: str, **stage: Any) -> dict[str, Any]:
    stages = {"run": {"tool": tool, "args": {"text": "hello"}, **stage}}
    return {"name": "asks", "stages": stages, "output": "run.output"}


CODE = """
import pathlib, re, time
def say(args, context): return args["text"]
def slow(args, context):
    pathlib.Path("begun").touch()
    while not pathlib.Path("go").exists():
        time.sleep(0.01)
    return args["text"]
def greedy(args, context):
    pathlib.Path("begun").touch()
    return re.match("(a+)+$", "a" * 99 + "b")
def deadly(args, context):
    import os
    os._exit(3) if args["text"] == "leave" else os.kill(os.getpid(), 11)
"""
"""Tools of a user's own. The slow one goes on until it is let go; the greedy one lets no other thread run."""


@pytest.fixture
def cell(server: EmbeddedServer, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    home = plugins.tools(tmp_path / "own", CODE, "say", "slow", "greedy", "deadly")
    with Deployment(server, namespace, tmp_path, PYTHONPATH=str(home)) as deployment:
        deployment.define()
        yield deployment


def reasons(cell: Deployment, workflow: str) -> list[str]:
    return [event.data["reason"] for event in cell.events(workflow) if event.type == "waiting"]


def begun(cell: Deployment, tool: str = "test.slow", **stage: Any) -> str:
    """A workflow whose tool runs."""
    workflow = cell.client.submit(asks(tool, **stage), slo_s=3600)
    while not Path("begun").exists():
        cell.processes.check()
    return workflow


def test_without_a_tool_worker_a_stage_says_so_and_fails_at_the_deadline(cell: Deployment) -> None:
    cell.until(cell.client.submit(asks("test.say")), "waiting")  # from here on the coordinator is there
    workflow = cell.client.submit(asks("test.say"), slo_s=2)
    assert cell.until(workflow, "waiting", stage="run").data["reason"] == NONE
    with pytest.raises(WorkflowFailed, match=f"run: {NONE}, and the deadline has passed"):
        cell.client.wait(workflow, timeout_s=30)
    assert reasons(cell, workflow) == [NONE]


def test_a_tool_worker_that_starts_later_takes_up_what_waits(cell: Deployment) -> None:
    workflow = cell.client.submit(asks("test.say"))
    cell.until(workflow, "waiting", reason=NONE)
    cell.tools()
    assert cell.client.wait(workflow, timeout_s=30)["output"] == "hello"
    assert reasons(cell, workflow) == [NONE]


def test_a_tool_that_nobody_has_is_told_at_once(cell: Deployment) -> None:
    cell.tools()
    assert cell.client.wait(cell.client.submit(asks("test.say")), timeout_s=30)["output"] == "hello"
    workflow = cell.client.submit(asks("no.such"), slo_s=2)
    assert cell.until(workflow, "waiting").data["reason"] == "no tool worker offers no.such"
    with pytest.raises(WorkflowFailed, match=r"no tool worker offers no\.such, and the deadline has passed"):
        cell.client.wait(workflow, timeout_s=30)


@pytest.mark.parametrize("how", ["killed", "told to stop"])
def test_what_is_queued_for_the_last_tool_worker_waits_when_it_is(cell: Deployment, how: str) -> None:
    cell.tools("last")
    running = begun(cell)
    queued = [cell.client.submit(asks("test.say")) for _ in range(3)]
    for workflow in queued:
        cell.until(workflow, "stage_started")
    if how == "killed":
        cell.kill("last")
    else:
        os.kill(cell.pids["last"], signal.SIGTERM)  # it goes on with what it has begun, and takes nothing more
    for workflow in queued:
        cell.until(workflow, "waiting", reason=NONE)
    Path("go").touch()
    if how == "told to stop":
        assert cell.client.wait(running, timeout_s=30)["output"] == "hello"
        assert cell.processes.ended("last", 30) == 0
    cell.tools("next")
    for workflow in (running, *queued):
        assert cell.client.wait(workflow, timeout_s=30)["output"] == "hello"
        assert [event.type for event in cell.events(workflow)].count("stage_completed") == 1


def test_a_tool_worker_without_the_tool_gives_the_request_back(cell: Deployment) -> None:
    cell.tools("has")
    running = begun(cell)
    queued = cell.client.submit(asks("test.slow"))
    cell.until(queued, "stage_started")
    cell.processes.start("lacks", ["tools"], {"PYTHONPATH": ""})
    assert cell.until(queued, "waiting").data["reason"] == "not every tool worker offers test.slow"
    assert "asks for a tool that is not installed here" in cell.log("lacks")
    Path("go").touch()
    assert cell.client.wait(running, timeout_s=30)["output"] == "hello"
    assert cell.processes.stop_one("lacks") == 0
    assert cell.client.wait(queued, timeout_s=30)["output"] == "hello"


def test_a_tool_whose_workflow_is_cancelled_is_ended_and_the_next_one_runs(cell: Deployment) -> None:
    cell.tools("only")
    running = begun(cell)
    cell.client.cancel(running)
    cell.until(running, "cancelled")
    assert cell.client.wait(cell.client.submit(asks("test.say")), timeout_s=30)["output"] == "hello"
    assert "is no longer ours; aborting" in cell.log("only")
    assert "the tool ended its process" not in cell.log("only")


def test_a_tool_that_lets_nothing_else_run_is_ended_all_the_same(cell: Deployment) -> None:
    cell.tools("tools", "--lease-s", "60")  # no other thread means no renewal
    greedy = begun(cell, "test.greedy", timeout_s=0.5, retries=0)
    assert cell.client.wait(cell.client.submit(asks("test.say")), timeout_s=60)["output"] == "hello"
    with pytest.raises(WorkflowFailed, match=r"ran longer than timeout_s = 0\.5 and let nothing else run"):
        cell.client.wait(greedy, timeout_s=60)
    cell.processes.check()


@pytest.mark.parametrize(("text", "how"), [("leave", "code 3"), ("crash", "signal 11")])
def test_a_tool_that_ends_its_process_costs_an_attempt_and_no_lease(cell: Deployment, text: str, how: str) -> None:
    cell.tools("tools", "--lease-s", "3600")
    deadly = cell.client.submit(asks("test.deadly", args={"text": text}, retries=1))
    with pytest.raises(WorkflowFailed, match=rf"the tool ended its process \({how}\) \(attempt 2 of 2\)"):
        cell.client.wait(deadly, timeout_s=60)
    cell.processes.check()
