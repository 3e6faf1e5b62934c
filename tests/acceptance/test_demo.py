"""The demo as a command: its report, and nothing left behind."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from deployment import Deployment

from common.errors import HexgenError
from common.settings import load
from common.store.embedded import EmbeddedServer
from hexgen_flow.demo import Plan, drive
from hexgen_flow.text2sql.dataset import load_dataset


def processes_of(folder: Path) -> list[str]:
    """Command lines of processes that work in, or were told of, this folder."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
                environment = (entry / "environ").read_bytes().decode("utf-8", "replace")
            except OSError:
                continue
            if str(folder) in command + environment:
                found.append(command)
    return found


def demo(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "hexgen_flow", "demo", "--keep", str(folder), *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=170)


def test_the_demo_reports_and_leaves_nothing_running(tmp_path: Path) -> None:
    done = demo(tmp_path, "--json", "--workflows", "6", "--rate", "3", "--time-scale", "60", "--slo-s", "30")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["completed"], found["failed"], found["errors"]) == (6, 0, [])
    assert 0 < found["p50_s"] <= found["p95_s"]
    assert found["slo_attainment"] == 1.0
    assert found["execution_accuracy"] >= 0.5
    assert set(found["instances"]) <= {"a100-0", "a100-1", "a6000-0", "l40s-0"}  # the slower ones where it pays
    assert sum(found["instances"].values()) == sum(stage["requests"] for stage in found["usage"].values())
    assert found["tool_requests"] > 0
    assert found["usage"]["candidates.generate"]["requests"] == 18
    assert all(0 <= cost["cached_tokens"] < cost["prompt_tokens"] for cost in found["usage"].values())
    assert "error rate of 0.3" in found["answers"]
    assert "redis://" in done.stderr
    assert processes_of(tmp_path) == []


@pytest.mark.slow
def test_ctrl_c_ends_the_demo_without_a_word_of_python(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hexgen_flow", "demo", "--keep", str(tmp_path), "--rate", "5"]
    running = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert running.stderr is not None
    told = ""
    while "instances are ready" not in told:
        told += running.stderr.readline()
    running.send_signal(signal.SIGINT)
    told += running.communicate(timeout=60)[1]
    assert running.returncode == 1
    assert "Traceback" not in told
    assert "exception" not in told
    assert processes_of(tmp_path) == []


async def test_a_process_that_ends_by_itself_ends_the_demo_at_once(
    server: EmbeddedServer, namespace: str, tmp_path: Path
) -> None:
    """Though most of the workflows are not submitted yet."""
    told: list[str] = []
    data = load_dataset(None, tmp_path / "databases")
    with Deployment(server, namespace, tmp_path) as cell:
        cell.coordinator()
        cell.worker("doomed")

        def progress(done: int, wanted: int) -> None:
            os.kill(cell.pids["doomed"], signal.SIGKILL)

        plan = Plan(rate=1e-6, tool_workers=0)
        settings = load(redis_url=server.url, namespace=namespace)
        with pytest.raises(HexgenError, match="doomed ended with code -9"):
            await drive(plan, settings, data, cell.processes, ["doomed"], told.append, progress)
    assert told == ["1 instances are ready: doomed"]


def test_the_demo_without_a_model_says_what_is_missing(tmp_path: Path) -> None:
    done = demo(tmp_path, "--engine", "vllm", "--model-dir", str(tmp_path / "none"))
    assert done.returncode == 1
    assert "--model-dir" in done.stderr
    assert "Traceback" not in done.stderr
    assert processes_of(tmp_path) == []
