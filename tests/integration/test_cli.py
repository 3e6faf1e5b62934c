"""The commands against a real server: what they print, and what they say when something is wrong."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from common.store.client import connect_sync
from common.store.embedded import EmbeddedServer
from common.store.keys import Keys
from common.store.offers import Offer
from hexgen_flow.cli import main
from hexgen_flow.start import shadowed

GOOD = {"name": "one", "stages": {"s": {"prompt": "hello"}}}


@pytest.fixture
def environment(server: EmbeddedServer, namespace: str) -> dict[str, str]:
    return {"HEXGEN_REDIS_URL": server.url, "HEXGEN_NAMESPACE": namespace}


def run(environment: dict[str, str], *words: str) -> Result:
    return CliRunner().invoke(main, list(words), env=environment, catch_exceptions=False)


def test_definitions_are_checked_registered_listed_and_shown(environment: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "one.json"
    file.write_text(json.dumps(GOOD))
    assert "no fault" in run(environment, "workflow", "check", str(file)).output
    digest = json.loads(run(environment, "workflow", "register", str(file), "--json").output)["digest"]
    assert json.loads(run(environment, "workflow", "list", "--json").output) == {"one": digest}
    assert run(environment, "workflow", "list").output == f"one  {digest[:12]}\n"
    assert json.loads(run(environment, "workflow", "show", "one", "--json").output) == GOOD
    assert "s: llm" in run(environment, "workflow", "show", "one").output


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["workflow", "show", "none"], "no workflow is registered as 'none'"),
        (["status", "none"], "'none' is not known"),
        (["result", "none"], "'none' has no result"),
        (["cancel", "none"], "no workflow 'none' is running"),
        (["submit", "missing.yaml"], "missing.yaml: there is no such file"),
        (["submit", "one", "--input", "novalue"], "--input: 'novalue' is not NAME=VALUE"),
        (["worker", "--instance", "a", "--profile", "z80"], "--profile: 'z80' is not one of"),
        (["worker", "--instance", "a", "--responder", "nobody"], "no responder is named 'nobody'"),
        (["worker", "--instance", "a", "--", "--model", "x"], "the simulated engine takes no arguments after --"),
        (["tools", "--database", "bank"], "--database: 'bank' is not NAME=URL"),
        (["status", "--redis", "http://x"], "--redis / HEXGEN_REDIS_URL: must begin with"),
        (["status", "--namespace", "a b"], "namespace"),
    ],
)
def test_a_fault_is_one_sentence_and_a_code(environment: dict[str, str], words: list[str], said: str) -> None:
    done = run(environment, *words)
    assert done.exit_code == 1
    assert said in done.output
    assert done.output.startswith("Error: ")
    assert len(done.output.strip().splitlines()) == 1


def test_a_bad_definition_names_file_and_place(environment: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text("name: bad\nstages: {a: {prompt: x, needs: [b]}}\n")
    done = run(environment, "workflow", "check", str(file))
    assert done.exit_code == 1
    assert "bad.yaml: stages.a.needs" in done.output


def test_an_unreachable_server_is_told(namespace: str) -> None:
    done = run({"HEXGEN_REDIS_URL": "redis://127.0.0.1:1/0", "HEXGEN_NAMESPACE": namespace}, "status")
    assert done.exit_code == 1
    assert "Redis cannot be reached" in done.output


def test_status_of_an_empty_cell_and_no_instances(environment: dict[str, str]) -> None:
    assert json.loads(run(environment, "status", "--json").output)["running"] == 0
    assert json.loads(run(environment, "instances", "--json").output) == []
    assert "running: 0" in run(environment, "status").output


def test_tool_workers_are_shown_among_the_instances(environment: dict[str, str], server: EmbeddedServer) -> None:
    Offer(connect_sync(server.url), Keys(environment["HEXGEN_NAMESPACE"]), "host-1", ["sql.select"], 60_000).renew()
    (shown,) = json.loads(run(environment, "instances", "--json").output)
    assert (shown["instance"], shown["profile"], shown["models"]) == ("host-1", "tools", ["sql.select"])
    assert "host-1" in run(environment, "instances").output


def test_submit_prints_the_id(environment: dict[str, str]) -> None:
    assert run(environment, "submit", "one", "--id", "order-1").output == "order-1\n"
    entry = json.loads(run(environment, "submit", "one", "--json", "--input", "n=3").output)["workflow"]
    assert entry.count("-") == 1


def test_version_and_help_of_every_command(environment: dict[str, str]) -> None:
    assert run(environment, "--version").output.startswith("hexgen-flow, version ")
    for name in main.commands:
        assert run(environment, name, "--help").exit_code == 0


def test_a_foreign_package_in_front_is_told_in_one_sentence(tmp_path: Path) -> None:
    foreign = tmp_path / "common"
    foreign.mkdir()
    (foreign / "__init__.py").write_text("")
    command = [sys.executable, "-c", "from hexgen_flow.start import main; main()", "--version"]
    done = subprocess.run(command, env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 1
    assert "another package named 'common'" in done.stderr
    assert shadowed() is None
