"""Completions: for each workflow that has mail, one look, one step of the core, one commit."""

import logging
from collections.abc import Sequence

from common import events
from common.errors import InvalidDocument
from common.store.inbox import Commit, End, Look
from coordinator import core
from coordinator.cluster import Cluster
from coordinator.desk import Desk
from coordinator.state import Workflow

BATCH = 64
MESSAGES = 256
TRIES = 5
log = logging.getLogger("hexgen.completions")
Call = tuple[str, str]
"""A workflow id and the stream entry that called for it."""


async def completions(desk: Desk) -> None:
    """Take the workflows that have mail; waits a few seconds for them."""
    entries = await desk.cell.inbox.read(desk.cell.keys.completions, desk.name, BATCH)
    await handle(desk, [(fields[b"workflow"].decode(), entry) for entry, fields in entries])


async def handle(desk: Desk, calls: Sequence[Call]) -> None:
    """Step these workflows. One that another coordinator has moved on meanwhile is looked at again."""
    for _ in range(TRIES):
        if not calls:
            return
        calls = await _round(desk, calls)
    log.warning("%d workflows keep moving under us; left to be taken over", len(calls))


async def _round(desk: Desk, calls: Sequence[Call]) -> list[Call]:
    cluster = await desk.cluster()
    # Held from here on: meanwhile another loop may take them out of the memory.
    held = [desk.at_hand(name) for name, _ in calls]
    wanted = [(name, known.version if known else -1) for (name, _), known in zip(calls, held, strict=True)]
    looks = await desk.cell.inbox.begin(wanted, MESSAGES)
    steps: list[tuple[Call, core.Step | None, Look]] = []
    for call, known, look in zip(calls, held, looks, strict=True):
        steps.append((call, await _step(desk, call[0], known, look, cluster), look))
    answers = await desk.cell.inbox.commit([_commit(desk, *step) for step in steps])
    again = []
    for (call, step, look), (answer, bounced) in zip(steps, answers, strict=True):
        if bounced:
            desk.refresh()
        if answer == 1 and step is not None:
            _done(desk, step, look, cluster)
        else:
            desk.forget(call[0])
        if answer == 0:
            again.append(call)
    return again


async def _step(desk: Desk, name: str, known: Workflow | None, look: Look, cluster: Cluster) -> core.Step | None:
    """The core's answer, None for a workflow that is not running. A workflow the core cannot step fails, alone."""
    if look.version < 0:
        return None
    try:
        workflow = await desk.workflow(name, known, look)
    except (LookupError, ValueError, InvalidDocument) as error:
        assert look.head is not None
        log.error("workflow %s: %s", name, error)
        return core.broken(
            Workflow(name, look.head, core.NO_DEFINITION, look.version, look.nodes or {}), str(error), look.now
        )
    try:
        return core.step(workflow, look.mail, cluster, look.now)
    except Exception as error:
        log.exception("workflow %s: the core failed", name)
        return core.broken(workflow, f"internal error: {type(error).__name__}: {error}", look.now)


def _commit(desk: Desk, call: Call, step: core.Step | None, look: Look) -> Commit:
    name, entry = call
    if step is None:
        return Commit(name, entry, -1, 0, "json")
    end = None
    if step.status != "running":
        kept_s = desk.settings.keep_done_s if step.status == "completed" else desk.settings.keep_failed_s
        end = End(step.status, step.result, int(kept_s * 1000))
    return Commit(
        workflow=name,
        entry=entry,
        version=look.version,
        handled=len(look.mail),
        encoding=step.workflow.head.encoding,
        nodes=step.nodes,
        pushes=step.pushes,
        delays=step.delays,
        drops=step.drops,
        events=step.events,
        end=end,
    )


def _done(desk: Desk, step: core.Step, look: Look, cluster: Cluster) -> None:
    """The step has taken effect: remember its state and learn from it."""
    workflow = step.workflow
    if step.status == "running":
        workflow.version = look.version + 1
        desk.keep(workflow)
    else:
        desk.forget(workflow.id)
    name = workflow.definition.name
    for spec, outcome in step.outcomes:
        desk.estimates.learn(name, spec, outcome)
    for kind, spec, taken in step.choices:
        desk.estimates.saw_choice(kind, name, spec, taken)
    for event in look.mail:
        if isinstance(event, events.Completed):
            cluster.compare(event.outcome)
