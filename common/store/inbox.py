"""What coordinators read and write: the two streams, and the steps of a workflow."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NamedTuple, TypeVar

from redis.exceptions import ResponseError

from common import clock, wire
from common.errors import BadRecord
from common.events import Event, Outcome
from common.model import LINE, Grounds, Head, Json, Node, Push, Rescore
from common.store.client import BLOCK_S, Client, translated
from common.store.deadletters import letter_of
from common.store.keys import GROUP, Keys, lane
from common.store.limits import DEFAULTS, Full
from common.store.schema import Schema
from common.store.scripts import Call, Scripts, call_id

OF_CELL = tuple(DEFAULTS[name] for name in ("submissions", "workflows", "queued"))
"""What holds of the whole cell where nothing is set, as the operations take it."""
KEEP_EVENTS = 1000
KEEP_ANSWER_MS = 24 * 3600 * 1000
KEEP_TRACES_MS = 24 * 3600 * 1000
KEEP_SHED_MS = 3600 * 1000
KEEP_SHED = 100_000
"""Answers to submissions that limits refused, at most: each takes some 600 bytes."""
Entry = tuple[str, Mapping[bytes, bytes]]
"""A stream entry: its id and its fields."""
STALE = 1000
"""So many entries at most are looked at in one round of taking over."""
DOUBTED = 1000
"""Of so many workflows at once it is looked whether they still run, where more are counted than do."""
T = TypeVar("T")


class Stale(NamedTuple):
    """An entry that was read and not settled since: by whom last, and how many times it was read."""

    entry: str
    reader: str
    reads: int


@dataclass(frozen=True, slots=True)
class Look:
    """One workflow as `begin_step` saw it. `head` and `nodes` are None when the caller holds this version already.

    With a `fault`, not all of it can be read, for this reason: then what can be read is there. `seen` stands for the
    messages of its mail, for the commit of a step that handles them.
    """

    version: int
    now: int
    head: Head | None
    nodes: dict[str, Node] | None
    mail: list[Event]
    fault: str = ""
    seen: str = ""


@dataclass(frozen=True, slots=True)
class End:
    """How a workflow ended: its status, its result for the user, and how long all of it is kept.

    `trace` is its record for replays (empty: none), of which about the newest `keep_traces` are kept.
    """

    status: str
    result: Json
    ttl_ms: int
    trace: bytes = b""
    keep_traces: int = 0


@dataclass(slots=True)
class Commit:
    """One step of one workflow, ready to take effect. `handled` counts the messages it answers, and `seen` stands for
    them, as in the look: it has no effect where a failover has lost one. `drops` are requests that nobody waits for any
    longer, `recalls` delayed nodes that need no waking any more; `head` is there where it has changed.

    `broken`: the workflow cannot go on and ends, whatever its version and its state, as a dead letter; only `drops`,
    `end` and `owner` count, which is the coordinator that was lost with it, if one was.
    """

    workflow: str
    entry: str
    version: int
    handled: int
    encoding: str
    nodes: Mapping[str, Node] = field(default_factory=dict)
    pushes: Sequence[Push] = ()
    delays: Sequence[tuple[str, int]] = ()
    drops: Sequence[str] = ()
    recalls: Sequence[str] = ()
    rescores: Sequence[Rescore] = ()
    head: Head | None = None
    events: Sequence[tuple[str, Json]] = ()
    end: End | None = None
    broken: bool = False
    owner: str = ""
    seen: str = ""


class Answer(NamedTuple):
    """What came of a commit: 1 done, 0 the workflow is to be looked at again, -1 it is no longer running.

    version is the one it has after a step; steps make it grow, by any number.
    bounced counts pushes to instances that were not ready any more: the caller's view of the cluster is old. Without a
    fault, 0 means that the workflow had moved on and nothing was written; a fault is why this step cannot take effect.
    """

    state: int
    bounced: int
    version: int = 0
    fault: str = ""


class Inbox:
    """The coordinators' side of the store."""

    def __init__(self, client: Client, blocking: Client, keys: Keys) -> None:
        self._client = client
        self._blocking = blocking
        self._keys = keys
        self._scripts = Scripts(client, keys.prefix)

    async def prepare(self) -> None:
        """Make the streams and their group, from the first entry on; harmless when they exist.

        Raises StoreRefused, and makes nothing, where the namespace is another version's.
        """
        await Schema(self._client, self._keys).begin()
        with translated():
            for stream in (self._keys.submissions, self._keys.completions):
                try:
                    await self._client.xgroup_create(stream, GROUP, id="0", mkstream=True)
                except ResponseError as error:
                    if not str(error).startswith("BUSYGROUP"):
                        raise

    @asynccontextmanager
    async def _in_group(self) -> AsyncIterator[None]:
        """For reading from the group. A server that has lost its data gets it anew; what is read then is nothing."""
        with translated():
            try:
                yield
            except ResponseError as error:
                if not str(error).lower().startswith(("nogroup", "no such key")):
                    raise
                await self.prepare()

    async def read(self, stream: str, consumer: str, count: int, wait: bool = True) -> list[Entry]:
        """New entries for this consumer; waits up to BLOCK_S for them, unless told not to."""
        found: list[Entry] = []
        async with self._in_group():
            block_ms = int(BLOCK_S * 1000) if wait else None
            reply = await self._blocking.xreadgroup(GROUP, consumer, {stream: ">"}, count=count, block=block_ms)
            found += [(entry.decode(), fields) for _, entries in reply or [] for entry, fields in entries]
        return found

    async def stale(self, stream: str, idle_ms: int) -> list[Stale]:
        """Entries that were read more than idle_ms ago and never settled: their reader is dead or stuck."""
        found: list[Stale] = []
        async with self._in_group():
            for one in await self._client.xpending_range(stream, GROUP, "-", "+", STALE, idle=idle_ms):
                reader = one["consumer"].decode("utf-8", "replace")
                found.append(Stale(one["message_id"].decode(), reader, one["times_delivered"]))
        return found

    async def take_over(self, stream: str, consumer: str, idle_ms: int, stale: Stale) -> Entry | None:
        """Read a stale entry, which counts as one more time, unless it is this reader's own.

        None where it was settled or another has taken it.
        """
        reads, reply = stale.reads + (stale.reader != consumer), None
        async with self._in_group():
            reply = await self._client.xclaim(stream, GROUP, consumer, idle_ms, [stale.entry], retrycount=reads)
        return (stale.entry, reply[0][1]) if reply and reply[0][1] else None

    async def forgive(self, stream: str, stale: Stale, idle_ms: int) -> None:
        """Whoever took it over lives on: if it is not settled, it is its reader's again, and as old as before.

        That time is not counted, and it may be taken over again at once.
        """
        async with self._in_group():
            await self._client.xclaim(
                stream, GROUP, stale.reader, 0, [stale.entry], idle=idle_ms, retrycount=stale.reads, justid=True
            )

    async def accept(
        self, workflow: str, entry: str, digest: str, head: Head, definition: bytes, keep_ms: int
    ) -> str | Full:
        """Make a workflow: "accepted", "same" (known or settled already) or "other" (the id has another document).

        Where a limit leaves no room for a new one, it is that, and nothing is written.

        Where the workflow's id is not the entry's, the submitter is answered under the entry's id too: only there can
        it see what came of this very submission. A dead letter that this is submitted again for is removed.
        """
        told = {"workflow": workflow, "name": head.name, "tenant": head.tenant, "deadline_at": head.slo.deadline_at}
        reply = await self._scripts.run(
            "accept", workflow, entry, digest, wire.pack_head(head), head.definition, definition, keep_ms,
            head.encoding, wire.dump(told, "json"), wire.dump(told, "msgpack"), KEEP_EVENTS, KEEP_ANSWER_MS,
            head.tenant, *OF_CELL, letter_of(workflow),
        )  # fmt: skip
        answer, *full = reply
        return Full.of(full) if full else str(answer.decode())

    async def crowd(self) -> Full | None:
        """The limit that leaves the cell no room for anybody's workflow, if one does."""
        found = await self._scripts.run("crowd", *OF_CELL)
        return Full.of(found) if found else None

    async def shed(self, refused: Sequence[tuple[str, str, Json]]) -> int:
        """Refuse for want of room, given as (entry, encoding, event), and settle the entries; how many these were.

        Each is told once. These are no dead letters, and their answers are kept for an hour at most.
        """
        parts = [(entry, encoding, wire.dump(event, encoding)) for entry, encoding, event in refused]
        return int(await self._scripts.run("shed", KEEP_SHED_MS, KEEP_SHED, *chain.from_iterable(parts)))

    async def refuse(
        self, entry: str, encoding: str, reason: Json, keep_ms: int, letter: str = "", owner: str = ""
    ) -> None:
        """Tell the submitter why, under the entry's own id, and settle the entry; once.

        With a letter, which says why, it is a dead letter; owner: the coordinator that was lost with it, if one was.
        """
        told = wire.dump(reason, encoding)
        await self._scripts.run("refuse", entry, encoding, told, keep_ms, letter.encode("utf-8", "replace"), owner)

    async def forget_ended(self) -> int:
        """Count those no more as running that a coordinator of an older version has ended; how many were found.

        DOUBTED workflows are looked at, taken by chance: all are found in time.
        """
        return int(await self._scripts.run("forget_ended", DOUBTED))

    async def forget_consumers(self, idle_ms: int) -> None:
        """Remove group members that have been silent that long and hold nothing."""
        async with self._in_group():
            for stream in (self._keys.submissions, self._keys.completions):
                for member in await self._client.xinfo_consumers(stream, GROUP):
                    if member["idle"] > idle_ms and not member["pending"]:
                        await self._client.xgroup_delconsumer(stream, GROUP, member["name"])

    async def cancel(self, workflow: str, reason: str, entry: str = "") -> bool:
        """Ask for a running workflow to end, which settles the submission entry; False when none of that id runs."""
        return await self._ask(workflow, f"cancel - - {reason}", entry)

    async def amend(self, workflow: str, deadline_at: int, entry: str = "") -> bool:
        """Ask for another deadline of a running workflow, in ms of Redis time; as `cancel` else."""
        return await self._ask(workflow, f"amend - - {deadline_at}", entry)

    async def _ask(self, workflow: str, message: str, entry: str) -> bool:
        return bool(await self._scripts.run("ask", workflow, message, entry))

    async def begin(self, wanted: Sequence[tuple[str, int]], messages: int) -> list[Look]:
        """Look at workflows, given as (id, version held or -1), with at most so many of their messages.

        One that cannot be read has a fault. Raises StoreUnavailable or StoreRefused for all.
        """
        calls = [Call("begin_step", (workflow, version, messages)) for workflow, version in wanted]
        return [_look(reply) for reply in await self._scripts.try_many(calls)]

    async def outputs(self, workflow: str, nodes: Sequence[str]) -> dict[str, Outcome]:
        """The outcomes of these nodes, those that are kept."""
        with translated():
            found = await self._client.hmget(self._keys.outputs(workflow), list(nodes))
        return {node: wire.unpack_outcome(data) for node, data in zip(nodes, found, strict=True) if data}

    async def grounds(self, requests: Sequence[str]) -> dict[str, Grounds]:
        """Those of these requests; left out where they cannot be read, the record is gone or is an older version's."""
        with translated():
            pipeline = self._client.pipeline(transaction=False)
            for request in requests:
                pipeline.hget(self._keys.request(request), "grounds")
            found = await pipeline.execute(raise_on_error=False) if requests else []
        read = {request: _grounds(data) for request, data in zip(requests, found, strict=True)}
        return {request: grounds for request, grounds in read.items() if grounds is not None}

    async def commit(self, commits: Sequence[Commit]) -> list[Answer]:
        """Let steps take effect, each by itself. Raises StoreUnavailable or StoreRefused for all."""
        packed = [_packed(commit) for commit in commits]
        replies = iter(await self._scripts.try_many([call for call in packed if isinstance(call, Call)]))
        return [_answer(next(replies) if isinstance(call, Call) else call) for call in packed]


