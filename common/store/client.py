"""Connections to Redis, and what its errors mean to us. Knows URLs and time-outs; nothing of workflows."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import redis as sync_redis
import redis.asyncio as redis
import redis.sentinel as sync_sentinel
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel
from redis.backoff import ExponentialWithJitterBackoff, NoBackoff
from redis.exceptions import (
    AuthenticationError,
    AuthorizationError,
    ClusterDownError,
    ConnectionError,
    MasterDownError,
    NoPermissionError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
    TimeoutError,
    TryAgainError,
)

from common.errors import BadRecord, StoreRefused, StoreUnavailable

Client = Any
"""A redis.asyncio.Redis. Its declared replies mix str and bytes, so the checker is no help; ours are always bytes."""

BLOCK_S = 5.0
"""The longest a blocking read waits before it looks up again."""

_PASSING = (
    ConnectionError, TimeoutError, OutOfMemoryError, ReadOnlyError, ClusterDownError, MasterDownError, TryAgainError,
    NoScriptError,
)  # fmt: skip
"""The library takes the server's code off the message of those it has a class for."""
_TRANSIENT = (
    "LOADING", "READONLY", "OOM", "CLUSTERDOWN", "MASTERDOWN", "TRYAGAIN", "NOREPLICAS", "UNBLOCKED", "BUSY", "MISCONF",
)  # fmt: skip
_RIGHTS = ("ACL failure", "The user executing the script")
"""Missing rights as an operation tells them, in Redis 7 and in 6.2."""
_RECORD = ("WRONGTYPE", "user_script")
"""What is left when an operation fails is the fault of what it found. Servers name the line of the script it was in."""


def connect(url: str) -> Client:
    """A client for ordinary commands: bounded time and retries. URL: redis://, rediss://, unix:// or redis+sentinel://."""
    retry = Retry(ExponentialWithJitterBackoff(cap=0.5, base=0.02), 2)
    return _client(url, socket_timeout=5.0, socket_connect_timeout=5.0, retry=retry)


def connect_blocking(url: str) -> Client:
    """A client for reads that wait up to BLOCK_S; the library's time-out and retries would hang them for minutes."""
    return _client(url, socket_timeout=BLOCK_S + 5.0, socket_connect_timeout=5.0, retry=Retry(NoBackoff(), 0))


def connect_sync(url: str) -> sync_redis.Redis:
    """A plain client for RQ, which has no asynchronous face."""
    if url.startswith(("redis+sentinel://", "rediss+sentinel://")):
        sentinel_args, service, options = _sentinel_parts(url)
        hosts = sync_sentinel.Sentinel(sentinel_args, **options)  # type: ignore[no-untyped-call]
        return hosts.master_for(service, **options)  # type: ignore[no-any-return, no-untyped-call]
    return sync_redis.Redis.from_url(url)


def _client(url: str, **options: Any) -> Client:
    try:
        if not url.startswith(("redis+sentinel://", "rediss+sentinel://")):
            return redis.Redis.from_url(url, **options)
        hosts, service, extra = _sentinel_parts(url)
        sentinel = Sentinel(hosts, sentinel_kwargs={"socket_timeout": 2.0, **extra}, **options)  # type: ignore[no-untyped-call]
        return sentinel.master_for(service, **options, **extra)
    except ValueError as error:
        raise StoreRefused(f"redis URL: {error}") from None


def _sentinel_parts(url: str) -> tuple[list[tuple[str, int]], str, dict[str, Any]]:
    """redis+sentinel://[user:password@]host:port,host:port/service[/db] as (hosts, service, options)."""
    parts = urlsplit(url)
    credentials, _, hosts = parts.netloc.rpartition("@")
    service, _, db = parts.path.strip("/").partition("/")
    if not service:
        raise StoreRefused("redis URL: a Sentinel URL names the service: redis+sentinel://host:26379/service/0")
    options: dict[str, Any] = {"db": int(db or 0)}
    if credentials:
        user, _, password = credentials.rpartition(":")
        options["password"] = unquote(password)
        if user:
            options["username"] = unquote(user)
    if parts.scheme.startswith("rediss"):
        options["ssl"] = True
    options.update({name: values[0] for name, values in parse_qs(parts.query).items() if name.startswith("ssl_")})
    pairs = [host.rpartition(":") for host in hosts.split(",")]
    return [(host, int(port)) for host, _, port in pairs], service, options


@contextmanager
def translated() -> Iterator[None]:
    """Redis errors as ours: StoreUnavailable (wait and try again), StoreRefused (a person must act) or BadRecord."""
    try:
        yield
    except RedisError as error:
        raise translate(error) from error
    except (OSError, RuntimeError) as error:
        raise StoreUnavailable(f"Redis cannot be reached: {error}") from error


def translate(error: RedisError) -> StoreUnavailable | StoreRefused | BadRecord:
    """Our word for an error of the library."""
    text = str(error)
    if isinstance(error, AuthenticationError | AuthorizationError | NoPermissionError) or _has(text, _RIGHTS):
        return StoreRefused(f"Redis refuses: {text}")
    if isinstance(error, _PASSING) or _has(text, _TRANSIENT):
        return StoreUnavailable(f"Redis cannot be reached or does not serve now: {text}")
    if isinstance(error, ResponseError) and _has(text, _RECORD):
        return BadRecord(f"Redis cannot work with what it holds: {text}")
    if isinstance(error, ResponseError):
        return StoreRefused(f"Redis refuses: {text}")
    return StoreUnavailable(f"Redis: {text}")


def _has(text: str, words: tuple[str, ...]) -> bool:
    return any(word in text for word in words)
