"""A client for applications: submit workflows, follow and await them. Needs redis and msgpack, none of our rooms.

Everything here can be done from any language with the three Redis commands that docs/protocol.md shows. All that is
raised is a ClientError. Waiting outlives a Redis that is away for a while: reading goes on after the last event seen.
"""

import json
import logging
import math
import re
import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import msgpack
import redis
from redis import exceptions as faults
from redis.backoff import NoBackoff
from redis.connection import parse_url
from redis.retry import Retry
from redis.sentinel import Sentinel, SentinelManagedConnection, SentinelManagedSSLConnection

ENDS = ("completed", "failed", "cancelled", "rejected")
BLOCK_S = 2.0
ANSWER_S = 5.0
"""How long Redis may take for an answer, after which it counts as away."""
LONGEST_PAUSE_S = 2.0
MAX_DEPTH = 32
log = logging.getLogger("hexgen.client")


FORM_OF_REPLIES = frozenset({"protocol", "decode_responses", "legacy_responses", "encoding"})
"""Options of a Redis URL that would change what is read here."""


class ClientError(Exception):
    """Base of all that a client raises."""


class InvalidValue(ClientError, ValueError):
    """Something given cannot be used or sent; the message begins with its place, such as `inputs.question`."""


class Unreachable(ClientError):
    """Redis cannot be reached or does not serve now. What was to be submitted may have been, or not."""


class Refused(ClientError):
    """Redis answers but will not do it (a wrong password, missing rights), or its certificate is not trusted."""


class NotInTime(ClientError, TimeoutError):
    """The time given was over before the workflow ended; it goes on."""


class WorkflowFailed(ClientError):
    """The workflow failed, was cancelled or was rejected; `event` tells why."""

    def __init__(self, event: "Event") -> None:
        where = event.data.get("stage") or event.data.get("field")
        super().__init__(f"{event.type}: {f'{where}: ' if where else ''}{event.data.get('error', '')}")
        self.event = event


class Rejected(WorkflowFailed):
    """The submission was refused: nothing of it runs. Another workflow may have the id it asked for.

    retry_after_s: where there was no room for it, after so many seconds there may be; else None.
    """

    def __init__(self, event: "Event") -> None:
        super().__init__(event)
        self.retry_after_s: float | None = event.data.get("retry_after_s")


class Event(NamedTuple):
    """One event of a workflow: its id in the stream, its type, what it tells."""

    id: str
    type: str
    data: dict[str, Any]


class WorkflowId(str):
    """What `submit` returns: the workflow's id, and `entry`, the id under which this very submission is answered."""

    __slots__ = ("entry",)
    entry: str

    def __new__(cls, workflow: str, entry: str) -> "WorkflowId":
        made = super().__new__(cls, workflow)
        made.entry = entry
        return made


