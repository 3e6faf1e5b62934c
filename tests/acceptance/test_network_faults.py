"""All processes reach Redis through a network that spoils connections: all workflows end once, and nothing is left."""

import secrets
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

import proxy
import pytest
from counted import Counted, launch
from proxy import Fault, Proxy

KINDS = ("lost replies", "resets", "delays", "half-open lines", "black hole")
LEASE_S = "4"
"""A tool's process begins with a connection of its own, which takes four delayed answers."""
LASTS_S = 12.0
HOLE_LASTS_S = 6.0
"""Nothing at all comes through: longer than a server may take to answer, and than a lease."""
SEED = 7
pytestmark = pytest.mark.slow


def made(kind: str, chance: Random) -> Fault:
    if kind == "lost replies":
        return proxy.loses_replies(every=chance.randint(4, 9))
    if kind == "resets":
        return proxy.resets(*(chance.randint(400, 20_000) for _ in range(50)))
    if kind == "delays":
        return proxy.delays(0.2)
    return proxy.some(proxy.black_hole, every=3) if kind == "half-open lines" else proxy.black_hole


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory, program: Path | None) -> Iterator[tuple[Counted, Proxy]]:
    """A deployment behind a proxy; workflows are submitted, and looked at, directly."""
    folder = tmp_path_factory.mktemp("network")
    with launch(folder, program=program) as server, Proxy(server.port) as between:
        url, namespace = between.through(server.url), f"test-{secrets.token_hex(4)}"
        with Counted(server, namespace, folder, HEXGEN_REDIS_URL=url, HEXGEN_LEASE_S=LEASE_S) as cell:
            cell.begin("--engine", "simulated", "--time-scale", "20", "--responder", "echo:40")
            yield cell, between


def suffer(cell: Counted, between: Proxy, kind: str, chance: Random, count: int) -> None:
    """So many workflows under one fault; it is over when all have ended, or after a while."""
    cell.submit(2)
    between.fault = made(kind, chance)
    try:
        cell.submit(count - 2)
        until = time.monotonic() + (HOLE_LASTS_S if kind == "black hole" else LASTS_S)
        cell.until_true(lambda: cell.ended() == len(cell.answers) or time.monotonic() > until)
    finally:
        between.fault = proxy.passing


@pytest.mark.parametrize("kind", KINDS)
def test_all_end_once_under_each_fault(network: tuple[Counted, Proxy], kind: str) -> None:
    cell, between = network
    before = between.cuts
    suffer(cell, between, kind, Random(SEED), 6)
    cell.settle()
    assert cell.faults() == []
    assert (between.cuts > before) == (kind in ("lost replies", "resets"))


def test_all_end_once_under_faults_that_come_again_and_again(network: tuple[Counted, Proxy]) -> None:
    cell, between = network
    chance = Random(SEED)
    for kind in chance.sample(KINDS * 2, 2 * len(KINDS)):
        suffer(cell, between, kind, chance, 4)
    cell.settle()
    assert cell.faults() == []
