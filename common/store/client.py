"""Connections to Redis, and what its errors mean to us. Knows URLs and time-outs; nothing of workflows."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import redis as sync_redis
import redis.asyncio as redis
import redis.sentinel as sync_sentinel
from redis.asyncio.connection import SSLConnection
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
from redis.retry import Retry as SyncRetry

from common.errors import BadRecord, StoreRefused, StoreUnavailable
from common.store import urls

Client = Any
"""A redis.asyncio.Redis. Its declared replies mix str and bytes, so the checker is no help; ours are always bytes."""

BLOCK_S = 5.0
"""The longest a blocking read waits before it looks up again."""
ANSWER_S = 5.0
"""The longest a server may take to answer, or to take a connection."""
SENTINEL_ANSWER_S = 2.0
"""As ANSWER_S, of a Sentinel; there are others to ask."""
_LIMITS = {"socket_timeout": ANSWER_S, "socket_connect_timeout": ANSWER_S}

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
_PLACE = re.compile(r"(?:ERR )?(?:Error running script \(call to \w+\): @user_script:\d+: )?(?:@user_script: \d+: )?-?")
"""What can stand before an error's code: 6.2 tells first in which script it was, and wraps what the command said."""
_IN_SCRIPT = re.compile(
    r"(?:ERR )?Error running script \(|@?user_script: ?\d+: |.* script: (?:\w+, )?on @user_script:\d+\.$", re.S
)
"""As servers name the line of a script: 6.2 at the beginning, later ones at the end. What is left when an operation
fails is the fault of what it found."""
_NOT_TRUSTED = "CERTIFICATE_VERIFY_FAILED"
_WHERE = re.compile(r" script: (?:\w+, )?on @user_script:\d+\.$")
"""Where in an operation it was: of use to us, not to whoever reads of a right that is missing."""
_CLOSED = re.compile(r"clos(?:ed|ing)\b|after write_eof|after shutdown|Executor shutdown")
"""What asyncio and uvloop say, as a mere RuntimeError, of a transport or a loop that has been closed under a call."""


class NoTls(RedisError):
    """A server without TLS waits in silence for more of a handshake. Trying again would only take longer."""


class _Tls(SSLConnection):
    async def connect_check_health(self, *args: Any, **options: Any) -> None:
        try:
            await super().connect_check_health(*args, **options)
        except TimeoutError:
            _no_tls(self.host, self.port)


class _SyncTls(sync_redis.SSLConnection):
    def connect_check_health(self, *args: Any, **options: Any) -> None:
        try:
            super().connect_check_health(*args, **options)
        except TimeoutError:
            _no_tls(self.host, self.port)


def _no_tls(host: str, port: int) -> NoReturn:
    raise NoTls(f"no answer in TLS from {host}:{port} (rediss:// is for a server with TLS; one without is redis://)")


def connect(url: str) -> Client:
    """A client for ordinary commands: bounded time and retries. Raises StoreRefused for a bad URL."""
    return _client(url, **_LIMITS, retry=Retry(_backoff(), 2))


def connect_blocking(url: str) -> Client:
    """A client for reads that wait up to BLOCK_S; the library's time-out and retries would hang them for minutes."""
    return _client(url, **_LIMITS | {"socket_timeout": BLOCK_S + ANSWER_S}, retry=Retry(NoBackoff(), 0))


async def disconnect(client: Client) -> None:
    """Close its connections, those to Sentinels too."""
    asked = getattr(client.connection_pool, "sentinel_manager", None)
    for sentinel in asked.sentinels if asked else ():
        await sentinel.aclose()
    await client.aclose()


def connect_sync(url: str) -> sync_redis.Redis:
    """A plain client for RQ, which has no asynchronous face. RQ's worker waits for jobs on it, and for that gives it a
    `socket_timeout` of 10 s more than it waits, where there is a shorter one. Raises StoreRefused for a bad URL."""
    options: dict[str, Any] = {**_LIMITS, "retry": SyncRetry(_backoff(), 2)}
    with _url_checked(url):
        if urls.is_sentinel(url):
            hosts, service, extra = urls.sentinel_parts(url)
            _check_files(extra)
            sentinel = sync_sentinel.Sentinel(hosts, sentinel_kwargs=_asking(options | extra), **options)  # type: ignore[no-untyped-call]
            return sentinel.master_for(service, **options, **extra)  # type: ignore[no-any-return, no-untyped-call]
        client = sync_redis.Redis.from_url(url, **options)
        _set_up(client.connection_pool, _SyncTls)
        return client


