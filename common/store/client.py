"""Connections to Redis, and what its errors mean to us. Knows URLs and time-outs; nothing of workflows."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import redis as sync_redis
import redis.asyncio as redis
import redis.connection as sync_connection
import redis.sentinel as sync_sentinel
from redis.asyncio.connection import AbstractConnection, Connection, SSLConnection
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel, SentinelManagedConnection, SentinelManagedSSLConnection
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
_IN_PIPELINE = re.compile(r"\ACommand # \d+ .*? of pipeline caused error: (?:\(['\"])?", re.S)
"""What the library puts before an error in a pipeline or a transaction, the asynchronous one in its own way."""
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


class _Leaving(AbstractConnection):
    """Leaves a server that has become a replica: behind its name there may be another one by now."""

    async def read_response(self, *args: Any, **options: Any) -> Any:
        try:
            return await super().read_response(*args, **options)
        except ResponseError as error:
            if _is_demoted(error):
                await self.disconnect(nowait=True)
                raise ConnectionError(str(error)) from error
            raise


class _Tcp(_Leaving, Connection):
    pass


class _Tls(_Leaving, SSLConnection):
    async def connect_check_health(self, *args: Any, **options: Any) -> None:
        try:
            await super().connect_check_health(*args, **options)
        except TimeoutError:
            _no_tls(self.host, self.port)


class _SyncLeaving(sync_connection.AbstractConnection):
    def read_response(self, *args: Any, **options: Any) -> Any:
        try:
            return super().read_response(*args, **options)
        except ResponseError as error:
            if _is_demoted(error):
                self.disconnect()  # type: ignore[no-untyped-call]
                raise ConnectionError(str(error)) from error
            raise


class _SyncTcp(_SyncLeaving, sync_redis.Connection):
    pass


class _SyncTls(_SyncLeaving, sync_redis.SSLConnection):
    def connect_check_health(self, *args: Any, **options: Any) -> None:
        try:
            super().connect_check_health(*args, **options)
        except TimeoutError:
            _no_tls(self.host, self.port)


class _Asking(AbstractConnection):
    """Asks the Sentinels before it connects again, also where a command is sent again. The library's would not then."""

    async def send_packed_command(self, *args: Any, **options: Any) -> None:
        if not self.is_connected:
            await self.connect()  # type: ignore[no-untyped-call]
        await super().send_packed_command(*args, **options)


class _Managed(_Asking, SentinelManagedConnection):
    pass


class _ManagedTls(_Asking, SentinelManagedSSLConnection):
    pass


class _SyncAsking(sync_connection.AbstractConnection):
    """Is closed, too, where a read is interrupted: else the reply that comes late is taken for that to the next."""

    def send_packed_command(self, *args: Any, **options: Any) -> None:
        if not self._sock:
            self.connect()  # type: ignore[no-untyped-call]
        super().send_packed_command(*args, **options)  # type: ignore[no-untyped-call]

    def read_response(self, *args: Any, **options: Any) -> Any:
        return super().read_response(*args, **({"disconnect_on_error": True} | options))


class _SyncManaged(_SyncAsking, sync_sentinel.SentinelManagedConnection):
    pass


class _SyncManagedTls(_SyncAsking, sync_sentinel.SentinelManagedSSLConnection):
    pass


_OURS: dict[Any, Any] = {
    Connection: _Tcp, SSLConnection: _Tls,
    sync_redis.Connection: _SyncTcp, sync_redis.SSLConnection: _SyncTls,
    SentinelManagedConnection: _Managed, SentinelManagedSSLConnection: _ManagedTls,
    sync_sentinel.SentinelManagedConnection: _SyncManaged, sync_sentinel.SentinelManagedSSLConnection: _SyncManagedTls,
}  # fmt: skip
"""What stands in for the library's. Over Sentinels the library itself leaves a replica."""


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
            return _ours(sentinel.master_for(service, **options, **extra))  # type: ignore[no-any-return, no-untyped-call]
        client = _ours(sync_redis.Redis.from_url(url, **options))
        _check_options(client.connection_pool)
        return client  # type: ignore[no-any-return]


def _client(url: str, **options: Any) -> Client:
    with _url_checked(url):
        if urls.is_sentinel(url):
            hosts, service, extra = urls.sentinel_parts(url)
            _check_files(extra)
            sentinel = Sentinel(hosts, sentinel_kwargs=_asking(options | extra), **options)  # type: ignore[no-untyped-call]
            return _ours(sentinel.master_for(service, **options, **extra))
        client = _ours(redis.Redis.from_url(url, **options))
        _check_options(client.connection_pool)
        return client


def _ours(client: Any) -> Any:
    pool = client.connection_pool
    pool.connection_class = _OURS.get(pool.connection_class, pool.connection_class)
    return client


def _asking(options: dict[str, Any]) -> dict[str, Any]:
    """How Sentinels are asked: as the server, but once, the next one soon, and they have no databases."""
    asking = {name: value for name, value in options.items() if name != "db"}
    once = type(options["retry"])(NoBackoff(), 0)
    limits = {"socket_timeout": SENTINEL_ANSWER_S, "socket_connect_timeout": SENTINEL_ANSWER_S}
    return asking | limits | {"retry": once}


async def now_ms(client: Client) -> int:
    """Redis time, which is what all times in the store are."""
    with translated():
        seconds, micros = await client.time()
    return int(seconds * 1000 + micros // 1000)


def _check_options(pool: Any) -> None:
    """Raises ValueError where the URL has an option that no connection has, or names a file that is not there."""
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


def _alone(error: RedisError) -> str:
    """An error's message without what the library puts before it in a pipeline."""
    return _IN_PIPELINE.sub("", str(error), count=1)


def _said(text: str) -> str:
    """A message from the error's code on."""
    return text[_PLACE.match(text).end() :]  # type: ignore[union-attr]


def _is_demoted(error: ResponseError) -> bool:
    """Whether the server has become a replica. Of an operation's error 6.2 lets the library see no code."""
    return isinstance(error, ReadOnlyError) or _said(_alone(error)).startswith("READONLY")


def translate(error: RedisError) -> StoreUnavailable | StoreRefused | BadRecord:
    """Our word for an error of the library."""
    text = _alone(error)
    said = _said(text)
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
