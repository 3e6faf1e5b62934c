"""docs/tuner.md as it stands there, on a live cell whose alpha is far from right."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from deployment import Deployment

from common.clock import monotonic_s
from common.store.embedded import EmbeddedServer

pytestmark = pytest.mark.slow
TEXT = (Path(__file__).resolve().parents[2] / "docs" / "tuner.md").read_text("utf-8")
DOCUMENT = {
    "name": "pair",
    "inputs": {"text": {"type": "string"}},
    "stages": {
        "draft": {"prompt": "{{ inputs.text }}", "max_tokens": 60},
        "answer": {"needs": ["draft"], "prompt": "{{ inputs.text }}", "max_tokens": 60},
    },
}
WORKFLOWS = 45


def block(name: str) -> list[list[str]]:
    found = re.search(rf"^<!-- test: {re.escape(name)} -->\n+```\w+\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
    assert found
    lines = [shlex.split(line) for line in found[1].splitlines()]
    assert all(line[0] == "hexgen-flow" for line in lines)
    return [line[1:] for line in lines]


@pytest.fixture
def cell(server: EmbeddedServer, namespace: str, tmp_path: Path) -> Any:
    """Alpha = 1 looks at execution time alone: of two equal instances, one does almost everything."""
    with Deployment(server, namespace, tmp_path, HEXGEN_POLICY="hexgen", HEXGEN_ALPHA="1") as running:
        running.define(DOCUMENT)
        running.worker("fast", "--profile", "a100", "--time-scale", "20")
        running.worker("slow", "--profile", "l40s", "--time-scale", "20")
        yield running


def serve(cell: Deployment, count: int) -> None:
    """More a second than the faster instance can do; no prompt begins like another."""
    names = []
    for at in range(count):
        names.append(cell.client.submit("pair", {"text": f"{at} words " * 4500}, tenant=f"t{at % 3}"))
        signal.sigtimedwait([], 0.12)
    for name in names:
        assert cell.client.wait(name, timeout_s=120)["status"] == "completed"


def told(cell: Deployment, words: list[str]) -> str:
    command = [sys.executable, "-m", "hexgen_flow", *words]
    done = subprocess.run(
        command, cwd=cell.folder, env=os.environ | cell.environment, capture_output=True, text=True, timeout=170
    )
    assert (words, done.returncode, done.stderr) == (words, 0, "")
    return done.stdout


def until(cell: Deployment, process: str, text: str) -> None:
    give_up_at = monotonic_s() + 120
    while text not in cell.log(process):
        assert monotonic_s() < give_up_at, cell.log(process)
        signal.sigtimedwait([], 0.1)


def test_the_commands_and_a_change_that_takes_effect(cell: Deployment) -> None:
    serve(cell, WORKFLOWS)
    once, history, export, simulate, reset = (told(cell, words) for words in block("commands"))
    assert "would be changed: the replay gains" in once
    assert "alpha 1 -> " in once
    assert "would be changed" in history
    assert f"{WORKFLOWS} workflows, {2 * WORKFLOWS} calls" in export
    assert "flow" in simulate
    assert "own settings" in reset
    trace = json.loads((cell.folder / "live.json").read_text())
    assert {one["tenant"] for one in trace} == {"t0", "t1", "t2"}
    assert [one["arrival_s"] for one in trace] == sorted(one["arrival_s"] for one in trace)
    changed = json.loads(told(cell, ["tune", "--once", "--json"]))
    assert (changed["action"], changed["before"], changed["replayable"]) == ("changed", {"alpha": 1.0}, WORKFLOWS)
    alpha = changed["values"]["alpha"]
    until(cell, "coordinator", f"policy hexgen goes on with alpha {alpha:.3g}")
    serve(cell, 35)
    judged = json.loads(told(cell, ["tune", "--once", "--json"]))
    assert judged["action"] in ("confirmed", "changed")
    assert judged["live_p95_s"] < changed["live_p95_s"]


def test_the_tuner_has_rounds_by_itself_refuses_other_jobs_and_stops_when_told_to(cell: Deployment) -> None:
    ((name, *options),) = block("tuner")
    serve(cell, WORKFLOWS)
    cell.pids["tuner"] = cell.processes.start("tuner", [name, *options])
    until(cell, "tuner", "would be changed")
    enqueue = (
        "import os, rq, redis; from rq.serializers import JSONSerializer; "
        "rq.Queue(f\"hexgen-{os.environ['HEXGEN_NAMESPACE']}-tuner\", serializer=JSONSerializer, "
        "connection=redis.Redis.from_url(os.environ['HEXGEN_REDIS_URL'])).enqueue('os.system', 'true')"
    )
    subprocess.run([sys.executable, "-c", enqueue], env=os.environ | cell.environment, check=True, timeout=30)
    until(cell, "tuner", "only rounds of the tuner are run")
    entries = [json.loads(line) for line in told(cell, ["tune", "--history", "--json"]).splitlines()]
    assert [entry["before"] for entry in entries] == [{"alpha": 1.0}] * len(entries)
    assert max(entry["cpu_s"] for entry in entries) < 5.0
    cell.processes.stop()
    assert "the tuner has stopped" in cell.log("tuner")
