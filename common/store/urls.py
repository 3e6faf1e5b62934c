"""What a Redis URL must be. Text only; no connection is made here, and no password gets into a message."""

import re
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

SCHEMES = ("redis", "rediss", "unix", "redis+sentinel", "rediss+sentinel")
FORM_OF_REPLIES = frozenset({"protocol", "decode_responses", "legacy_responses", "encoding"})
"""Options of a connection that would change what is read of it."""
_DATABASE = re.compile(r"/?[0-9]*/?")


def check(url: str) -> None:
    """Raises ValueError with what to write instead."""
    scheme, found, _ = url.partition("://")
    if not found or scheme not in SCHEMES:
        raise ValueError(f"must begin with one of {', '.join(f'{known}://' for known in SCHEMES)}")
    if fixed := FORM_OF_REPLIES & parse_qs(urlsplit(url).query).keys():
        raise ValueError(f"{min(fixed)} is not to be chosen; take it out")
    if is_sentinel(url):
        sentinel_parts(url)
    elif scheme == "unix":
        if not urlsplit(url).path:
            raise ValueError("a unix URL names the socket's file: unix:///run/redis.sock?db=0")
    else:
        parts = urlsplit(url)
        _place(parts.netloc)
        if not _DATABASE.fullmatch(parts.path):
            raise ValueError(f"what follows the host must be a database's number: {scheme}://HOST:PORT/0")


def is_sentinel(url: str) -> bool:
    """Whether the URL names Sentinels to ask, not the server itself."""
    return url.partition("://")[0].endswith("+sentinel")


def sentinel_parts(url: str) -> tuple[list[tuple[str, int]], str, dict[str, Any]]:
    """redis+sentinel://[user:password@]host:port,host:port/service[/db] as (hosts, service, options of a connection).

    Raises ValueError.
    """
    parts = urlsplit(url)
    credentials, _, hosts = parts.netloc.rpartition("@")
    service, _, db = parts.path.strip("/").partition("/")
    if not service:
        raise ValueError("a Sentinel URL names the service: redis+sentinel://HOST:26379/SERVICE/0")
    if not _DATABASE.fullmatch(db):
        raise ValueError(
            f"what follows the service must be a database's number: {parts.scheme}://HOST:26379/{service}/0"
        )
    options: dict[str, Any] = {"db": int(db or 0)}
    if credentials:
        user, _, password = credentials.rpartition(":")
        options["password"] = unquote(password)
        if user:
            options["username"] = unquote(user)
    if parts.scheme.startswith("rediss"):
        options["ssl"] = True
    options.update({name: values[0] for name, values in parse_qs(parts.query).items() if name.startswith("ssl_")})
    places = [_place(host) for host in hosts.split(",")]
    found = [(host, port) for host, port in places if host and port]
    if len(found) < len(places):
        raise ValueError("a Sentinel URL names hosts with ports: redis+sentinel://HOST:26379,HOST:26379/SERVICE/0")
    return found, service, options


def _place(netloc: str) -> tuple[str | None, int | None]:
    parts = urlsplit(f"//{netloc}")
    try:
        return parts.hostname, parts.port
    except ValueError:
        raise ValueError(
            "the port must be a number up to 65535; in a password write / ? # @ and : percent-encoded (%2F %3F ...)"
        ) from None
