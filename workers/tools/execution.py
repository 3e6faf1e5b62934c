"""One tool request: claimed, run in a thread under a kept lease, handed in. Each in a process of its own.

Knows the queue of tool requests, and nothing of RQ, which starts the process.
"""

import asyncio
import logging
import mmap
import os
import secrets
import signal
import socket
import threading
from typing import Any

from common import clock, wire
from common.backoff import patiently
from common.errors import AttemptFailed, InvalidDocument
from common.events import Outcome
from common.model import TOOLS, Claim, ToolCall
from common.settings import Settings
from common.store.cell import Cell
from common.store.queues import Room, Seat
from workers.lease import LeaseKeeper
from workers.tools.registry import ToolContext, ToolError, load, names

MAX_OUTPUT_BYTES = 8 << 20
LATE_S = 5.0
"""So much later than its time limit a tool's process is ended that did not get to hand in that it was reached."""
ONE = Room(requests=1, prefill_tokens=1, kv_tokens=1, empty=True)
log = logging.getLogger("hexgen.tools")
_held = mmap.mmap(-1, 4096)
"""What the process of a job holds; shared with its parent, which tells of it should the process die."""


async def run(settings: Settings, ticket: str) -> bool:
    """Claim the most urgent tool request, if any is left, and run it. True when the tool did not stop in time."""
    seat = Seat(TOOLS, None, f"tools/{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}")
    async with Cell.opened(settings.redis_url, settings.namespace) as cell:
        claims = await patiently(lambda: cell.queues.claim(seat, ticket, settings.lease_ms, ONE), f"ticket {ticket}")
        return await _run_claim(settings, cell, seat, claims[0]) if claims else False


async def _give_back(cell: Cell, claim: Claim) -> None:
    """Coordinators that count this worker in will not queue it again until all tool workers have the tool."""
    log.warning("request %s: stage %s asks for a tool that is not installed here", claim.request, claim.stage)
    await patiently(lambda: cell.queues.release([(claim.request, claim.token)]), "give back")


async def _run_claim(settings: Settings, cell: Cell, seat: Seat, claim: Claim) -> bool:
    """Run one request under a kept lease and hand in what came of it. True when the tool did not stop in time."""
    assert isinstance(claim.call, ToolCall)
    if claim.call.tool not in names():
        await _give_back(cell, claim)
        return False
    leases = LeaseKeeper(
        settings.redis_url, seat, settings.namespace, settings.lease_ms,
        on_gone=_abort,
        on_seat_lost=lambda _: None,
    )  # fmt: skip
    leases.hold(claim.request, claim.token)
    leases.start()
    _note((claim.request, claim.token, claim.stage, claim.timeout_s))
    started = clock.monotonic_s()
    outcome: Outcome | AttemptFailed
    hung = False
    _end_process_in(claim.timeout_s + LATE_S)
    try:
        output = await asyncio.wait_for(_in_thread(settings, claim), claim.timeout_s)
        run_ms = round(1000 * (clock.monotonic_s() - started))
        outcome = Outcome(output, TOOLS, max(0, claim.claimed_at - claim.enqueued_at), run_ms)
    except TimeoutError:
        hung = True
        outcome = AttemptFailed(f"the tool ran longer than timeout_s = {claim.timeout_s:g}")
    except AttemptFailed as error:
        outcome = error
    _end_process_in(0)
    await patiently(lambda: cell.queues.finish([(claim.request, claim.token, outcome)]), "hand in")
    leases.drop(claim.request, claim.token)
    _note(None)
    leases.stop()
    return hung


async def report_death(settings: Settings, exit_code: int) -> None:
    """For the parent: the process of a job has ended by itself; its request failed, if it held one."""
    held = wire.unpack(_held[4 : 4 + int.from_bytes(_held[:4], "big")])
    if held is None:
        return
    _note(None)
    request, token, stage, timeout_s = held
    if exit_code == -signal.SIGALRM:
        reason = f"the tool ran longer than timeout_s = {timeout_s:g} and let nothing else run"
    else:
        how = f"signal {-exit_code}" if exit_code < 0 else f"code {exit_code}"
        reason = f"the tool ended its process ({how})"
    log.warning("request %s, stage %s: %s", request, stage, reason)
    failed = AttemptFailed(reason)
    async with Cell.opened(settings.redis_url, settings.namespace) as cell:
        await patiently(lambda: cell.queues.finish([(request, token, failed)]), "hand in")


def _abort(request: str) -> None:
    """Its lease is lost or its workflow has ended. A tool cannot be stopped but with its process, and others wait."""
    log.info("request %s is no longer ours; aborting", request)
    _note(None)
    os._exit(1)


def _note(held: tuple[str, int, str, float] | None) -> None:
    packed = wire.pack(held)
    _held[: 4 + len(packed)] = len(packed).to_bytes(4, "big") + packed


_note(None)


def _end_process_in(seconds: float) -> None:
    """The kernel ends this process then: a tool may let no other thread run. 0 takes it back, and RQ's alarm too."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, seconds)


async def _in_thread(settings: Settings, claim: Claim) -> Any:
    """The tool's value, from a daemon thread: one that hangs must not hold up the end of this process.

    Raises AttemptFailed.
    """
    assert isinstance(claim.call, ToolCall)
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Any] = loop.create_future()

    def settle(value: Any, error: AttemptFailed | None) -> None:
        if not done.done():
            done.set_exception(error) if error else done.set_result(value)

    def work(call: ToolCall) -> None:
        try:
            value = _kept(load(call.tool)(call.args, ToolContext(settings.databases, claim.timeout_s)))
            loop.call_soon_threadsafe(settle, value, None)
        except ToolError as error:
            loop.call_soon_threadsafe(settle, None, AttemptFailed(str(error), retryable=False))
        except BaseException as error:  # SystemExit and StopIteration too, which would break what waits here
            log.exception("request %s: the tool failed", claim.request)
            failed = AttemptFailed(f"the tool raised {type(error).__name__}: {error}")
            loop.call_soon_threadsafe(settle, None, failed)

    threading.Thread(target=work, args=(claim.call,), daemon=True).start()
    return await done


def _kept(value: Any) -> Any:
    """What a tool returned, if it can be written down. Raises ToolError."""
    try:
        wire.check_json(value)
    except InvalidDocument as error:
        raise ToolError(f"what the tool returned cannot be kept: {error}") from None
    size = len(wire.pack(value))
    if size > MAX_OUTPUT_BYTES:
        raise ToolError(f"what the tool returned has {size} bytes; at most {MAX_OUTPUT_BYTES} are kept")
    return value
