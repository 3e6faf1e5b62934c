"""Completions: for each workflow that has mail, one look, one step of the core, one commit.

A workflow that cannot be read, stepped or committed fails, alone. Trouble of the store itself is raised: it passes.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from common import clock
from common.errors import StoreRefused, StoreUnavailable
from common.events import AmendAsked, Event
from common.model import Head, Slo
from common.recorded import pack
from common.states import ENDED
from common.store.inbox import Commit, End, Entry, Look
from coordinator import core
from coordinator.cluster import Cluster
from coordinator.desk import Desk
from coordinator.language.errors import clipped
from coordinator.recording import recorded
from coordinator.state import Workflow

BATCH = 64
MESSAGES = 256
TRIES = 5
LONGEST_FAULT = 1000
LONGEST_TOLD = 300
log = logging.getLogger("hexgen.completions")


class Call(NamedTuple):
    """A workflow id, the stream entry that called for it, and why the workflow cannot go on, if so.

    owner: the coordinator that was lost with it, if one was.
    """

    workflow: str
    entry: str
    fault: str = ""
    owner: str = ""


class Turn(NamedTuple):
    """One workflow in one round. No step: it is not running. A fault: it cannot go on, and the step ends it."""

    call: Call
    look: Look
    step: core.Step | None
    fault: str = ""


async def completions(desk: Desk) -> None:
    """Take the workflows that have mail; waits a few seconds for them."""
    await handle(desk, await desk.cell.inbox.read(desk.cell.keys.completions, desk.name, BATCH))


async def handle(desk: Desk, entries: Sequence[Entry]) -> None:
    """Step these workflows. One that another coordinator has moved on meanwhile is looked at again."""
    await _carry_out(desk, [Call(_workflow(fields), entry) for entry, fields in entries])


async def give_up(desk: Desk, entry: Entry, fault: str, owner: str) -> None:
    """End a workflow that cannot go on, for this reason: it is a dead letter. owner: who was lost with it."""
    name, fields = entry
    await _carry_out(desk, [Call(_workflow(fields), name, fault, owner)])


def _workflow(fields: Mapping[bytes, bytes]) -> str:
    return fields.get(b"workflow", b"").decode("utf-8", "replace")


async def _carry_out(desk: Desk, calls: Sequence[Call]) -> None:
    for _ in range(TRIES):
        if not calls:
            return
        calls = await _round(desk, calls)
    for call in calls:
        if call.fault:
            desk.reports.tell(
                logging.ERROR, "workflows that cannot be ended",
                "workflow %s cannot be ended: %s", call.workflow, call.fault,
            )  # fmt: skip
    moving = sum(not call.fault for call in calls)
    if moving:
        log.warning("%d workflows keep moving under us; left to be taken over", moving)


async def _round(desk: Desk, calls: Sequence[Call]) -> list[Call]:
    cluster = await desk.cluster()
    # Held from here on: meanwhile another loop may take them out of the memory.
    held = [desk.at_hand(call.workflow) for call in calls]
    wanted = [(call.workflow, known.version if known else -1) for call, known in zip(calls, held, strict=True)]
    # Mail may be what a workflow cannot go on for: whoever ends it needs none.
    looks = await desk.cell.inbox.begin(wanted, 1 if any(call.fault for call in calls) else MESSAGES)
    turns = [await _turn(desk, *parts, cluster) for parts in zip(calls, held, looks, strict=True)]
    answers = await desk.cell.inbox.commit([_commit(desk, turn) for turn in turns])
    again = []
    for turn, answer in zip(turns, answers, strict=True):
        if answer.bounced:
            desk.refresh()
        if answer.state == 1 and turn.step is not None:
            _tell_end(desk, turn.step)
        if answer.state == 1 and turn.step is not None and not turn.fault:
            _done(desk, turn.step, answer.version)
        else:
            desk.forget(turn.call.workflow)
        if answer.state == 0:
            again.append(turn.call._replace(fault=answer.fault))
    return again


async def _turn(desk: Desk, call: Call, known: Workflow | None, look: Look, cluster: Cluster) -> Turn:
    """The core's answer, or the end of a workflow that cannot go on."""
    if look.version < 0:
        return Turn(call, look, None)
    fault = call.fault or look.fault
    try:
        if not fault:
            workflow = await desk.workflow(call.workflow, known, look)
            await clock.sleep(0)  # a step may take a while; others are to have their turn between two
            mail = await _with_grounds(desk, workflow, look.mail)
            return Turn(call, look, core.step(workflow, mail, cluster, look.now))
    except (StoreUnavailable, StoreRefused):
        raise
    except Exception as error:
        desk.reports.tell(
            logging.ERROR,
            "workflows that cannot be stepped",
            "workflow %s cannot be stepped",
            call.workflow,
            trace=True,
        )
        fault = f"{type(error).__name__}: {error}"
    return Turn(call, look, _broken(call, known, look, clipped(f"internal error: {fault}", LONGEST_FAULT)), fault)


