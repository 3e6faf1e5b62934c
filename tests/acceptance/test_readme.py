"""Every command of the README, run as it stands there."""

import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from deployment import Deployment

from common.store.embedded import EmbeddedServer
from hexgen_flow.client import Client
from hexgen_flow.processes import Processes

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text("utf-8")
STAYS = ("coordinator", "worker", "tools")


def blocks(marker: str) -> list[str]:
    """The fenced blocks after `<!-- test: marker -->`."""
    return re.findall(rf"^<!-- test: {re.escape(marker)} -->\n+```\w+\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def deployed(server: EmbeddedServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """The processes that the README starts, each on a line of its own, in the namespace that is the default."""
    folder = tmp_path_factory.mktemp("readme")
    with Deployment(server, "default", folder) as deployment:
        for line in blocks("commands")[0].splitlines():
            words = shlex.split(line)
            assert words[0] == "hexgen-flow"
            assert words[1] in STAYS
            deployment.processes.start(words[1], words[1:])
        yield deployment
        deployment.processes.check()


@pytest.fixture
def environment(server: EmbeddedServer) -> dict[str, str]:
    binaries = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "HEXGEN_REDIS_URL": server.url, "PATH": binaries, "COLUMNS": "120"}


def test_the_commands(deployed: Deployment, environment: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "answer.yaml").write_text(blocks("answer.yaml")[0])
    told = {}
    for line in blocks("commands")[1].splitlines():
        done = subprocess.run(
            ["sh", "-c", line], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60
        )
        assert (line, done.returncode) == (line, 0)
        assert re.fullmatch(r"(\d+-\d+\n)?", done.stderr)  # whoever waits is told the id at once
        told[shlex.split(line)[1]] = done.stdout
    assert "Why is the sky blue?" in told["submit"]
    assert "a100-0" in told["instances"]
    assert re.search(r"^completed: [1-9]", told["status"], re.MULTILINE)


def test_the_python_program(deployed: Deployment, server: EmbeddedServer, environment: dict[str, str]) -> None:
    program = blocks("python")[0]
    assert "redis://127.0.0.1:6379/0" in program
    done = subprocess.run(
        [sys.executable, "-c", program.replace("redis://127.0.0.1:6379/0", server.url)],
        env=environment, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert "completed" in done.stdout
    assert "Why is the sky blue?" in done.stdout.splitlines()[-1]


def test_the_demo_commands_are_run_in_ci() -> None:
    ci = (ROOT / ".ci" / "run").read_text("utf-8")
    assert "scripts/demo" in ci
    assert "--engine vllm" in ci


def test_the_server_for_trying(tmp_path: Path) -> None:
    assert "`hexgen-flow server state`" in README
    with Processes(tmp_path / "logs", {}) as processes:
        processes.start("server", ["server", str(tmp_path / "state")])
        log = tmp_path / "logs" / "server.log"
        while not (url := log.read_text()).endswith("\n"):
            processes.check()
            time.sleep(0.05)
        with Client(url.strip()) as client:
            client.submit("answer", {})
        assert processes.stop_one("server") == 0
    assert log.read_text() == url


def test_every_linked_document_exists() -> None:
    for target in re.findall(r"\]\(((?!http)[^)#]+)\)", README):
        assert (ROOT / target).exists(), target


def test_every_setting_is_in_the_table() -> None:
    from common.settings import Settings

    for name in Settings.model_fields:
        assert name == "log_level" or f"`HEXGEN_{name.upper()}`" in README
