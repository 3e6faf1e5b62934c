"""`tune` and `trace export` on a cell where little or nothing has happened, and what decisions look like."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from common.store.cell import Cell
from common.store.embedded import EmbeddedServer
from hexgen_flow.cli import main

TOLD = {
    "action": "changed", "reason": "the replay gains 12.0%", "policy": "flow", "before": {"harm": 2.0, "wait": 1.4},
    "values": {"harm": 2.8, "wait": 1.4}, "rate": 0.5, "recorded": 60, "replayable": 58, "cpu_s": 1.25,
}  # fmt: skip


@pytest.fixture
def environment(server: EmbeddedServer, namespace: str) -> dict[str, str]:
    return {"HEXGEN_REDIS_URL": server.url, "HEXGEN_NAMESPACE": namespace, "HEXGEN_POLICY": "flow"}


def run(environment: dict[str, str], *words: str) -> Result:
    return CliRunner().invoke(main, list(words), env=environment, catch_exceptions=False)


def decided(environment: dict[str, str], told: dict[str, Any]) -> None:
    async def decide() -> None:
        async with Cell.opened(environment["HEXGEN_REDIS_URL"], environment["HEXGEN_NAMESPACE"]) as cell:
            await cell.tuning.decide(0, told, None, "flow", told["values"])

    asyncio.run(decide())


def test_where_nothing_has_happened_that_is_said(environment: dict[str, str], tmp_path: Path) -> None:
    once = run(environment, "tune", "--once")
    assert once.exit_code == 0
    assert once.output.startswith("kept: no workflow is recorded that the ready instances can run")
    file = tmp_path / "live.json"
    export = run(environment, "trace", "export", str(file))
    assert export.exit_code == 1
    assert f"no workflow has completed in namespace {environment['HEXGEN_NAMESPACE']}" in export.output
    assert not file.exists()


def test_history_is_empty_at_first(environment: dict[str, str]) -> None:
    found = run(environment, "tune")
    assert (found.exit_code, "nothing has been decided yet" in found.output) == (1, True)
    assert run(environment, "tune", "--history", "--json").output == ""


def test_a_decision_on_a_line(environment: dict[str, str]) -> None:
    decided(environment, TOLD)
    line = run(environment, "tune", "--history").output
    assert line.endswith(" ago  changed           flow harm 2 -> 2.8: the replay gains 12.0%\n")
    shown = json.loads(run(environment, "tune", "--history", "--json").output)
    assert shown.pop("at") > 0
    assert shown == TOLD


@pytest.mark.parametrize("words", [["--reset"], ["--reset", "--json"]])
def test_reset_leaves_nothing_in_force(environment: dict[str, str], words: list[str]) -> None:
    decided(environment, TOLD)
    assert json.loads(run(environment, "tune", "--once", "--json").output)["before"]["harm"] == 2.8
    assert run(environment, "tune", *words).exit_code == 0
    once = json.loads(run(environment, "tune", "--once", "--json").output)
    assert once["before"]["harm"] == 2.0


@pytest.mark.parametrize(
    "words", [["tune", "--once", "--margin", "nan"], ["tuner", "--interval-s", "0"], ["tuner", "--cpu-share", "2"]]
)
def test_options_out_of_range_are_refused(environment: dict[str, str], words: list[str]) -> None:
    assert run(environment, *words).exit_code == 2