class Client:
    """Talks to one cell. Usable from several threads.

    All that takes a workflow takes an id as text, or what `submit` returned. With the latter it is about that very
    submission: if it was rejected, `wait`, `result`, `cancel` and `amend` raise Rejected, even if another workflow has
    the id.
    """

    def __init__(self, url: str = "redis://127.0.0.1:6379/0", namespace: str = "default") -> None:
        """No connection is made yet. Raises InvalidValue.

        url: redis://, rediss://, unix:// or redis+sentinel://[user:password@]HOST:PORT,HOST:PORT/SERVICE[/DB], which
        asks these Sentinels for the server, with the same user and password.
        """
        if not re.fullmatch(r"[A-Za-z0-9_-]*[A-Za-z0-9][A-Za-z0-9_-]*", namespace):
            raise InvalidValue(f"namespace: {namespace!r} must be letters, digits, - and _")
        options: dict[str, Any] = {"socket_timeout": BLOCK_S + ANSWER_S, "socket_connect_timeout": ANSWER_S}
        try:  # without the library's own retries, which might submit twice
            self._redis = _connection(url, options | {"retry": Retry(NoBackoff(), 0)})
        except ValueError as error:
            raise InvalidValue(f"url: {error}") from None
        if fixed := FORM_OF_REPLIES & self._redis.connection_pool.connection_kwargs.keys():
            raise InvalidValue(f"url: {min(fixed)} is not to be chosen; take it out")
        self._prefix = f"{{hexgen:{namespace}}}:"

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        asked = getattr(self._redis.connection_pool, "sentinel_manager", None)
        for sentinel in asked.sentinels if asked else ():
            sentinel.close()
        self._redis.close()

    def submit(
        self,
        workflow: str | Mapping[str, Any],
        inputs: Mapping[str, Any] | None = None,
        *,
        slo_s: float | None = None,
        on_deadline: str | None = None,
        id: str | None = None,
        tenant: str | None = None,
        stream: bool = False,
    ) -> WorkflowId:
        """Submit a workflow, by its registered name or as a definition; the id to follow it by.

        Does not wait for it to be accepted: a refusal is told by `wait`, `events` and `result`. Giving an `id` makes it
        safe to submit again after Unreachable: the same id and document is the same workflow. With `on_deadline`
        "cancel" the workflow is ended at its deadline, with "continue" (the default) it goes on.
        Raises InvalidValue, Unreachable or Refused.
        """
        document: dict[str, Any] = {"workflow": workflow, "inputs": {} if inputs is None else inputs}
        slo = float(slo_s) if isinstance(slo_s, int) else slo_s
        given = {"slo_s": slo, "on_deadline": on_deadline, "id": id, "tenant": tenant, "stream": stream or None}
        entry = self._send(document | {name: value for name, value in given.items() if value is not None})
        return WorkflowId(id or entry, entry)

    def cancel(self, workflow: str, reason: str = "cancelled by request") -> str:
        """Ask for a workflow to end; the id under which a refusal would be told. Raises Rejected, as `submit` else."""
        self._is_unread(workflow)
        return self._send({"cancel": str(workflow), "reason": reason})

    def amend(self, workflow: str, *, slo_s: float) -> str:
        """Ask for another SLO of a running workflow, in seconds from its arrival; returns and raises as `cancel`."""
        self._is_unread(workflow)
        return self._send({"amend": str(workflow), "slo_s": slo_s})

    def events(self, workflow: str, *, after: str = "0", timeout_s: float | None = None) -> Iterator[Event]:
        """Events from the first kept on (or after an event id) until the workflow ends.

        For what `submit` returned, a refusal is among them, even if it gave an id that another workflow has.
        Raises NotInTime after timeout_s, or Refused; a Redis that is away is waited for, which is logged once.
        """
        wait = _Wait(f"workflow {workflow} has not ended", timeout_s)
        if isinstance(workflow, WorkflowId) and workflow.entry != workflow:
            answer = self._answer(workflow, wait)
            if answer is not None and answer.type == "rejected":
                yield answer
                return
        yield from self._follow(workflow, after, wait)

    def wait(self, workflow: str, *, timeout_s: float | None = None) -> dict[str, Any]:
        """The result of a completed workflow. Raises WorkflowFailed for any other end (Rejected), or as `events`."""
        for event in self.events(workflow, timeout_s=timeout_s):
            if event.type == "completed":
                return event.data
            if event.type in ENDS:
                raise (Rejected if event.type == "rejected" else WorkflowFailed)(event)
        raise AssertionError("events end with an end")

    def result(self, workflow: str) -> dict[str, Any] | None:
        """The result document if the workflow has ended and is kept, else None.

        Raises Rejected, Unreachable or Refused.
        """
        if self._is_unread(workflow):
            return None
        with _explained():
            data = self._redis.get(f"{self._prefix}workflow:{workflow}:result")
        if data is None:
            return None
        found: dict[str, Any] = json.loads(data) if data[:1] == b"{" else msgpack.unpackb(data)
        return found

    def _send(self, document: dict[str, Any]) -> str:
        data = msgpack.packb(_plain(document, ""))
        with _explained():
            try:
                entry: bytes = self._redis.xadd(self._prefix + "submissions", {"msgpack": data})
            except faults.ReadOnlyError:  # a replica by now: behind its name there may be another server
                self._redis.connection_pool.disconnect(inuse_connections=False)
                raise
        return entry.decode()

    def _events_key(self, workflow: str) -> str:
        return f"{self._prefix}workflow:{workflow}:events"

    def _follow(self, workflow: str, after: str, wait: "_Wait") -> Iterator[Event]:
        stream = self._events_key(workflow)
        while True:
            for event in self._read({stream: after}, wait).get(stream, ()):
                after = event.id
                yield event
                if event.type in ENDS:
                    return

    def _answer(self, workflow: WorkflowId, wait: "_Wait") -> Event | None:
        """What a submission was answered; None if that is no longer kept."""
        while True:
            try:
                answer, unread = self._look(workflow)
                break
            except Unreachable as error:
                wait.pause(error)
        return next(self._follow(workflow.entry, "0", wait)) if unread else answer

    def _is_unread(self, workflow: str) -> bool:
        """Whether what `submit` returned is still to be answered. Raises Rejected."""
        answer, unread = self._look(workflow)
        if answer is not None and answer.type == "rejected":
            raise Rejected(answer)
        return unread

    def _look(self, workflow: str) -> tuple[Event | None, bool]:
        """The answer that is kept, and whether there is none yet; both as of one instant: one command reads both."""
        entry = workflow.entry if isinstance(workflow, WorkflowId) else workflow
        events, submissions = self._events_key(entry), self._prefix + "submissions"
        streams = {events: "0"} | ({submissions: _before(entry)} if entry != workflow else {})
        with _explained():
            found = {key.decode(): entries for key, entries in self._redis.xread(streams, count=1) or ()}
        unread = any(name.decode() == entry for name, _ in found.get(submissions, ()))
        return next((_event(*first) for first in found.get(events, ())), None), unread

    def _read(self, streams: dict[str, str], wait: "_Wait") -> dict[str, list[Event]]:
        """What is new in these streams; waits a while for something, also for a Redis that is away."""
        try:
            block_ms = max(1, int(1000 * wait.left_s(BLOCK_S)))
            with _explained():
                reply = self._redis.xread(streams, block=block_ms, count=100)
        except Unreachable as error:
            wait.pause(error)
            return {}
        wait.failures = 0
        return {key.decode(): [_event(*entry) for entry in entries] for key, entries in reply or ()}


