"""Dead letters: requests, workflows and submissions that were given up for good. Read, removed, submitted again."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from common import wire
from common.errors import HexgenError, InvalidDocument
from common.model import Json
from common.store.client import Client, translated
from common.store.keys import Keys
from common.store.scripts import Scripts
from common.submission import read_submission

_REQUEUED = re.compile(r"requeued-([0-9]{1,19}-[0-9]{1,19})")
"""The id of a workflow that is submitted again for a dead letter: told twice, it is the same workflow."""


def requeued(letter: str) -> str:
    """The id under which what a dead letter is about is submitted again."""
    return f"requeued-{letter}"


def letter_of(workflow: str) -> str:
    """The dead letter that a workflow of this id is submitted again for, or ""."""
    match = _REQUEUED.fullmatch(workflow)
    return match[1] if match else ""


@dataclass(frozen=True, slots=True)
class Letter:
    """What was given up at `at` (ms of Redis time), why, and who lost it, the last of them last (ten at most).

    Without a request it is all of a workflow; then `stage` is empty too. Where a submission was refused, `workflow` is
    its entry's id, and nobody has read its name and its tenant.
    """

    id: str
    at: int
    workflow: str
    name: str
    tenant: str
    stage: str
    request: str
    reason: str
    owners: tuple[str, ...]


class DeadLetters:
    """The dead letters of a cell."""

    def __init__(self, client: Client, blocking: Client, keys: Keys) -> None:
        self._client = client
        self._keys = keys
        # By the connection that is never tried again: a reply that is lost must not be told as a letter that is gone.
        self._scripts = Scripts(blocking, keys.prefix)

    async def all(self, first: str = "-", last: str = "+") -> list[Letter]:
        """Those with these ids and between them, oldest first."""
        with translated():
            found = await self._client.xrange(self._keys.dead, first, last)
        return [_letter(entry.decode(), fields) for entry, fields in found]

    async def drop(self, letter: str) -> bool:
        """Remove a letter; False where there is none of that id (any more)."""
        with translated():
            return bool(await self._client.xdel(self._keys.dead, letter))

    async def workflow(self, letter: Letter) -> tuple[str, dict[str, Json]] | None:
        """Its status, and its document as it could be submitted again; None where it is not kept (any more) or cannot
        be read.
        """
        with translated():
            head, status = await self._client.hmget(self._keys.workflow(letter.workflow), "head", "status")
        try:
            known = wire.unpack_head(head)
        except Exception:  # whatever bytes, or none, can lead to
            return None
        if known.slo.arrival_at > letter.at:
            return None  # the id has been used again since
        with translated():
            definition = await self._client.get(self._keys.definition(known.definition))
        if definition is None:
            return None
        slo_s = (known.slo.deadline_at - known.slo.arrival_at) / 1000
        document = {"workflow": wire.unpack(definition), "inputs": known.inputs, "slo_s": slo_s}
        document |= {"tenant": known.tenant, "stream": known.stream, "on_deadline": known.on_deadline}
        return (status or b"").decode(), document

    async def requeue(self, letter: str, document: dict[str, Json]) -> str | None:
        """Submit this document as the workflow `requeued(letter)`; the entry's id. None where the letter is gone.

        The letter is removed by its acceptance. After StoreUnavailable it may have been submitted, or not; to do it
        again does no harm. Raises HexgenError for a document that would be refused in any case.
        """
        packed = wire.dump(document | {"id": requeued(letter)}, "json")
        try:
            read_submission({b"json": packed})
        except InvalidDocument as error:
            told = f"dead letter {letter} stays: with its definition, what was submitted would be refused: {error}"
            raise HexgenError(told) from None
        entry = await self._scripts.run("requeue", letter, packed)
        return entry.decode() or None


def _letter(entry: str, fields: Mapping[bytes, bytes]) -> Letter:
    def told(name: bytes) -> str:
        return fields.get(name, b"").decode("utf-8", "replace")

    return Letter(
        id=entry,
        at=int(entry.partition("-")[0]),
        workflow=told(b"workflow"),
        name=told(b"name"),
        tenant=told(b"tenant"),
        stage=told(b"stage"),
        request=told(b"request"),
        reason=told(b"reason"),
        owners=tuple(told(b"owners").split()),
    )
