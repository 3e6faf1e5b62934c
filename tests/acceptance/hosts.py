"""Hosts on one machine: network namespaces on a bridge, whose links can be cut. Not a test itself."""

import ctypes
import os
import secrets
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

import pytest

CLONE_NEWNET = 0x40000000


class Hosts:
    """Each has an address, and reaches the others over its link to a bridge. Nothing outside is reached or changed."""

    def __init__(self, *names: str) -> None:
        self._mark = f"hexgen-{secrets.token_hex(3)}"
        self._addresses = {name: f"10.77.0.{number}" for number, name in enumerate(names, 1)}

    def __enter__(self) -> Self:
        try:
            _ip("netns", "add", self._space("bridge"))
        except (OSError, subprocess.CalledProcessError) as error:
            _missing(f"`ip netns add` does not work here: {getattr(error, 'stderr', '') or error}")
        try:
            self._on_bridge("link", "add", "name", "bridge0", "type", "bridge")
            self._on_bridge("link", "set", "dev", "bridge0", "up")
            for name in self._addresses:
                self._connect(name)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for name in ("bridge", *self._addresses):
            subprocess.run(["ip", "netns", "del", self._space(name)], capture_output=True, check=False)

    def address(self, name: str) -> str:
        return self._addresses[name]

    @contextmanager
    def on(self, name: str) -> Iterator[None]:
        """What this thread starts meanwhile runs on that host, and stays there."""
        home, host = os.open("/proc/thread-self/ns/net", os.O_RDONLY), os.open(self._file(name), os.O_RDONLY)
        try:
            _enter(host)
            yield
        finally:
            _enter(home)
            os.close(host)
            os.close(home)

    def cut(self, name: str) -> None:
        """Nothing comes or goes any more, and nobody is told."""
        self._on_bridge("link", "set", "dev", name, "down")

    def heal(self, name: str) -> None:
        self._on_bridge("link", "set", "dev", name, "up")

    def _connect(self, name: str) -> None:
        space = self._space(name)
        _ip("netns", "add", space)
        self._on_bridge("link", "add", "name", name, "type", "veth", "peer", "name", "eth0", "netns", space)
        self._on_bridge("link", "set", "dev", name, "master", "bridge0", "up")
        _ip("-n", space, "addr", "add", f"{self._addresses[name]}/24", "dev", "eth0")
        for device in ("eth0", "lo"):
            _ip("-n", space, "link", "set", "dev", device, "up")

    def _on_bridge(self, *words: str) -> None:
        _ip("-n", self._space("bridge"), *words)

    def _space(self, name: str) -> str:
        return f"{self._mark}-{name}"

    def _file(self, name: str) -> Path:
        return Path("/run/netns") / self._space(name)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], capture_output=True, text=True, check=True)


def _enter(space: int) -> None:
    if ctypes.CDLL(None, use_errno=True).setns(space, CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "the network namespace cannot be entered")


def _missing(reason: str) -> None:
    (pytest.fail if os.environ.get("HEXGEN_REQUIRE_NETNS") == "1" else pytest.skip)(reason)
