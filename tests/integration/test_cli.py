"""The commands against a real server: what they print, and what they say when something is wrong."""

import asyncio
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from common.model import InstanceLoad, RunningCall
from common.profiles import A100
from common.store.cell import Cell
from common.store.client import connect_sync
from common.store.embedded import EmbeddedServer
from common.store.keys import Keys
from common.store.offers import Offer
from hexgen_flow.cli import main
from hexgen_flow.start import shadowed

LOAD = InstanceLoad(
    4000.0, 0.03, 1e-7, 20_000, 512, 64, kv_tokens=420, unprefilled_tokens=20, token_s=0.04,
    running=(RunningCall("r1", 300, 100, 0, 150, 17, 60_000),),
)  # fmt: skip
GOOD = {"name": "one", "stages": {"s": {"prompt": "hello"}}}


@pytest.fixture
def environment(server: EmbeddedServer, namespace: str) -> dict[str, str]:
    return {"HEXGEN_REDIS_URL": server.url, "HEXGEN_NAMESPACE": namespace}


def run(environment: dict[str, str], *words: str) -> Result:
    return CliRunner().invoke(main, list(words), env=environment, catch_exceptions=False)


def test_definitions_are_checked_registered_listed_and_shown(environment: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "one.json"
    file.write_text(json.dumps(GOOD))
    assert run(environment, "workflow", "check", str(file)).output == "one: 1 stage, no fault\n"
    digest = json.loads(run(environment, "workflow", "register", str(file), "--json").output)["digest"]
    assert json.loads(run(environment, "workflow", "list", "--json").output) == {"one": digest}
    assert run(environment, "workflow", "list").output == f"one  {digest[:12]}\n"
    assert json.loads(run(environment, "workflow", "show", "one", "--json").output) == GOOD
    assert run(environment, "workflow", "show", "one").output == f"one  {digest[:12]}\nstages:\n  s: llm\n"


def test_a_definition_is_shown_with_its_inputs_and_one_line_for_each_stage(
    environment: dict[str, str], tmp_path: Path
) -> None:
    long = " or ".join(["inputs.question"] * 20)
    file = tmp_path / "two"
    file.write_text(
        json.dumps(
            {
                "name": "two",
                "inputs": {
                    "question": {"type": "string"},
                    "hints": {"type": "array", "default": ["x" * 500]},
                    "evidence": {"type": "any", "default": None},
                },
                "stages": {
                    "a": {"prompt": "a long prompt " * 100, "when": "inputs.question\n  or true"},
                    "b": {"needs": ["a"], "for_each": long, "tool": "sql.execute", "args": {}},
                    "c": {"repeat": {"while": "false", "max": 3}, "stages": {"d": {"prompt": "x"}}},
                },
            }
        )
    )
    assert run(environment, "workflow", "check", str(file)).output == "two: 4 stages, no fault\n"
    run(environment, "workflow", "register", str(file))
    shown = run(environment, "workflow", "show", "two").output.splitlines()
    assert shown[1:] == [
        "inputs:",
        "  question: string, required",
        f'  hints: array, default ["{"x" * 55}...',
        "  evidence: any, default null",
        "stages:",
        "  a: llm, when inputs.question or true",
        f"  b: sql.execute, after a, for each of {long[:57]}...",
        "  c: group, while false (at most 3)",
        "    d: llm",
    ]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["workflow", "show", "none"], 1, "no workflow is registered as 'none'"),
        (["status", "none"], 1, "nothing is known of none"),
        (["result", "none"], 1, "nothing is known of none"),
        (["cancel", "none"], 1, "nothing is known of none"),
        (["amend", "none", "--slo-s", "5"], 1, "nothing is known of none"),
        (["submit", "missing.yaml"], 2, "missing.yaml: there is no such file"),
        (["submit", "one", "--input", "novalue"], 2, "--input: 'novalue' is not NAME=VALUE"),
        (["submit", "one", "--timeout-s", "5"], 2, "--timeout-s: is for --wait"),
        (["worker", "--instance", "a", "--profile", "z80"], 2, "--profile: 'z80' is not one of"),
        (["worker", "--instance", "a", "--responder", "nobody"], 1, "no responder is named 'nobody'"),
        (["worker", "--instance", "a", "--", "--model", "x"], 2, "the simulated engine takes no arguments after --"),
        (["tools", "--database", "bank"], 2, "--database: must be NAME=URL"),
        (["status", "--redis", "http://x"], 2, "--redis / HEXGEN_REDIS_URL: must begin with"),
        (["status", "--redis", "redis://127.0.0.1:1/0"], 3, "Redis cannot be reached"),
        (["status", "--namespace", "a b"], 2, "namespace"),
    ],
)
def test_a_fault_is_one_sentence_and_a_code(
    environment: dict[str, str], words: list[str], code: int, said: str
) -> None:
    done = run(environment, *words)
    assert done.exit_code == code
    assert said in done.stderr
    assert done.output.startswith("Error: ")
    assert len(done.output.strip().splitlines()) == 1