class _Reading:
    """Reads a workflow part by part. `fault` tells of the first that cannot be read."""

    def __init__(self) -> None:
        self.fault = ""

    def part(self, what: str, read: Callable[..., T], *data: Any) -> T | None:
        try:
            return read(*data)
        except Exception as error:  # whatever bytes can lead to
            self.fault = self.fault or f"{what} cannot be read: {type(error).__name__}: {error}"
            return None


def _look(reply: Any) -> Look:
    if isinstance(reply, BadRecord):
        return Look(0, clock.wall_ms(), None, None, [], str(reply))
    version, now, flat, mail, seen = reply
    reading = _Reading()
    head, nodes = None, None
    if flat:
        fields = dict(zip(flat[::2], flat[1::2], strict=True))
        head = reading.part("its head", wire.unpack_head, fields.get(b"head"))
        names = {name[2:].decode("utf-8", "replace"): name for name in fields if name.startswith(b"n:")}
        found = {node: reading.part(node, wire.unpack_node, fields[name]) for node, name in names.items()}
        nodes = {node: state for node, state in found.items() if state is not None}
    events = [reading.part("its mail", wire.read_message, mail[i], mail[i + 1]) for i in range(0, len(mail), 2)]
    read = [event for event in events if event is not None]
    return Look(version, now, head, nodes, read, reading.fault, seen.decode())


