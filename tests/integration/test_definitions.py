"""Versions of registered definitions: how long they are kept, and who can still run them."""

import pytest
from operations_bench import PROFILE, submitted, version_of

from common import wire
from common.events import Outcome
from common.model import Head, Json, LlmCall, Slo
from common.settings import load
from common.store.cell import Cell
from common.store.inbox import Commit, End
from common.store.queues import Room, Seat
from coordinator.desk import Desk
from coordinator.language.compiler import compile_definition
from coordinator.loops.completions import completions
from coordinator.loops.intake import intake

KEEP_MS = 60_000
FOR_EVER = -1


async def register(cell: Cell, name: str, digest: str) -> None:
    await cell.records.register(name, digest, {"digest": digest}, KEEP_MS)


async def left_ms(cell: Cell, digest: str) -> int:
    return int(await cell.client.pttl(cell.keys.definition(digest)))


async def test_a_version_is_kept_for_a_while_when_its_name_moves_on(cell: Cell) -> None:
    await register(cell, "chain", "v1")
    await register(cell, "chain", "v1")
    assert await left_ms(cell, "v1") == FOR_EVER
    for _ in range(2):
        await register(cell, "chain", "v2")
        assert await cell.records.registered() == {"chain": "v2"}
        assert 0 < await left_ms(cell, "v1") <= KEEP_MS
        assert await left_ms(cell, "v2") == FOR_EVER
    assert await cell.records.definition("v1") == {"digest": "v1"}


async def test_a_version_that_another_name_stands_for_is_kept(cell: Cell) -> None:
    await register(cell, "chain", "v1")
    await register(cell, "other", "v1")
    await register(cell, "chain", "v2")
    assert await left_ms(cell, "v1") == FOR_EVER
    await register(cell, "other", "v2")
    assert 0 < await left_ms(cell, "v1") <= KEEP_MS


async def test_a_version_that_is_registered_again_is_kept_again(cell: Cell) -> None:
    for digest in ("v1", "v2", "v1"):
        await register(cell, "chain", digest)
    assert await left_ms(cell, "v1") == FOR_EVER
    assert 0 < await left_ms(cell, "v2") <= KEEP_MS


async def run(cell: Cell, workflow: str, digest: str = "own") -> None:
    """A workflow is accepted that comes with its definition."""
    head = Head("acme", "chain", digest, {}, Slo(1_000, 61_000))
    packed = wire.pack({"digest": digest})
    assert await cell.inbox.accept(workflow, await submitted(cell), "d1", head, packed, KEEP_MS) == "accepted"


async def end(cell: Cell, workflow: str, keep_ms: int = 1_000, broken: bool = False) -> None:
    """It ends, and is kept for so long."""
    version = 0 if broken else await version_of(cell, workflow)
    made = Commit(workflow, "", version, 0, "json", end=End("failed", {}, keep_ms), broken=broken)
    assert (await cell.inbox.commit([made]))[0].state == 1


@pytest.mark.parametrize("broken", [False, True])
async def test_a_definition_that_came_with_workflows_is_kept_as_long_as_they_are(cell: Cell, broken: bool) -> None:
    await run(cell, "w1")
    await run(cell, "w2")
    await end(cell, "w1", 10_000, broken)
    assert 10_000 < await left_ms(cell, "own") <= KEEP_MS
    await end(cell, "w2", 1_000, broken)
    assert 1_000 < await left_ms(cell, "own") <= 10_000
    await run(cell, "w3")
    assert 10_000 < await left_ms(cell, "own") <= KEEP_MS
    await end(cell, "w3", 20_000, broken)
    assert 10_000 < await left_ms(cell, "own") <= 20_000
    assert 10_000 < await left_ms(cell, "own:uses") <= 20_000


async def test_one_that_is_registered_too_is_kept_as_its_name_says(cell: Cell) -> None:
    await run(cell, "w1")
    await register(cell, "chain", "own")
    await end(cell, "w1")
    assert await left_ms(cell, "own") == FOR_EVER
    await run(cell, "w2")
    await register(cell, "chain", "v2")
    await end(cell, "w2")
    assert 10_000 < await left_ms(cell, "own") <= KEEP_MS
    await run(cell, "w3", "v2")
    await register(cell, "chain", "v3")
    await end(cell, "w3")
    assert 10_000 < await left_ms(cell, "v2") <= KEEP_MS