def test_a_bad_definition_names_file_and_place(environment: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text("name: bad\nstages: {a: {prompt: x, needs: [b]}}\n")
    done = run(environment, "workflow", "check", str(file))
    assert done.exit_code == 2
    assert "bad.yaml: stages.a.needs" in done.output


def test_status_of_an_empty_cell_and_no_instances(environment: dict[str, str]) -> None:
    assert json.loads(run(environment, "status", "--json").output)["running"] == 0
    assert json.loads(run(environment, "instances", "--json").output) == []
    shown = run(environment, "status").output.splitlines()
    counted = {"running", "submitted", "completed", "failed", "cancelled", "rejected", "shed", "dead", "delayed"}
    assert {f"{word}: 0" for word in {*counted, "claimed", "in_line"}} <= set(shown)
    assert "coordinators: none" in shown


def test_tool_workers_are_shown_among_the_instances(environment: dict[str, str], server: EmbeddedServer) -> None:
    Offer(connect_sync(server.url), Keys(environment["HEXGEN_NAMESPACE"]), "host-1", ["sql.select"], 60_000).renew()
    (shown,) = json.loads(run(environment, "instances", "--json").output)
    assert (shown["instance"], shown["profile"], shown["models"]) == ("host-1", "tools", ["sql.select"])
    assert "host-1" in run(environment, "instances").output


def test_the_table_of_instances_keeps_every_name_whole_in_80_columns(
    environment: dict[str, str], server: EmbeddedServer
) -> None:
    keys = Keys(environment["HEXGEN_NAMESPACE"])
    Offer(
        connect_sync(server.url), keys, "gpu-host-17-4242", ["sql.describe", "sql.execute", "sql.select"], 60_000
    ).renew()

    async def register() -> None:
        cell = Cell.open(server.url, environment["HEXGEN_NAMESPACE"])
        await cell.instances.register("a100-80gb-rack-7", A100, ["llama-3.1-8b-it", "default"], ["eu"], [])
        await cell.close()

    asyncio.run(register())
    shown = run(environment | {"COLUMNS": "80"}, "instances").output
    assert max(map(len, shown.splitlines())) <= 80
    for name in ("a100-80gb-rack-7", "gpu-host-17-4242", "llama-3.1-8b-it", "default", "+eu", "sql.execute", "alone"):
        assert name in shown


def test_a_lost_instance_is_said_to_run_nothing(environment: dict[str, str], server: EmbeddedServer) -> None:
    async def lose() -> None:
        cell = Cell.open(server.url, environment["HEXGEN_NAMESPACE"])
        epoch = await cell.instances.register("a", A100, ["default"], [], [])
        assert await cell.instances.publish("a", epoch, LOAD)
        assert (await cell.instances.describe())[0]["load"]["running"] == 1
        await cell.instances.evacuate("a", "lost")
        await cell.close()

    asyncio.run(lose())
    (shown,) = json.loads(run(environment, "instances", "--json").output)
    assert (shown["status"], shown["load"]) == ("lost", None)
    assert run(environment, "instances").output.split()[-3:] == ["-", "0.0", "s"]


def test_how_long_an_instance_has_been_silent_is_shown(environment: dict[str, str], server: EmbeddedServer) -> None:
    async def fall_silent() -> None:
        async with Cell.opened(server.url, environment["HEXGEN_NAMESPACE"]) as cell:
            await cell.instances.register("a", A100, ["default"], [], [])
            await cell.client.zincrby(cell.keys.instances, -25_000, "a")

    asyncio.run(fall_silent())
    (shown,) = json.loads(run(environment, "instances", "--json").output)
    assert shown["status"] == "ready"
    assert 25 <= shown["heard_s"] < 35
    assert shown["silent"]  # for more than half a lease: nobody has found it lost yet
    table = run(environment, "instances").output
    assert re.search(r"ready, silent +a100 +default +(2[5-9]|3[0-5]) s +0 +- +0\.0 s", table)
    (shown,) = json.loads(run(environment | {"HEXGEN_LEASE_S": "300"}, "instances", "--json").output)
    assert not shown["silent"]


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
