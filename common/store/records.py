"""What people and clients read: workflows, results, events, definitions; and what coordinators have learned."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

from common import wire
from common.errors import BadRecord, InvalidDocument
from common.events import DEADLINE
from common.model import LINE, Head, Json, Node
from common.store.client import Client, now_ms, translated
from common.store.keys import Keys
from common.store.scripts import Scripts, call_id

ENDINGS = ("completed", "failed", "cancelled", "rejected", "shed")
"""How a workflow, or its submission, can end; counted always. Those that limits refused are `shed`."""
PAGE = 100


@dataclass(frozen=True, slots=True)
class Whereabouts:
    """Where a dispatched request is. Times in ms of Redis time; `claimed_at` is None while it waits.

    `place` counts from 1 among the `queued` of its instance, or of its lane of the line; None when it is not
    in the queue.
    """

    instance: str
    claimant: str
    enqueued_at: int
    claimed_at: int | None
    place: int | None
    queued: int


class Page(NamedTuple):
    """What is learned in one call, under its id: (count, sum, ...) by name."""

    call: str
    sums: Mapping[str, tuple[float, ...]]


def pages(added: Mapping[str, tuple[float, ...]]) -> list[Page]:
    """What was observed, in as many calls as it takes."""
    names = list(added)
    parts = (names[at : at + PAGE] for at in range(0, len(names), PAGE))
    return [Page(call_id(), {name: added[name] for name in part}) for part in parts]


class Records:
    """Reading workflows, registering definitions, keeping what was learned."""

    def __init__(self, client: Client, blocking: Client, keys: Keys) -> None:
        self._client = client
        self._blocking = blocking
        self._keys = keys
        self._scripts = Scripts(client, keys.prefix)

    async def submit(self, document: Json) -> str:
        """Append a submission; its entry id, which is the workflow's id if the document has none.

        After StoreUnavailable it may have been appended, or not.
        """
        with translated():  # by the connection that is never tried again: a reply that is lost must not make it two
            entry = await self._blocking.xadd(self._keys.submissions, {"json": wire.dump(document, "json")})
        return str(entry.decode())

    async def workflow(self, workflow: str) -> tuple[str, Head, dict[str, Node]] | None:
        """Status, head and nodes of a workflow that is kept, else None. Raises BadRecord where it cannot be read."""
        with translated():
            fields = await self._client.hgetall(self._keys.workflow(workflow))
        if b"head" not in fields:
            return None
        with _readable(workflow):
            named = {name[2:].decode(): data for name, data in fields.items() if name.startswith(b"n:")}
            nodes = {name: wire.unpack_node(data) for name, data in named.items()}
            return fields[b"status"].decode(), wire.unpack_head(fields[b"head"]), nodes

    async def head(self, workflow: str) -> Head | None:
        """The head of a workflow that is kept, else None; the rest is not read. Raises BadRecord as `workflow` does."""
        with translated():
            data = await self._client.hget(self._keys.workflow(workflow), "head")
        with _readable(workflow):
            return None if data is None else wire.unpack_head(data)

    async def result(self, workflow: str) -> Json | None:
        """The result document, or None while there is none."""
        with translated():
            data = await self._client.get(self._keys.result(workflow))
        if data is None:
            return None
        return wire.load(data, "json" if data[:1] == b"{" else "msgpack")

    async def status(self, workflow: str) -> str | None:
        """The status of a workflow that is kept, else None."""
        with translated():
            found = await self._client.hget(self._keys.workflow(workflow), "status")
        return None if found is None else found.decode()

    async def is_unread(self, workflow: str) -> bool:
        """Whether a submission of that id still waits for its answer. Looks through all that wait."""
        after = "-"
        while True:
            with translated():
                entries = await self._client.xrange(self._keys.submissions, after, count=PAGE)
            if any(entry.decode() == workflow or _own_id(fields) == workflow for entry, fields in entries):
                return True
            if len(entries) < PAGE:
                return False
            after = f"({entries[-1][0].decode()}"

    async def first(self, workflow: str) -> tuple[str, Json] | None:
        """The first event kept of that id, as (type, data): what a submission was answered is the first there is."""
        with translated():
            found = await self._client.xrange(self._keys.events(workflow), count=1)
        return (found[0][1][b"type"].decode(), _event_data(found[0][1])) if found else None

    async def last_event(self, workflow: str) -> str:
        """The id of the newest event, to follow the stream from there on; "0" while there is none."""
        with translated():
            found = await self._client.xrevrange(self._keys.events(workflow), count=1)
        return found[0][0].decode() if found else "0"

    async def look(self, after: Mapping[str, str], block_s: float) -> list[tuple[str, str, str, Json]]:
        """New events of several workflows, as (workflow, id, type, data); `after` has the last id seen of each."""
        if not after:
            return []
        streams = {self._keys.events(workflow): entry for workflow, entry in after.items()}
        names = {self._keys.events(workflow).encode(): workflow for workflow in after}
        with translated():
            reply = await self._blocking.xread(streams, block=int(block_s * 1000), count=100)
        return [
            (names[stream], entry.decode(), fields[b"type"].decode(), _event_data(fields))
            for stream, entries in reply or []
            for entry, fields in entries
        ]

    async def live(self, most: int) -> list[str]:
        """Ids of running workflows, oldest first."""
        with translated():
            return [name.decode() for name in await self._client.zrange(self._keys.live, 0, most - 1)]

    async def counts(self) -> dict[str, int]:
        """How many workflows run, have ended in each way, wait to be read, how many dead letters are kept, and where
        requests are.

        `rejected` are submissions, also cancellations; `shed` are those that limits refused. Deadlines at which
        workflows are to be ended are not counted as delayed.
        """
        keys = self._keys
        with translated():
            lanes = [lane.decode() for lane in await self._client.smembers(keys.lanes)]
            pipeline = self._client.pipeline(transaction=False)
            pipeline.zcard(keys.live)
            pipeline.xlen(keys.submissions)
            pipeline.xlen(keys.dead)
            pipeline.zrange(keys.delayed, 0, -1)
            pipeline.zcard(keys.leases)
            pipeline.hgetall(keys.ended)
            for lane in (LINE, *lanes):
                pipeline.zcard(keys.queue(lane))
            live, submissions, dead, delayed, leases, ended, *line = await pipeline.execute()
        counts = {"running": live, "submitted": submissions, "dead": dead}
        counts["delayed"] = sum(not member.endswith(f" {DEADLINE}".encode()) for member in delayed)
        counts |= {"in_line": sum(line), "claimed": leases}
        return counts | dict.fromkeys(ENDINGS, 0) | {status.decode(): int(count) for status, count in ended.items()}

    async def now_ms(self) -> int:
        """Redis time, which is what all times here are."""
        return await now_ms(self._client)

    async def whereabouts(self, requests: Sequence[str]) -> dict[str, Whereabouts]:
        """Where these requests are, those that are with an instance."""
        names = ("instance", "claimant", "enqueued_at", "claimed_at", "lane")
        with translated():
            pipeline = self._client.pipeline(transaction=False)
            for request in requests:
                pipeline.hmget(self._keys.request(request), *names)
            records = await pipeline.execute() if requests else []
            known = [(request, fields) for request, fields in zip(requests, records, strict=True) if fields[0]]
            for request, (instance, *_, lane) in known:
                at = lane if lane and instance.decode() == LINE else instance
                queue = self._keys.queue(at.decode())
                pipeline.zscore(self._keys.leases, request)
                pipeline.zrank(queue, request)
                pipeline.zcard(queue)
            found = iter(await pipeline.execute() if known else [])
        return {request: _whereabouts(fields, next(found), next(found), next(found)) for request, fields in known}

    async def register(self, name: str, digest: str, document: Json, keep_ms: int) -> None:
        """Make a definition the current version of a name. The one before is kept for keep_ms, unless it has a name."""
        await self._scripts.run("define", name, digest, wire.pack(document), keep_ms)

    async def digest_of(self, name: str) -> str | None:
        """The digest that a workflow name stands for now."""
        with translated():
            digest = await self._client.hget(self._keys.workflows, name)
        return None if digest is None else digest.decode()

    async def registered(self) -> dict[str, str]:
        """Registered names and the digests they stand for."""
        with translated():
            found = await self._client.hgetall(self._keys.workflows)
        return {name.decode(): digest.decode() for name, digest in sorted(found.items())}

    async def definition(self, digest: str) -> Json | None:
        """The document of that digest."""
        with translated():
            data = await self._client.get(self._keys.definition(digest))
        return None if data is None else wire.unpack(data)

    async def learned(self) -> dict[str, tuple[float, ...]]:
        """Fading sums by name, as all coordinators have added to them. What cannot be read is left out."""
        with translated():
            found = await self._client.hgetall(self._keys.learned)
        sums = ((name.decode("utf-8", "replace"), wire.unpack_sums(data)) for name, data in found.items())
        return {name: values for name, values in sums if values}

    async def learn(self, page: Page, window: int, most: int) -> None:
        """Add (count, sum, ...) to the fading sums, each observation taking 1/window off what was there before. Of more
        than `most` names those are forgotten that were not observed for the longest time.

        After an error it may have been added, or not; the same page sent again within ten minutes adds nothing more.
        """
        await self._scripts.run("learn", window, wire.pack_for_lua(page.sums), page.call, most)

    async def server(self) -> dict[str, Any]:
        """Version and settings of the server that matter to us."""
        with translated():
            info = await self._client.info()
        return {name: info.get(name) for name in ("redis_version", "maxmemory_policy", "aof_enabled", "run_id")}


@contextmanager
def _readable(workflow: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # whatever bytes can lead to
        raise BadRecord(f"workflow {workflow} cannot be read: {type(error).__name__}: {error}") from error


def _own_id(fields: Mapping[bytes, bytes]) -> Json:
    """The id a submission asks for, if it can be read and does."""
    try:
        document = _event_data(fields)
    except InvalidDocument:
        return None
    return document.get("id") if isinstance(document, dict) else None


def _whereabouts(fields: Sequence[bytes | None], lease: float | None, rank: int | None, queued: int) -> Whereabouts:
    instance, claimant = ((name or b"").decode() for name in fields[:2])
    enqueued_at, claimed_at = (int(time or 0) for time in fields[2:4])
    place = None if rank is None else rank + 1
    return Whereabouts(instance, claimant, enqueued_at, None if lease is None else claimed_at, place, queued)


def _event_data(fields: Mapping[bytes, bytes]) -> Json:
    for encoding in ("json", "msgpack"):
        if encoding.encode() in fields:
            return wire.load(fields[encoding.encode()], encoding)
    return None