def _grounds(data: Any) -> Grounds | None:
    try:
        return wire.unpack_grounds(data)
    except Exception:  # a reply that is an error, nothing, or whatever bytes can lead to
        return None


def _packed(commit: Commit) -> Call | BadRecord:
    try:
        return _abandon_call(commit) if commit.broken else _commit_call(commit)
    except Exception as error:  # whatever values can lead to
        return BadRecord(f"its step cannot be packed: {type(error).__name__}: {error}")


def _answer(reply: Any) -> Answer:
    return Answer(0, 0, fault=str(reply)) if isinstance(reply, BadRecord) else Answer(*reply)


def _abandon_call(commit: Commit) -> Call:
    assert commit.end is not None
    result = wire.dump(commit.end.result, commit.encoding)
    where, reason = (commit.workflow, commit.entry), str(commit.end.result.get("error", ""))
    told = (commit.encoding, result, commit.end.ttl_ms, reason.encode("utf-8", "replace"), commit.owner)
    return Call("abandon", (*where, *told, *commit.drops))


def _commit_call(commit: Commit) -> Call:
    fields: list[str | bytes] = []
    for node, state in commit.nodes.items():
        fields += ("n:" + node, wire.pack_node(state))
    if commit.head is not None:
        fields += ("head", wire.pack_head(commit.head))
    events: list[str | bytes] = []
    for kind, data in commit.events:
        events += (kind, commit.encoding, wire.dump(data, commit.encoding))
    step: dict[str, Json] = {
        "fields": fields,
        "pushes": [_push(push, commit) for push in commit.pushes],
        "delays": commit.delays,
        "drops": commit.drops,
        "recalls": commit.recalls,
        "rescores": [_rescore(one) for one in commit.rescores],
        "events": events,
        "keep_events": KEEP_EVENTS,
    }
    if commit.end is not None:
        result = wire.dump(commit.end.result, commit.encoding)
        step |= {"result": result, "status": commit.end.status, "ttl_ms": commit.end.ttl_ms}
        if commit.end.trace:
            kept = {"keep_traces": commit.end.keep_traces, "keep_traces_ms": KEEP_TRACES_MS}
            step |= {"trace": commit.end.trace, **kept}
    where = (commit.workflow, commit.entry, commit.version, commit.handled)
    return Call("commit_step", (*where, wire.pack_for_lua(step), call_id(), commit.seen))


def _rescore(one: Rescore) -> Json:
    fields = ["budget_ms", one.budget_ms, "deadline_at", one.deadline_at, "slo_ms", one.slo_ms]
    return (one.request, one.offset_ms, fields)


def _push(push: Push, commit: Commit) -> Json:
    fields = [
        "payload", wire.pack_payload(push, commit.workflow, commit.encoding), "prompt_tokens", push.prompt_tokens,
        "budget_ms", push.budget_ms, "deadline_at", push.deadline_at, "prefix", push.prefix,
        "expected_tokens", push.expected_tokens, "slo_ms", push.slo_ms, "wants", wire.pack_wants(push),
    ]  # fmt: skip
    where = (push.request, push.node, push.instance, push.offset_ms, push.load_ms)
    line = lane(push) if push.instance == LINE else ""
    return (*where, fields, push.tenant, push.price, line, wire.pack_grounds(push.grounds))
