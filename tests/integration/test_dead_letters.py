"""Dead letters: what they tell, and the commands that show them, submit their workflows again and remove them."""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from click.testing import CliRunner, Result
from operations_bench import ROOM, commit, dispatched, push

from common.model import InstanceProfile
from common.settings import load
from common.store.cell import Cell
from common.store.embedded import EmbeddedServer
from common.store.queues import Seat
from common.tasks import end
from coordinator.desk import Desk
from coordinator.language.compiler import compile_definition
from coordinator.loops.completions import completions
from coordinator.loops.intake import intake
from hexgen_flow.cli import main

PROFILE = InstanceProfile("test", 1000.0, 0.03, 0.005, 1e-7, 1000)
DOCUMENT: dict[str, Any] = {
    "workflow": {
        "name": "one",
        "inputs": {"text": {"type": "string"}, "more": {"type": "any", "default": [1]}},
        "stages": {"s": {"prompt": "{{ inputs.text }}"}},
    },
    "inputs": {"text": "hello"},
    "tenant": "acme",
    "slo_s": 20,
    "on_deadline": "cancel",
    "id": "order-1",
}
REASON = "its worker or engine was lost 3 times"


@pytest.fixture
def environment(server: EmbeddedServer, namespace: str) -> dict[str, str]:
    return {"HEXGEN_REDIS_URL": server.url, "HEXGEN_NAMESPACE": namespace, "COLUMNS": "120"}


def run(environment: dict[str, str], *words: str) -> Result:
    return CliRunner().invoke(main, ["dead", *words], env=environment, catch_exceptions=False)


def on_cell(environment: dict[str, str], work: Callable[[Cell], Awaitable[Any]]) -> Any:
    async def opened() -> Any:
        async with Cell.opened(environment["HEXGEN_REDIS_URL"], environment["HEXGEN_NAMESPACE"]) as cell:
            return await work(cell)

    return asyncio.run(opened())


def answered(environment: dict[str, str], *words: str) -> Result:
    """The command beside a coordinator that answers what it submits."""

    async def both(cell: Cell) -> Result:
        async def answer() -> None:
            while True:
                await intake(desk)

        desk = Desk(cell, load(policy="hexgen"))
        answering = asyncio.create_task(answer())
        done = await asyncio.to_thread(run, environment, *words)
        await end(answering)
        return done

    result: Result = on_cell(environment, both)
    return result


async def bury(cell: Cell, document: Any = DOCUMENT) -> None:
    """A workflow whose request takes three workers with it."""
    desk = Desk(cell, load(policy="hexgen"))
    await cell.inbox.prepare()
    epoch = await cell.instances.register("a", PROFILE, ["default"], [], [])
    await cell.records.submit(document)
    await intake(desk)
    for turn in range(3):
        await completions(desk)
        await cell.queues.claim(Seat("a", epoch, f"a/p{turn}"), f"c{turn}", 0, ROOM)
        await cell.queues.reap(0, 3)
    await completions(desk)


async def again(cell: Cell) -> list[tuple[str, Any]]:
    """What is submitted now is accepted: (id, head) of what runs."""
    await intake(Desk(cell, load(policy="hexgen")))
    found = [(name, await cell.records.workflow(name)) for name in await cell.records.live(10)]
    return [(name, known[1]) for name, known in found if known is not None]


def test_a_dead_letter_tells_what_was_given_up_why_and_who_lost_it(environment: dict[str, str]) -> None:
    assert run(environment, "list").output == "there are no dead letters\n"
    assert json.loads(run(environment, "list", "--json").output) == []
    on_cell(environment, bury)
    (letter,) = json.loads(run(environment, "list", "--json").output)
    shown = {"workflow": "order-1", "name": "one", "tenant": "acme", "stage": "s", "reason": REASON}
    assert letter == letter | shown | {"owners": ["a/p0", "a/p1", "a/p2"]}
    assert letter["at"] == int(letter["id"].partition("-")[0])
    heading, line = run(environment, "list").output.splitlines()
    assert heading.split() == ["letter", "workflow", "name", "tenant", "stage", "reason"]
    assert line.split() == [letter["id"], "order-1", "one", "acme", "s", *REASON.split()]
    assert json.loads(run(environment, "show", letter["id"], "--json").output) == letter
    lines = run(environment, "show", letter["id"]).output.splitlines()
    assert {f"id: {letter['id']}", f"reason: {REASON}", "owners: a/p0, a/p1, a/p2"} <= set(lines)