def _broken(call: Call, known: Workflow | None, look: Look, reason: str) -> core.Step:
    """The end of a workflow that cannot go on, as far as it is known; as if nothing of it were, if that fails too."""
    try:
        return core.broken(_remains(call.workflow, known, look), reason, look.now)
    except Exception:
        nothing = replace(look, head=None, nodes={})
        return core.broken(_remains(call.workflow, None, nothing), reason, look.now)


async def _with_grounds(desk: Desk, workflow: Workflow, mail: Sequence[Event]) -> Sequence[Event]:
    """The mail; an amendment of the deadline with the grounds of the requests whose keys follow from it."""
    if not any(isinstance(event, AmendAsked) for event in mail):
        return mail
    under_way = [node.request for node in workflow.nodes.values() if node.request and node.phase not in ENDED]
    grounds = await desk.cell.inbox.grounds(under_way)
    return [replace(event, grounds=grounds) if isinstance(event, AmendAsked) else event for event in mail]


def _remains(name: str, known: Workflow | None, look: Look) -> Workflow:
    """What is known of a workflow that cannot go on. With no head, it is told in JSON and had no time."""
    head = look.head or (known.head if known else Head("", "", "", {}, Slo(look.now, look.now)))
    nodes = look.nodes if look.nodes is not None else known.nodes if known else {}
    return Workflow(name, head, core.NO_DEFINITION, look.version, nodes)


def _commit(desk: Desk, turn: Turn) -> Commit:
    step, look = turn.step, turn.look
    if step is None:
        return Commit(turn.call.workflow, turn.call.entry, -1, 0, "json")
    end = None
    if step.status != "running":
        kept_s = desk.settings.keep_done_s if step.status == "completed" else desk.settings.keep_failed_s
        trace, keep_traces = _trace(desk, step, look.now), desk.settings.keep_traces
        end = End(step.status, step.result, int(kept_s * 1000), trace, keep_traces)
    return Commit(
        workflow=turn.call.workflow,
        entry=turn.call.entry,
        version=look.version,
        handled=len(look.mail),
        seen=look.seen,
        encoding=step.workflow.head.encoding,
        nodes=step.nodes,
        pushes=step.pushes,
        delays=step.delays,
        drops=step.drops,
        recalls=step.recalls,
        rescores=step.rescores,
        head=step.head,
        events=step.events,
        end=end,
        broken=bool(turn.fault),
        owner=turn.call.owner,
    )


def _trace(desk: Desk, step: core.Step, now: int) -> bytes:
    """What is kept of a workflow for replays; empty for one that did not complete. Never in the way of its end."""
    if step.status != "completed" or not desk.settings.keep_traces:
        return b""
    try:
        record = recorded(step.workflow, now, desk.settings.policy, desk.values)
        return b"" if record is None else pack(record)
    except Exception:
        name = step.workflow.id
        told = "workflows that cannot be recorded"
        desk.reports.tell(logging.ERROR, told, "workflow %s cannot be recorded", name, trace=True)
        return b""


def _tell_end(desk: Desk, step: core.Step) -> None:
    """A line for a workflow that has failed; others ask for none."""
    name, head, told = step.workflow.id, step.workflow.head, step.result
    if step.status == "failed":
        desk.reports.tell(
            logging.WARNING, "workflows failed", "workflow %s failed: %s of %s, stage %s: %s",
            name, head.name or "?", head.tenant or "?", told["stage"] or "-", clipped(told["error"], LONGEST_TOLD),
        )  # fmt: skip
    elif step.status != "running":
        log.debug(
            "workflow %s %s: %s of %s, after %.3f s", name, step.status, head.name, head.tenant, told["elapsed_s"]
        )


def _done(desk: Desk, step: core.Step, version: int) -> None:
    """The step has taken effect: remember its state, which has this version, and learn from it."""
    workflow = step.workflow
    if step.status == "running":
        workflow.version = version
        desk.keep(workflow)
    else:
        desk.forget(workflow.id)
    name = workflow.definition.name
    for spec, outcome in step.outcomes:
        desk.estimates.learn(name, spec, outcome)
    for choice in step.choices:
        if choice.round is None:
            desk.estimates.saw_branch(name, choice.spec, choice.held)
        else:
            desk.estimates.saw_round(name, choice.spec, choice.round, choice.held)
