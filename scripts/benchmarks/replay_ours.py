"""One run of a load through hexgen-flow: a server, a coordinator and a worker for each profile, all real processes."""

import asyncio
import json
import os
import signal
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

from chains import BenchmarkError
from contestants import HERE
from processes import Process, check, running
from replay import Document, Load, lessons, mark

from common import clock
from common.model import InstanceProfile
from common.settings import load as load_settings
from common.store.cell import Cell
from common.store.embedded import EmbeddedServer
from common.store.records import pages
from coordinator.estimates import MOST_NAMES, WINDOW
from coordinator.language.compiler import compile_definition
from hexgen_flow.client import Client, Event, NotInTime, WorkflowId

READY_S = 60.0
LOOK_EVERY_S = 5.0
NAMESPACE = "compare"


@dataclass(frozen=True, slots=True)
class Deployment:
    """What runs: the policy with its numbers, and how many times faster than real ones the instances are."""

    policy: str
    parameters: dict[str, float]
    time_scale: float
    prefix_cache: bool


@dataclass(frozen=True, slots=True)
class Ended:
    """How a workflow went, in s of the real engines: its latency, how late it was submitted, and its events."""

    latency_s: float
    late_s: float
    events: tuple[Event, ...]


def run(deployment: Deployment, load: Load, known: Sequence[Document], give_up_s: float) -> list[Ended]:
    """Every workflow of the load, to its end. Raises BenchmarkError if one fails or it takes too long."""
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="compare-")))
        server = stack.enter_context(EmbeddedServer.start(scratch / "server", extra_args=("--appendfsync", "everysec")))
        environment = os.environ | {
            "HEXGEN_REDIS_URL": server.url,
            "HEXGEN_NAMESPACE": NAMESPACE,
            "HEXGEN_ALPHA": "",  # of the user's own policy
            "HEXGEN_PARAMETERS": "",
        }
        asyncio.run(_teach(server.url, deployment, load, known))
        others: dict[Path, Process] = {}
        for name, command in _commands(deployment, load.profiles).items():
            log = scratch / f"{name}.log"
            others[log] = stack.enter_context(running(command, environment, scratch, log, signal.SIGKILL))
        _wait_for_instances(server.url, len(load.profiles), others)
        client = stack.enter_context(Client(server.url, NAMESPACE))
        return _drive(client, deployment.time_scale, load, known, others, give_up_s)


def _commands(deployment: Deployment, profiles: Sequence[InstanceProfile]) -> dict[str, tuple[str, ...]]:
    coordinator = (sys.executable, "-m", "hexgen_flow", "coordinator", "--log-level", "WARNING")
    commands: dict[str, tuple[str, ...]] = {"coordinator": (*coordinator, "--policy", deployment.policy)}
    cache = "cache" if deployment.prefix_cache else "no-cache"
    for at, profile in enumerate(profiles):
        name = f"{at}-{profile.name}"
        options = (name, json.dumps(asdict(profile)), str(deployment.time_scale), cache)
        commands[name] = (sys.executable, str(HERE / "replay_worker.py"), *options)
    return commands


async def _teach(url: str, deployment: Deployment, load: Load, known: Sequence[Document]) -> None:
    """The coordinator is to know what the simulator's policies do: the means of the trace, and their own numbers."""
    values = load_settings(redis_url=url, namespace=NAMESPACE)
    async with Cell.opened(values.redis_url, values.namespace) as cell:
        for page in pages(lessons(load.trace, known)):
            await cell.records.learn(page, WINDOW, MOST_NAMES)
        await cell.tuning.decide(0, {"why": "compared"}, None, deployment.policy, deployment.parameters)


def _wait_for_instances(url: str, count: int, others: Mapping[Path, Process]) -> None:
    async def ready() -> int:
        async with Cell.opened(url, NAMESPACE) as cell:
            registered = await cell.records.registered()  # the coordinator registers the built-in workflows
            return len(await cell.instances.all()) if registered else 0

    give_up_at = clock.monotonic_s() + READY_S
    while asyncio.run(ready()) < count:
        check(others, give_up_at, READY_S)
        asyncio.run(clock.sleep(0.2))


def _drive(
    client: Client, scale: float, load: Load, known: Sequence[Document], others: Mapping[Path, Process],
    give_up_s: float,
) -> list[Ended]:  # fmt: skip
    for document in known:
        compile_definition(document)  # a fault here is ours, not a submission's
    arrivals = [(at_s / scale, which) for at_s, which in load.arrivals_s()]
    begun_at, begun_ms = clock.monotonic_s() + 1.0, clock.wall_ms() + 1000
    submitted: list[WorkflowId] = []
    for number, (at_s, which) in enumerate(arrivals):
        asyncio.run(clock.sleep(max(0.0, begun_at + at_s - clock.monotonic_s())))
        check(others, begun_at + at_s + give_up_s, give_up_s)
        workflow = load.trace[which]
        slo_s = load.slo_s * workflow.slo_scale / scale
        submitted.append(client.submit(known[which], {"mark": mark(number)}, slo_s=slo_s, tenant=workflow.tenant))
    give_up_at = begun_at + arrivals[-1][0] + give_up_s
    found = []
    for identifier, (at_s, _) in zip(submitted, arrivals, strict=True):
        events = _events(client, identifier, others, give_up_at, give_up_s)
        if events[-1].type != "completed":
            raise BenchmarkError(f"workflow {identifier} {events[-1].type}: {events[-1].data}")
        late_s = (int(identifier.partition("-")[0]) - begun_ms) / 1000 - at_s
        found.append(Ended(scale * events[-1].data["elapsed_s"], scale * late_s, events))
    return found


def _events(
    client: Client, identifier: WorkflowId, others: Mapping[Path, Process], give_up_at: float, give_up_s: float
) -> tuple[Event, ...]:
    """All of a workflow, once it has ended; meanwhile the processes are watched."""
    while True:
        try:
            return tuple(client.events(identifier, timeout_s=LOOK_EVERY_S))
        except NotInTime:
            check(others, give_up_at, give_up_s)