def test_requeue_submits_the_workflow_again_once_under_a_new_id(environment: dict[str, str]) -> None:
    on_cell(environment, bury)
    (letter,) = json.loads(run(environment, "list", "--json").output)
    told = json.loads(run(environment, "requeue", letter["id"], "--accept-timeout-s", "0", "--json").output)
    assert told["letter"] == letter["id"]
    assert json.loads(run(environment, "list", "--json").output) == [letter]
    assert run(environment, "requeue", letter["id"], "--accept-timeout-s", "0").output == f"{told['workflow']}\n"
    ((name, head),) = on_cell(environment, again)
    assert name == told["workflow"] == f"requeued-{letter['id']}"
    assert json.loads(run(environment, "list", "--json").output) == []
    assert (head.name, head.tenant, head.inputs) == ("one", "acme", {"text": "hello", "more": [1]})
    assert (head.slo.deadline_at - head.slo.arrival_at, head.on_deadline) == (20_000, "cancel")
    assert head.slo.arrival_at == int(told["entry"].partition("-")[0])
    done = run(environment, "requeue", letter["id"])
    assert done.exit_code == 1
    assert done.stderr.startswith(f"Error: there is no dead letter {letter['id']} (any more)")
    assert on_cell(environment, again) == [(name, head)]


def test_what_a_limit_refuses_keeps_its_letter_until_there_is_room(environment: dict[str, str]) -> None:
    on_cell(environment, bury)
    (letter,) = json.loads(run(environment, "list", "--json").output)
    on_cell(environment, lambda cell: cell.limits.set("workflows", 0, "acme"))
    done = answered(environment, "requeue", letter["id"])
    assert done.exit_code == 1
    assert "rejected: tenant: tenant acme runs 0 of 0 workflows; try again in " in done.stderr
    assert json.loads(run(environment, "list", "--json").output) == [letter]
    on_cell(environment, lambda cell: cell.limits.unset("workflows", "acme"))
    done = answered(environment, "requeue", letter["id"])
    assert (done.exit_code, done.output) == (0, f"requeued-{letter['id']}\n")
    assert json.loads(run(environment, "list", "--json").output) == []
    assert [name for name, _ in on_cell(environment, again)] == [f"requeued-{letter['id']}"]


@pytest.mark.parametrize("status", ["running", "completed"])
def test_a_workflow_that_went_on_without_what_was_given_up_is_not_repeated(
    environment: dict[str, str], status: str
) -> None:
    on_cell(environment, bury)
    on_cell(environment, lambda cell: cell.client.hset(cell.keys.workflow("order-1"), "status", status))
    (letter,) = json.loads(run(environment, "list", "--json").output)
    result = CliRunner().invoke(main, ["dead", "requeue", letter["id"]], env=environment)
    assert result.exit_code == 1
    assert f"went on without it and is {status}" in result.output
    assert len(json.loads(run(environment, "list", "--json").output)) == 1


@pytest.mark.parametrize("lost", ["workflow", "definition", "garbage", "id used again"])
def test_what_is_not_kept_cannot_be_submitted_again_and_keeps_its_letter(
    environment: dict[str, str], lost: str
) -> None:
    async def lose(cell: Cell) -> None:
        (letter,) = await cell.dead.all()
        workflow = cell.keys.workflow("order-1")
        if lost == "definition":
            known = await cell.records.workflow("order-1")
            assert known is not None
            await cell.client.delete(cell.keys.definition(known[1].definition))
        elif lost == "garbage":
            await cell.client.hset(workflow, "head", b"\xc1")
        else:
            await cell.client.delete(workflow)
        while await cell.records.now_ms() == letter.at:  # the same id again can only come later
            pass
        if lost == "id used again":
            await cell.records.submit(DOCUMENT)
            await intake(Desk(cell, load(policy="hexgen")))

    on_cell(environment, bury)
    on_cell(environment, lose)
    (letter,) = json.loads(run(environment, "list", "--json").output)
    done = run(environment, "requeue", letter["id"])
    assert done.exit_code == 1
    assert done.stderr == "Error: what was submitted as order-1 is not kept (any more): submit it again yourself\n"
    assert json.loads(run(environment, "list", "--json").output) == [letter]