def _client(url: str, **options: Any) -> Client:
    with _url_checked(url):
        if urls.is_sentinel(url):
            hosts, service, extra = urls.sentinel_parts(url)
            _check_files(extra)
            sentinel = Sentinel(hosts, sentinel_kwargs=_asking(options | extra), **options)  # type: ignore[no-untyped-call]
            return sentinel.master_for(service, **options, **extra)
        client = redis.Redis.from_url(url, **options)
        _set_up(client.connection_pool, _Tls)
        return client


def _asking(options: dict[str, Any]) -> dict[str, Any]:
    """How Sentinels are asked: as the server, but the next one soon, and they have no databases."""
    asking = {name: value for name, value in options.items() if name != "db"}
    return asking | {"socket_timeout": SENTINEL_ANSWER_S, "socket_connect_timeout": SENTINEL_ANSWER_S}


async def now_ms(client: Client) -> int:
    """Redis time, which is what all times in the store are."""
    with translated():
        seconds, micros = await client.time()
    return int(seconds * 1000 + micros // 1000)


def _set_up(pool: Any, tls: type[_Tls | _SyncTls]) -> None:
    """Raises ValueError where the URL has an option that no connection has, or names a file that is not there."""
    if issubclass(pool.connection_class, tls.__base__ or object):
        pool.connection_class = tls
    try:
        pool.connection_class(**pool.connection_kwargs)
    except (TypeError, RedisError) as error:
        raise ValueError(f"what follows the ? does not do: {error}") from None
    _check_files(pool.connection_kwargs)


def _check_files(options: dict[str, Any]) -> None:
    """Raises ValueError: the library would only say that there is no such file, not which, and at each connection."""
    for name in ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile"):
        if options.get(name) and not os.path.isfile(options[name]):
            raise ValueError(f"{name}: there is no file {options[name]}")


@contextmanager
def _url_checked(url: str) -> Iterator[None]:
    try:
        urls.check(url)
        yield
    except ValueError as error:
        raise StoreRefused(f"redis URL: {error}") from None


def _backoff() -> ExponentialWithJitterBackoff:
    return ExponentialWithJitterBackoff(cap=0.5, base=0.02)


@contextmanager
def translated() -> Iterator[None]:
    """Redis errors as ours: StoreUnavailable (wait and try again), StoreRefused (a person must act) or BadRecord."""
    try:
        yield
    except RedisError as error:
        raise translate(error) from error
    except (OSError, RuntimeError) as error:
        if isinstance(error, OSError) or (type(error) is RuntimeError and _CLOSED.search(str(error))):
            raise StoreUnavailable(f"Redis cannot be reached: {error}") from error
        raise


def translate(error: RedisError) -> StoreUnavailable | StoreRefused | BadRecord:
    """Our word for an error of the library."""
    text = str(error)
    said = text[_PLACE.match(text).end() :]  # type: ignore[union-attr]
    code = said.partition(" ")[0]
    if isinstance(error, NoPermissionError) or said.startswith(_RIGHTS):
        return StoreRefused(f"Redis refuses: {_WHERE.sub('', said)} (docs/security.md has the rights of each role)")
    if isinstance(error, AuthenticationError | AuthorizationError):
        return StoreRefused(f"Redis refuses: {text}")
    if _NOT_TRUSTED in text:
        return StoreRefused(f"the certificate of Redis is not trusted (?ssl_ca_certs=FILE names the CA): {text}")
    if isinstance(error, _PASSING) or code in _TRANSIENT:
        return StoreUnavailable(f"Redis cannot be reached or does not serve now: {text}")
    if isinstance(error, ResponseError) and (code == "WRONGTYPE" or _IN_SCRIPT.match(text)):
        return BadRecord(f"Redis cannot work with what it holds: {text}")
    if isinstance(error, ResponseError):
        return StoreRefused(f"Redis refuses: {text}")
    return StoreUnavailable(f"Redis: {text}")