@pytest.mark.parametrize("then", ["nothing", "another"])
async def test_one_that_an_older_version_runs_stays_for_its_time(cell: Cell, then: str) -> None:
    """That counts nothing, and keeps the definition alone as long as ever."""
    await run(cell, "w1")
    await cell.client.pexpire(cell.keys.definition("own"), KEEP_MS + 10)
    if then == "another":
        await run(cell, "w2")
        await end(cell, "w2")
    await end(cell, "w1")
    assert 10_000 < await left_ms(cell, "own") <= KEEP_MS + 10


@pytest.mark.strange_keys("the count is none")
async def test_a_count_that_is_none_ends_no_workflow(cell: Cell) -> None:
    uses = cell.keys.definition("own") + ":uses"
    for number, damage in enumerate(({"running": "many"}, {"until": "never"})):
        await run(cell, f"w{number}")
        await cell.client.hset(uses, mapping=damage)
        await run(cell, f"again{number}")
        await end(cell, f"w{number}")
        await end(cell, f"again{number}")
    await run(cell, "w")
    await cell.client.set(uses, "x", px=KEEP_MS)
    await end(cell, "w")
    await run(cell, "again")
    assert await left_ms(cell, "own") > 10_000


@pytest.mark.parametrize("accepted", ["before", "meanwhile"])
async def test_a_workflow_ends_with_the_version_it_began_with(
    cell: Cell, monkeypatch: pytest.MonkeyPatch, accepted: str
) -> None:
    settings = load(policy="hexgen")
    old, new = (compile_definition(version(text)) for text in ("old", "new"))
    keep_ms, desk = settings.keep_definition_ms, Desk(cell, settings)
    seat = Seat("a", await cell.instances.register("a", PROFILE, ["default"], [], []), "a/1")
    await cell.records.register("chain", old.digest, old.document, keep_ms)
    digest_of = cell.records.digest_of

    async def move_on(name: str) -> str | None:
        """The name is looked up, and then another definition registered."""
        found = await digest_of(name)
        await cell.records.register("chain", new.digest, new.document, 1_000)
        return found

    await cell.records.submit({"workflow": "chain", "id": "w"})
    with monkeypatch.context() as patch:
        if accepted == "meanwhile":
            patch.setattr(cell.records, "digest_of", move_on)
        await intake(desk)
    await cell.records.register("chain", new.digest, new.document, keep_ms)
    assert keep_ms - 60_000 < await left_ms(cell, old.digest) <= keep_ms
    await completions(Desk(cell, settings))
    (claim,) = await cell.queues.claim(seat, "c1", 60_000, Room(1, 1000, 1000))
    assert isinstance(claim.call, LlmCall)
    assert claim.call.prompt == "say old"
    await cell.queues.finish([(claim.request, claim.token, Outcome("done", "a"))])
    await completions(Desk(cell, settings))
    result = await cell.records.result("w")
    assert result is not None
    assert result["output"] == "done"


def version(text: str) -> dict[str, Json]:
    return {"name": "chain", "stages": {"a": {"prompt": f"say {text}"}}, "output": "a.output"}


async def test_what_a_coordinator_registers_comes_back_with_the_next_round_or_submission(
    cell: Cell, caplog: pytest.LogCaptureFixture
) -> None:
    old, new = (compile_definition(version(text)) for text in ("old", "new"))
    desk = Desk(cell, load(policy="hexgen"), [old])
    await desk.own.register()
    await cell.records.register("chain", new.digest, new.document, KEEP_MS)
    assert not await desk.own.restore()  # another version stands for the name: nothing is lost
    assert await cell.records.digest_of("chain") == new.digest
    for again in (desk.own.restore, lambda: intake(desk)):
        await cell.client.delete(*await cell.client.keys(f"{cell.keys.prefix}*"))
        caplog.clear()
        workflow = await cell.records.submit({"workflow": "chain"})
        await cell.inbox.prepare()
        await again()
        assert await cell.records.digest_of("chain") == old.digest
        assert caplog.text.count("not registered any more, so the data of this namespace is gone: chain;") == 1
    assert await cell.records.workflow(workflow) is not None
