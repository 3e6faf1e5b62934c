"""A client for applications: submit workflows, follow and await them. Needs redis and msgpack, none of our rooms.

Everything here can be done from any language with the three Redis commands that docs/protocol.md shows.
"""

import json
import time
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import msgpack
import redis

ENDS = ("completed", "failed", "cancelled", "rejected")


class WorkflowFailed(Exception):
    """The workflow was rejected, failed or was cancelled; `event` tells why."""

    def __init__(self, event: "Event") -> None:
        where = event.data.get("stage") or event.data.get("field")
        super().__init__(f"{event.type}: {f'{where}: ' if where else ''}{event.data.get('error', '')}")
        self.event = event


class Event(NamedTuple):
    """One event of a workflow: its id in the stream, its type, what it tells."""

    id: str
    type: str
    data: dict[str, Any]


class WorkflowId(str):
    """A workflow's id. What came of its submission is told under `entry`, the id of the stream entry that asked."""

    __slots__ = ("entry",)
    entry: str

    def __new__(cls, workflow: str, entry: str) -> "WorkflowId":
        made = super().__new__(cls, workflow)
        made.entry = entry
        return made


class Client:
    """Talks to one cell. Usable from several threads."""

    def __init__(self, url: str = "redis://127.0.0.1:6379/0", namespace: str = "default") -> None:
        self._redis: Any = redis.Redis.from_url(url, socket_timeout=30)
        self._prefix = f"{{hexgen:{namespace}}}:"

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._redis.close()

    def submit(
        self,
        workflow: str | Mapping[str, Any],
        inputs: Mapping[str, Any] | None = None,
        *,
        slo_s: float | None = None,
        id: str | None = None,
        tenant: str | None = None,
        stream: bool = False,
    ) -> WorkflowId:
        """Submit a workflow, by its registered name or as a definition; the id to follow it by.

        Giving an `id` makes it safe to submit again after a lost reply: the same id and document is the same workflow.
        """
        document: dict[str, Any] = {"workflow": workflow, "inputs": dict(inputs or {})}
        given = {"slo_s": None if slo_s is None else float(slo_s), "id": id, "tenant": tenant, "stream": stream or None}
        document |= {name: value for name, value in given.items() if value is not None}
        entry = self._send(document)
        return WorkflowId(id or entry, entry)

    def _send(self, document: dict[str, Any]) -> str:
        entry = self._redis.xadd(self._prefix + "submissions", {"msgpack": msgpack.packb(document)})
        return str(entry.decode())

    def cancel(self, workflow: str, reason: str = "cancelled by request") -> str:
        """Ask for a workflow to end; the id under which a refusal would be told."""
        return self._send({"cancel": str(workflow), "reason": reason})

    def events(self, workflow: str, *, after: str = "0", timeout_s: float | None = None) -> Iterator[Event]:
        """Events from the first kept on (or after an event id) until the workflow ends. Raises TimeoutError.

        For what `submit` returned, a refusal is among them, even if it gave an id that another workflow has.
        """
        until = None if timeout_s is None else time.monotonic() + timeout_s
        if isinstance(workflow, WorkflowId) and workflow.entry != workflow:
            answer = next(self._follow(workflow.entry, "0", until))
            if answer.type == "rejected":
                yield answer
                return
        yield from self._follow(workflow, after, until)

    def _follow(self, workflow: str, after: str, until: float | None) -> Iterator[Event]:
        stream = f"{self._prefix}workflow:{workflow}:events"
        while True:
            left_s = 5.0 if until is None else min(5.0, until - time.monotonic())
            if left_s <= 0:
                raise TimeoutError(f"workflow {workflow} has not ended in time")
            reply = self._redis.xread({stream: after}, block=max(1, int(left_s * 1000)), count=100)
            for _, entries in reply or []:
                for entry, fields in entries:
                    after = entry.decode()
                    event = Event(after, fields[b"type"].decode(), _data(fields))
                    yield event
                    if event.type in ENDS:
                        return

    def wait(self, workflow: str, *, timeout_s: float | None = None) -> dict[str, Any]:
        """The result of a completed workflow. Raises WorkflowFailed for any other end, and TimeoutError."""
        for event in self.events(workflow, timeout_s=timeout_s):
            if event.type == "completed":
                return event.data
            if event.type in ENDS:
                raise WorkflowFailed(event)
        raise AssertionError("events end with an end")

    def result(self, workflow: str) -> dict[str, Any] | None:
        """The result document if the workflow has ended and is kept, else None."""
        data = self._redis.get(f"{self._prefix}workflow:{workflow}:result")
        if data is None:
            return None
        found: dict[str, Any] = json.loads(data) if data[:1] == b"{" else msgpack.unpackb(data)
        return found


def _data(fields: Mapping[bytes, bytes]) -> dict[str, Any]:
    if b"msgpack" in fields:
        found: dict[str, Any] = msgpack.unpackb(fields[b"msgpack"])
        return found
    return dict(json.loads(fields.get(b"json", b"{}")))
