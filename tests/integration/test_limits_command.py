"""The commands `limits` on a real server: what they show, set and refuse."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from click.testing import CliRunner, Result
from operations_bench import accept

from common.store.cell import Cell
from common.store.embedded import EmbeddedServer
from common.store.limits import DEFAULTS
from hexgen_flow.cli import main


@pytest.fixture
def environment(server: EmbeddedServer, namespace: str) -> dict[str, str]:
    return {"HEXGEN_REDIS_URL": server.url, "HEXGEN_NAMESPACE": namespace, "COLUMNS": "80"}


def run(environment: dict[str, str], *words: str) -> Result:
    return CliRunner().invoke(main, ["limits", *words], env=environment, catch_exceptions=False)


def on_cell(environment: dict[str, str], work: Callable[[Cell], Awaitable[Any]]) -> Any:
    async def opened() -> Any:
        async with Cell.opened(environment["HEXGEN_REDIS_URL"], environment["HEXGEN_NAMESPACE"]) as cell:
            return await work(cell)

    return asyncio.run(opened())


def shown(environment: dict[str, str]) -> dict[tuple[str, str | None], dict[str, Any]]:
    return {(one["limit"], one["tenant"]): one for one in json.loads(run(environment, "--json").stdout)}


def test_what_is_set_is_shown_and_what_is_unset_goes_back(environment: dict[str, str]) -> None:
    assert {name: shown(environment)[name, None]["most"] for name in DEFAULTS} == DEFAULTS
    assert run(environment, "set", "workflows", "5").stdout == "workflows is 5\n"
    done = run(environment, "set", "tokens_per_s", "700", "--tenant", "acme", "--json")
    assert json.loads(done.stdout) == {"limit": "tokens_per_s", "tenant": "acme", "most": 700}
    run(environment, "set", "workflows", "0", "--tenant", "acme")
    on_cell(environment, accept)  # one of acme's is refused: nothing runs
    found = shown(environment)
    assert found["workflows", None] == {"limit": "workflows", "tenant": None, "most": 5, "is_set": True, "taken": 0}
    assert found["tokens_per_s", "acme"]["most"] == 700
    assert run(environment, "unset", "workflows", "--tenant", "acme").stdout == (
        "workflows of tenant acme is not set any more\n"
    )
    on_cell(environment, accept)
    run(environment, "set", "workflows", "9", "--tenant", "acme")
    found = shown(environment)
    assert (found["workflows", None]["taken"], found["workflows", "acme"]["taken"]) == (1, 1)
    table = [line.split() for line in run(environment).stdout.splitlines()]
    assert table[:2] == [["limit", "tenant", "at", "most", "set", "now"], ["workflows", "-", "5", "yes", "1"]]
    assert ["submissions", "-", str(DEFAULTS["submissions"]), "default", "1"] in table  # the refused one
    assert ["tenant_workflows", "-", "-", "default", "-"] in table
    assert ["workflows", "acme", "9", "yes", "1"] in table
    assert run(environment, "unset", "workflows").exit_code == 0
    assert run(environment, "unset", "workflows").stdout == "workflows is not set\n"
    assert shown(environment)["workflows", None]["most"] == DEFAULTS["workflows"]


def test_the_cell_may_be_named_before_the_command_too(environment: dict[str, str]) -> None:
    other = environment["HEXGEN_NAMESPACE"] + "-other"
    run(environment, "--namespace", other, "set", "queued", "7")
    assert shown(environment)["queued", None]["most"] == DEFAULTS["queued"]
    assert shown(environment | {"HEXGEN_NAMESPACE": other})["queued", None]["most"] == 7


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("set", "workflow", "5"), "NAME: there is no limit 'workflow'; there are: workflows, queued, submissions"),
        (("set", "queued", "5", "--tenant", "acme"), "NAME: there is no limit 'queued' of one tenant"),
        (("unset", "tokens", "--tenant", "acme"), "NAME: there is no limit 'tokens' of one tenant"),
        (("set", "tenant_tokens_per_s", "0"), "tenant_tokens_per_s: 0 must be a whole number from 1 to"),
        (("set", "queued", "many"), "'many' is not a valid integer"),
        (("set", "workflows", "5", "--tenant", "a:b"), "'a:b' must be 1 to 128 letters, digits"),
    ],
)
def test_what_cannot_be_is_said_in_a_sentence(environment: dict[str, str], words: tuple[str, ...], told: str) -> None:
    done = run(environment, *words)
    assert done.exit_code == 2
    assert told in done.stderr
    assert [one for one in shown(environment).values() if one["is_set"]] == []
