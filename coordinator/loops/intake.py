"""Intake: submissions become workflows, or are refused with the reason. Decides nothing about scheduling."""

import hashlib
import json
import logging
import secrets
from collections.abc import Mapping, Sequence

from common import wire
from common.errors import InvalidDocument, StoreRefused, StoreUnavailable
from common.model import Head, Json, Slo
from common.store.inbox import Entry
from common.store.limits import Full
from common.submission import LONGEST_SLO_S, Submission, read_submission
from coordinator.admission import refusal
from coordinator.desk import Desk
from coordinator.language.compiler import compile_definition
from coordinator.language.definition import Definition
from coordinator.language.document import PLACE
from coordinator.language.errors import DefinitionError, clipped, nearest, shown
from coordinator.language.inputs import validate_inputs
from coordinator.remaining import best_s

BATCH = 64
CROWD = 16
"""Where so many wait at once, it is first looked whether there is room for any of them."""
MORE = 256
"""So many more are read at once of what is too much for the stream: each turn takes time from accepting."""
LONGEST_FIELD = 300
LONGEST_MESSAGE = 1000
log = logging.getLogger("hexgen.intake")


async def intake(desk: Desk) -> None:
    """Take what is submitted, the oldest first; waits a few seconds for it."""
    waiting = await desk.cell.inbox.read(desk.cell.keys.submissions, desk.name, BATCH)
    while waiting:
        full = await desk.cell.inbox.crowd() if len(waiting) >= CROWD else None
        if full is None:
            now, waiting = waiting[:CROWD], waiting[CROWD:]
        else:
            waiting += await _more(desk, full, len(waiting))
            most = full.over if full.limit == "submissions" else len(waiting)
            now, waiting = await _thin(desk, waiting[:most], full), waiting[most:]
        await _take_all(desk, now)


async def _take_all(desk: Desk, entries: Sequence[Entry]) -> None:
    """Take these, the oldest first. Once a tenant is refused for a limit of its own, those like it are together."""
    left = list(entries)
    while left:
        refused = await take(desk, left.pop(0))
        if refused is not None and refused[0].is_tenants:
            left = await _thin(desk, left, *refused)


async def _more(desk: Desk, full: Full, read: int) -> list[Entry]:
    """What else is too much for the stream, besides those that were read."""
    count = min(full.over - read, MORE)
    if full.limit != "submissions" or count <= 0:
        return []
    return await desk.cell.inbox.read(desk.cell.keys.submissions, desk.name, count, wait=False)


async def _thin(desk: Desk, entries: Sequence[Entry], full: Full, tenant: str = "") -> list[Entry]:
    """Refuse at once what asks for a new workflow, for which the cell has no room, or this tenant of it; gives what is
    to be taken as ever.

    The oldest go, since they are read first, have used up most of their time, and are the likeliest to be given up.
    """
    new: list[Entry] = []
    others: list[Entry] = []
    for entry in entries:
        (new if _is_new(entry[1], full.limit in ("submissions", "memory"), tenant) else others).append(entry)
    if new:
        await _shed(desk, new, full, tenant)
    return others


def _is_new(fields: Mapping[bytes, bytes], ids_too: bool, tenant: str) -> bool:
    """Whether a submission asks for a workflow that cannot run yet; ids_too: or might, having an id of its own; with a
    tenant: for one of that tenant.

    It is read only where its words leave that open: one of 1 MiB takes its time. JSON can hide a word by escapes.
    """
    data = fields.get(b"json") or fields.get(b"msgpack") or b""
    others = (b"cancel", b"amend", b"\\u", *(() if ids_too else (b"id",)))
    if not tenant and b"workflow" in data and not any(word in data for word in others):
        return True
    try:
        submission, _, _ = read_submission(fields)
    except InvalidDocument:
        return False
    theirs = tenant in ("", submission.tenant)
    return theirs and submission.workflow is not None and (ids_too or submission.id is None)


async def _shed(desk: Desk, entries: Sequence[Entry], full: Full, tenant: str = "") -> None:
    """Refuse these for want of room."""
    told = [
        (name, _encoding(fields), refusal(name, full, tenant, secrets.randbelow(1000) / 1000))
        for name, fields in entries
    ]
    await desk.cell.inbox.shed(told)
    for name, _, event in told:
        kind = "submissions refused for want of room"
        desk.reports.tell(logging.INFO, kind, "submission %s refused: %s", name, event["error"])


async def take(desk: Desk, entry: Entry) -> tuple[Full, str] | None:
    """One submission: accepted, refused, or a cancellation or an amendment. Every way settles the entry.

    Gives the limit that it was refused for, if one left no room, and its tenant.
    """
    name, fields = entry
    try:
        return await _take(desk, name, fields)
    except InvalidDocument as error:
        field, message = clipped(error.field, LONGEST_FIELD), clipped(error.message, LONGEST_MESSAGE)
        desk.reports.tell(
            logging.INFO,
            "submissions refused",
            "submission %s refused: %s: %s",
            name,
            field,
            clipped(message, LONGEST_FIELD),
        )
        await _refuse(desk, entry, field, message)
    except (StoreUnavailable, StoreRefused):
        raise
    except Exception as error:
        desk.reports.tell(
            logging.ERROR, "submissions that could not be taken", "submission %s could not be taken", name, trace=True
        )
        await give_up(desk, entry, f"{type(error).__name__}: {error}")
    return None