def _connection(url: str, options: dict[str, Any]) -> Any:
    """A connection pool's client. Raises ValueError."""
    scheme, asks_sentinels, _ = url.partition("+sentinel://")
    if not asks_sentinels:
        return redis.Redis.from_url(url, **options)
    parts = urlsplit(url)
    credentials, at, hosts = parts.netloc.rpartition("@")
    service, _, db = parts.path.strip("/").partition("/")
    each = [parse_url(f"{scheme}://{credentials}{at}{host}/{db}?{parts.query}") for host in hosts.split(",")]  # type: ignore[no-untyped-call]
    places = [(one.pop("host", ""), one.pop("port", 0)) for one in each]
    if not service or not all(host and port for host, port in places):
        raise ValueError("a Sentinel URL is redis+sentinel://HOST:26379,HOST:26379/SERVICE/0")
    ssl = each[0].pop("connection_class", None) is not None
    found = each[0] | {"ssl": ssl}
    asking = {name: value for name, value in found.items() if name != "db"}  # of which Sentinels have none
    sentinel: Any = Sentinel(places, sentinel_kwargs=options | asking)  # type: ignore[no-untyped-call]
    return sentinel.master_for(service, connection_class=_ManagedTls if ssl else _Managed, **(options | found))


class _Managed(SentinelManagedConnection):
    """Closed where a read is interrupted. The library's would take the reply that comes late for that to the next."""

    def read_response(self, *args: Any, **options: Any) -> Any:
        return super().read_response(*args, **({"disconnect_on_error": True} | options))


class _ManagedTls(_Managed, SentinelManagedSSLConnection):
    pass


