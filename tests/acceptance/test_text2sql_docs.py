"""docs/text2sql.md as it stands, on a database of our own; a simulated engine takes the place of the GPU's."""

import json
import os
import re
import shlex
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

from deployment import Deployment

from common.store.embedded import EmbeddedServer

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "text2sql.md").read_text("utf-8")


def block(marker: str) -> list[list[str]]:
    found = re.search(rf"^<!-- test: {marker} -->\n+```sh\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
    assert found
    return [shlex.split(line) for line in found[1].splitlines()]


def test_a_question_is_asked_of_a_database_of_ones_own(server: EmbeddedServer, namespace: str, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "shop.sqlite")) as shop:
        shop.executescript("create table sale (article text, status text); insert into sale values ('tea', 'paid');")
    coordinator, worker, tools = block("processes")
    ((program, *submit),) = block("commands")
    assert {coordinator[0], worker[0], tools[0], program} == {"hexgen-flow"}
    with Deployment(server, namespace, tmp_path) as cell:
        cell.processes.start("coordinator", coordinator[1:])
        assert worker[worker.index("--engine") + 1] == "vllm"
        cell.processes.start("worker", [*worker[1 : worker.index("--engine")], "--time-scale", "100"])
        cell.processes.start("tools", [word.replace("shop.sqlite", f"{tmp_path}/shop.sqlite") for word in tools[1:]])
        environment = {**os.environ, "HEXGEN_REDIS_URL": server.url, "HEXGEN_NAMESPACE": namespace}
        command = [sys.executable, "-m", "hexgen_flow", *submit, "--json"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
        cell.processes.check()
    assert done.returncode == 0, done.stderr
    output = json.loads(done.stdout.splitlines()[-1])["output"]
    tables = TEXT.partition("## What prompts share")[0]
    documented = re.findall(r"`(\w+)`", " ".join(re.findall(r"^\| (`[^|]*) \|", tables, re.MULTILINE)))
    assert sorted([*output, "question", "database", "evidence"]) == sorted(documented)
    assert output["error"]  # the simulated engine writes no SQL