def test_what_would_be_refused_is_not_submitted_again_and_keeps_its_letter(environment: dict[str, str]) -> None:
    """By its name, a definition took no room in the document."""
    definition = DOCUMENT["workflow"] | {"description": "x" * 600_000}

    async def bury_big(cell: Cell) -> None:
        known = compile_definition(definition)
        await cell.records.register("one", known.digest, known.document, 60_000)
        await bury(cell, DOCUMENT | {"workflow": "one", "inputs": {"text": "x", "more": "y" * 600_000}})

    on_cell(environment, bury_big)
    (letter,) = json.loads(run(environment, "list", "--json").output)
    done = run(environment, "requeue", letter["id"])
    assert done.exit_code == 1
    told = (
        rf"Error: dead letter {letter['id']} stays: .* the document has 1200\d\d\d bytes; at most 1048576 are taken\n"
    )
    assert re.fullmatch(told, done.stderr)
    assert json.loads(run(environment, "list", "--json").output) == [letter]
    assert on_cell(environment, again) == []


def test_drop_removes_a_letter_once(environment: dict[str, str]) -> None:
    on_cell(environment, bury)
    (letter,) = json.loads(run(environment, "list", "--json").output)
    assert run(environment, "drop", letter["id"]).output == f"dead letter {letter['id']} is removed\n"
    for word in ("drop", "show"):
        done = run(environment, word, letter["id"])
        assert (done.exit_code, done.stdout) == (1, "")
        assert done.stderr.startswith(f"Error: there is no dead letter {letter['id']} (any more)")
    assert json.loads(run(environment, "list", "--json").output) == []


@pytest.mark.parametrize("word", ["show", "requeue", "drop"])
@pytest.mark.parametrize("wrong", ["order-1", "1", "-", "1-99999999999999999999"])
def test_what_is_no_letters_id_is_said_to_be_none(environment: dict[str, str], word: str, wrong: str) -> None:
    done = run(environment, word, "--", wrong)
    assert done.exit_code == 2
    assert "must be a letter's id, as `hexgen-flow dead list` shows it" in done.stderr


async def test_a_workflow_whose_state_is_broken_is_a_dead_letter(cell: Cell) -> None:
    desk = Desk(cell, load(policy="hexgen"))
    await cell.records.submit(DOCUMENT)
    await intake(desk)
    await cell.client.rpush(cell.keys.mailbox("order-1"), b"hello")
    await completions(desk)
    (letter,) = await cell.dead.all()
    assert (letter.workflow, letter.name, letter.tenant, letter.owners) == ("order-1", "one", "acme", ())
    result: Any = await cell.records.result("order-1")
    assert letter.reason == result["error"]
    assert letter.reason.startswith("internal error: its mail cannot be read")


async def test_a_submission_that_cannot_be_taken_is_a_dead_letter_and_a_wrong_one_is_none(
    cell: Cell, monkeypatch: pytest.MonkeyPatch
) -> None:
    def bug(document: object) -> None:
        raise ZeroDivisionError("a bug")

    wrong = await cell.records.submit({"workflow": "none"})
    await intake(Desk(cell, load(policy="hexgen")))
    assert await cell.dead.all() == []
    with monkeypatch.context() as patch:
        patch.setattr("coordinator.loops.intake.digest_of", bug)
        entry = await cell.records.submit(DOCUMENT)
        await intake(Desk(cell, load(policy="hexgen")))
    (letter,) = await cell.dead.all()
    assert (letter.workflow, letter.reason) == (entry, "internal error: ZeroDivisionError: a bug")
    assert [await cell.client.xlen(cell.keys.events(name)) for name in (wrong, entry)] == [1, 1]


async def test_of_the_owners_the_last_ten_are_kept(cell: Cell) -> None:
    first = await dispatched(cell, push("r1", "s"))
    for turn in range(12):
        await cell.queues.claim(Seat("a", first.epoch, f"a/p{turn}"), f"c{turn}", 0, ROOM)
        await cell.queues.reap(0, 12)
        if turn < 11:
            await commit(cell, 1 + turn, 1, pushes=[push("r1", "s")])
    (letter,) = await cell.dead.all()
    assert letter.owners == tuple(f"a/p{turn}" for turn in range(2, 12))
    assert (letter.request, letter.stage, letter.reason) == ("r1", "s", "its worker or engine was lost 12 times")