class _Wait:
    """How long somebody still waits, and how often in a row Redis was away meanwhile."""

    def __init__(self, what: str, timeout_s: float | None) -> None:
        self._what = what
        self._until = math.inf if timeout_s is None else time.monotonic() + timeout_s
        self._trouble: Unreachable | None = None
        self.failures = 0

    def left_s(self, most: float) -> float:
        """Seconds that are left, at most so many. Raises NotInTime."""
        left_s = min(most, self._until - time.monotonic())
        if left_s > 0:
            return left_s
        why = f"; {self._trouble}" if self.failures else ""
        raise NotInTime(f"{self._what} in time{why}") from None

    def pause(self, error: Unreachable) -> None:
        """Before another try: longer each time, half of it by chance. Raises NotInTime."""
        self.failures += 1
        self._trouble = error
        if self.failures == 1:
            log.warning("%s; trying again", error)
        longest_s = min(LONGEST_PAUSE_S, 0.05 * 2.0 ** min(self.failures, 10))
        time.sleep(self.left_s(longest_s * (0.5 + secrets.randbelow(1000) / 2000)))


_AWAY = (
    faults.ConnectionError, faults.TimeoutError, faults.OutOfMemoryError, faults.ReadOnlyError, faults.ClusterDownError,
    faults.TryAgainError, faults.InvalidResponse, OSError,
)  # fmt: skip
_AWAY_WORDS = ("LOADING", "UNBLOCKED", "MASTERDOWN", "NOREPLICAS", "MISCONF", "BUSY")


@contextmanager
def _explained() -> Iterator[None]:
    """Errors of the library as ours."""
    try:
        yield
    except (faults.AuthenticationError, faults.AuthorizationError) as error:
        raise Refused(f"Redis refuses: {error}") from error
    except _AWAY as error:
        if "CERTIFICATE_VERIFY_FAILED" in str(error):
            raise Refused(
                f"the certificate of Redis is not trusted (?ssl_ca_certs=FILE names the CA): {error}"
            ) from error
        raise Unreachable(f"Redis cannot be reached or does not serve now: {error}") from error
    except faults.RedisError as error:
        if str(error).startswith(_AWAY_WORDS):
            raise Unreachable(f"Redis does not serve now: {error}") from error
        raise Refused(f"Redis refuses: {error}") from error


def _before(entry: str) -> str:
    """The last id a stream could have before this one."""
    ms, _, number = entry.partition("-")
    return f"{ms}-{int(number) - 1}" if int(number) else f"{int(ms) - 1}-{(1 << 64) - 1}"


def _event(name: bytes, fields: Mapping[bytes, bytes]) -> Event:
    packed = fields.get(b"msgpack")
    data = json.loads(fields.get(b"json", b"{}")) if packed is None else msgpack.unpackb(packed)
    return Event(name.decode(), fields[b"type"].decode(), data)


def _plain(value: Any, place: str, depth: int = MAX_DEPTH) -> Any:
    """A value as it can be sent. Raises InvalidValue naming the place of what cannot."""
    if isinstance(value, Mapping | list | tuple) and depth == 0:
        raise InvalidValue(f"{place}: is nested deeper than {MAX_DEPTH} levels")
    if isinstance(value, list | tuple):
        return [_plain(inner, f"{place}.{index}", depth - 1) for index, inner in enumerate(value)]
    if not isinstance(value, Mapping):
        fault = _leaf_fault(value)
        if fault:
            raise InvalidValue(f"{place}: {fault}")
        return value
    found = {}
    for key, inner in value.items():
        if not isinstance(key, str) or _leaf_fault(key):
            raise InvalidValue(f"{place}: has the key {key!r}; keys must be text")
        found[key] = _plain(inner, f"{place}.{key}" if place else key, depth - 1)
    return found


def _leaf_fault(value: Any) -> str:
    """Why this value cannot be sent, else nothing."""
    if isinstance(value, float):
        return "" if math.isfinite(value) else f"is {value}, not a number"
    if isinstance(value, int):
        return "" if -(1 << 63) <= value < 1 << 64 else "is an integer beyond 64 bits"
    if isinstance(value, str):
        halves = any("\ud800" <= letter <= "\udfff" for letter in value)
        return "holds half a surrogate pair, which is no text" if halves else ""
    return "" if value is None else f"is of type {type(value).__name__}, which cannot be sent"