async def give_up(desk: Desk, entry: Entry, fault: str, owner: str = "") -> None:
    """Refuse a submission that cannot be taken, through no fault of its submitter's: it is a dead letter.

    owner: the coordinator that was lost with it, if one was.
    """
    reason = clipped(f"internal error: {fault}", LONGEST_MESSAGE)
    await _refuse(desk, entry, "", reason, reason, owner)


async def _refuse(desk: Desk, entry: Entry, field: str, message: str, letter: str = "", owner: str = "") -> None:
    name, fields = entry
    reason, keep_ms = {"workflow": name, "field": field, "error": message}, int(desk.settings.keep_failed_s * 1000)
    await desk.cell.inbox.refuse(name, _encoding(fields), reason, keep_ms, letter, owner)


def _encoding(fields: Mapping[bytes, bytes]) -> str:
    """How its submitter is answered."""
    return "msgpack" if b"msgpack" in fields and b"json" not in fields else "json"


async def _take(desk: Desk, entry: str, fields: Mapping[bytes, bytes]) -> tuple[Full, str] | None:
    submission, encoding, document = read_submission(fields)
    if submission.cancel is not None:
        if not await desk.cell.inbox.cancel(submission.cancel, submission.reason, entry):
            raise InvalidDocument("cancel", f"no workflow {submission.cancel!r} is running")
        return None
    if submission.amend is not None:
        await _amend(desk, submission.amend, submission, entry)
        return None
    definition = await _definition(desk, submission.workflow)
    head = Head(
        tenant=submission.tenant,
        name=definition.name,
        definition=definition.digest,
        inputs=validate_inputs(definition, submission.inputs),
        slo=_slo(submission, int(entry.partition("-")[0]), desk.settings.default_slo_s),
        encoding=encoding,
        stream=submission.stream,
        on_deadline=submission.on_deadline,
    )
    workflow = submission.id or entry
    if desk.settings.hopeless == "refuse":
        await _refuse_hopeless(desk, workflow, definition, head.slo.deadline_at)
    packed, keep_ms = wire.pack(definition.document), desk.settings.keep_definition_ms
    answer = await desk.cell.inbox.accept(workflow, entry, digest_of(document), head, packed, keep_ms)
    if isinstance(answer, Full):
        await _shed(desk, [(entry, fields)], answer, head.tenant)
        return answer, head.tenant
    log.debug("workflow %s %s: %s of %s", workflow, answer, head.name, head.tenant)
    if answer == "other":
        raise InvalidDocument("id", f"{workflow!r} is taken by another document; choose a new id")
    return None


async def _refuse_hopeless(desk: Desk, workflow: str, definition: Definition, deadline_at: int) -> None:
    """Raises InvalidDocument for what would be late even with the cluster to itself, unless it is known already."""
    best = best_s(definition, await desk.cluster())
    left = (deadline_at - await desk.cell.records.now_ms()) / 1000
    if best > left and await desk.cell.records.status(workflow) is None:
        took = f"expected to take {best:.1f} s on this cluster even alone"
        raise InvalidDocument("slo_s", f"{took}, and {left:.1f} s are left until its deadline: give it more time")


async def _amend(desk: Desk, name: str, submission: Submission, entry: str) -> None:
    head = await desk.cell.records.head(name)
    slo = None if head is None else _slo(submission, head.slo.arrival_at, desk.settings.default_slo_s)
    if slo is None or not await desk.cell.inbox.amend(name, slo.deadline_at, entry):
        raise InvalidDocument("amend", f"no workflow {name!r} is running")


async def _definition(desk: Desk, wanted: str | dict[str, Json] | None) -> Definition:
    if isinstance(wanted, dict):
        return desk.remember(_compiled(wanted))
    digest = await desk.cell.records.digest_of(wanted or "")
    if digest is None and await desk.own.restore():
        digest = await desk.cell.records.digest_of(wanted or "")
    if digest is None:
        known = nearest(wanted, await desk.cell.records.registered())
        raise InvalidDocument("workflow", f"no workflow is registered as {shown(wanted)}; {known}")
    try:
        return await desk.definition(digest)
    except LookupError as error:
        raise InvalidDocument("workflow", str(error)) from None


def _compiled(document: dict[str, Json]) -> Definition:
    try:
        return compile_definition(document)
    except DefinitionError as error:
        field = "workflow" if error.field == PLACE else f"workflow.{error.field}"
        raise InvalidDocument(field, error.message) from None


def _slo(submission: Submission, arrival_at: int, default_s: float) -> Slo:
    if submission.deadline_at is None:
        return Slo(arrival_at, arrival_at + round(1000 * (submission.slo_s or default_s)))
    longest = arrival_at + round(1000 * LONGEST_SLO_S)
    if not arrival_at < submission.deadline_at <= longest:
        raise InvalidDocument(
            "deadline_at",
            f"{submission.deadline_at} must be later than {arrival_at}, in ms since the epoch, by at most a week",
        )
    return Slo(arrival_at, submission.deadline_at)


def digest_of(document: Json) -> str:
    """What makes two documents the same: the SHA-256 of their canonical JSON."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()
