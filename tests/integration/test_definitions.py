"""Versions of registered definitions: how long they are kept, and who can still run them."""

import pytest
from operations_bench import PROFILE

from common.events import Outcome
from common.model import Json, LlmCall
from common.settings import load
from common.store.cell import Cell
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
