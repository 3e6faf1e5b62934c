"""The main loop of an instance: claim what can start, run it, hand in what has ended. Waiting stays in the queue."""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeVar

from common import clock
from common.backoff import patiently
from common.engine import ADMIT_SHARE
from common.errors import HexgenError, SeatLost, StoreUnavailable, Unregistered
from common.events import Outcome
from common.model import Claim
from common.store.cell import Cell
from common.store.queues import Room, Seat
from common.store.scripts import call_id
from common.tasks import end
from workers.answer import answer
from workers.breaker import STALL_S, Breaker
from workers.engines.protocol import Engine, EngineError
from workers.lease import LeaseKeeper
from workers.observer import Observer
from workers.publisher import Publisher

FINISHED_AT_HAND = 10_000
HEALTH_EVERY_S = 5.0
T = TypeVar("T")
log = logging.getLogger("hexgen.worker")


class Runner:
    """Runs one instance's queue on one engine, which the observer watches; stall_s: see Breaker."""

    def __init__(
        self, cell: Cell, engine: Engine, observer: Observer, seat: Seat, lease_ms: int, stall_s: float = STALL_S
    ) -> None:
        self._cell = cell
        self._engine = engine
        self._observer = observer
        self._profile = observer.profile
        self.publisher = Publisher(cell.instances, observer, seat)
        self.breaker = Breaker(engine, observer, stall_s, self._leave, self._come_back)
        self._seat = seat
        self._lease_ms = lease_ms
        self._running: dict[str, asyncio.Task[None]] = {}
        self._aborts: set[asyncio.Task[None]] = set()
        self._alone = ""
        self._stalled = False
        self._ended: list[tuple[Claim, Outcome | EngineError]] = []
        self._something_ended = asyncio.Event()
        self._handing_in = asyncio.Lock()
        self._room_changed = asyncio.Event()
        self._shut = False
        self._queue_empty = False
        self._waiter: asyncio.Task[bool] | None = None
        self._engine_dead = asyncio.Event()
        self._ended_at_work = False
        self._draining = False
        self._hurried = asyncio.Event()
        self._patience_ends = math.inf
        self._lost: SeatLost | None = None
        self.seat_lost = asyncio.Event()
        self._leases: LeaseKeeper | None = None

    def attach(self, leases: LeaseKeeper) -> None:
        """Where to hold leases."""
        self._leases = leases

    async def claim_loop(self) -> None:
        """Claim until draining. Raises SeatLost."""
        self._observer.on_iteration = self._look_for_room
        while not self._draining:
            self._room_changed.clear()
            room = self._room()
            self._shut = not room.is_open
            claims = await self._claim(room) if room.is_open else []
            for claim in claims:
                await self._start(claim)
            await asyncio.sleep(0)  # the engine takes a call when its task first runs; only then does its load tell
            if claims:
                self.publisher.changed()
            else:
                await self._wait(look=room.is_open)

    def _look_for_room(self) -> None:
        """An iteration has begun or ended: wake the claim loop if it waits for less to prefill, and there is."""
        if self._shut and self._room().is_open:
            self._shut = False
            self._changed()  # whoever plans may send more

    async def _claim(self, room: Room) -> list[Claim]:
        """One claim; should its reply be lost, the same call id gets the same answer.

        A queue that was left empty is not looked at before something is pushed, of which the store tells.
        """
        claims: list[Claim] = []
        call, queues = call_id(), self._cell.queues
        if not self._queue_empty:
            with suppress(StoreUnavailable):  # told to stop: what it may have got comes back when its lease ends
                claims, left = await patiently(
                    lambda: queues.claim_and_look(self._seat, call, self._lease_ms, room),
                    "claim",
                    lambda: self._draining,
                )
                self._queue_empty = not left
        if not claims:
            self._observer.found_nothing(room.kv_tokens)
        return claims

    def _room(self) -> Room:
        """What may start now: under one chunk unprefilled, and KV to spare; what waits can still be reordered."""
        load = self._engine.load()
        free_kv = int(ADMIT_SHARE * self._profile.kv_tokens) - load.kv_tokens
        requests = min(self._profile.max_batch - len(self._running), FINISHED_AT_HAND - len(self._ended))
        if self._alone in self._running or self._engine_dead.is_set():
            requests = 0
        unbegun = self._profile.chunk_tokens - load.unprefilled_tokens
        return Room(requests, unbegun, max(0, free_kv), empty=not self._running)

    async def _wait(self, *, look: bool) -> None:
        """Until room comes free or, if there is room already, something is pushed."""
        waits: set[asyncio.Task[bool]] = {asyncio.create_task(_changed(self._room_changed))}
        if look:
            self._waiter = self._waiter or asyncio.create_task(self._woken())
            waits.add(self._waiter)
        done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        if self._waiter in done:
            self._waiter = None
            self._queue_empty = False
        for task in waits - done:
            if task is not self._waiter:
                task.cancel()

    async def _woken(self) -> bool:
        # A blocking read must not be cut short: it would cost its connection. So it may outlive one turn of the loop.
        return await patiently(self._wait_for_wake, "wait for requests")

    async def _wait_for_wake(self) -> bool:
        try:
            return await self._cell.queues.wait(self._seat.instance)
        except StoreUnavailable:  # the wake may have been taken, and lost on the way: look
            self._queue_empty = False
            self._room_changed.set()
            raise

    async def _start(self, claim: Claim) -> None:
        assert self._leases is not None
        self._leases.hold(claim.request, claim.token)
        if claim.alone:
            self._alone = claim.request
        if claim.request in self._running:  # after a long pause: its lease had run out, and it came back to this queue
            await end(self._running[claim.request])
        task = asyncio.create_task(self._run(claim))
        self._running[claim.request] = task

    async def _run(self, claim: Claim) -> None:
        try:
            outcome = await self._outcome(claim)
        except asyncio.CancelledError:
            self._forget(claim)
            raise
        if outcome is not None:
            self._ended.append((claim, outcome))
            self._something_ended.set()
        self._running.pop(claim.request, None)
        self._changed()

    async def _outcome(self, claim: Claim) -> Outcome | EngineError | None:
        """What came of a request; None when its engine has died under it: then draining gives it back, as a loss."""
        try:
            return await self._observed(claim)
        except EngineError as error:
            return None if await self._engine_died() else error
        except Exception as error:
            log.exception("request %s: unexpected error", claim.request)
            return EngineError(f"worker error: {type(error).__name__}: {error}")

    async def _observed(self, claim: Claim) -> Outcome:
        outcome = None
        try:
            self._observer.started(claim)
            told = (self._advanced, lambda text: self._tell(claim, text))
            outcome = await answer(self._engine, claim, self._seat.instance, *told)
            return outcome
        finally:
            self._observer.ended(claim, None if outcome is None else outcome.usage)

    def _advanced(self, first: bool) -> None:
        self._observer.advanced()
        if first:
            self._changed()

    def _changed(self) -> None:
        """The engine holds other than it did."""
        self._room_changed.set()
        self.publisher.changed()

    async def _engine_died(self) -> bool:
        try:
            await self._engine.health()
        except EngineError:
            if not self._engine_dead.is_set():  # one that ends while we drain was told to, as we were
                self._ended_at_work = not self._draining
            self._engine_dead.set()
        return self._engine_dead.is_set()

    async def health_loop(self) -> None:
        """Return once the engine cannot serve any more; it is asked every few seconds, and when a call has failed.

        Dead once is dead for good: what was running then waits to be given back.
        """
        while not await self._engine_died():
            with suppress(TimeoutError):
                async with asyncio.timeout(HEALTH_EVERY_S):
                    await self._engine_dead.wait()

    async def _leave(self) -> None:
        """Out of dispatch: what is queued and what runs here goes elsewhere. It may be what has stalled the engine, so
        that is a loss, but not to what has come in since.

        Calls are aborted last, since an engine in this state may not even do that.
        """
        assert self._leases is not None
        await self._evacuate("stalled")
        running, held = list(self._running.values()), self._leases.held()
        stuck = [(request, token) for request, token in held.items() if request in self._running]
        await self._give_up(stuck, "" if self._stalled else "stalled")
        self._stalled = True
        await end(*running)

    async def _come_back(self) -> None:
        self._stalled = False
        await self._evacuate("ready")
        self.publisher.changed()

    async def _give_up(self, held: list[tuple[str, int]], engine: str) -> None:
        """Others must run this; engine: what became of the engine under it, if that is why."""
        queues = self._cell.queues
        await self._patiently(lambda: queues.forfeit(held, engine) if engine else queues.release(held), "give back")

    async def _tell(self, claim: Claim, text: str) -> None:
        """Tokens are told on a best effort: a store that is away costs its watchers a piece, not the attempt."""
        try:
            await self._cell.queues.emit_tokens(claim, text)
        except HexgenError as error:
            log.debug("request %s: tokens not told: %s", claim.request, error)

    def _forget(self, claim: Claim) -> None:
        assert self._leases is not None
        self._running.pop(claim.request, None)
        self._leases.drop(claim.request, claim.token)
        self._changed()

    async def hand_in_loop(self) -> None:
        """Hand in what has ended, all that is there in one go; while the store is away it is kept."""
        while True:
            await self._something_ended.wait()
            self._something_ended.clear()
            await self._hand_in()

    async def _hand_in(self) -> None:
        assert self._leases is not None
        async with self._handing_in:
            while batch := list(self._ended):
                await self._hand_in_batch(self._leases, batch)
                del self._ended[: len(batch)]
                self._look_for_room()

    async def _hand_in_batch(self, leases: LeaseKeeper, batch: list[tuple[Claim, Outcome | EngineError]]) -> None:
        triples = [(claim.request, claim.token, outcome) for claim, outcome in batch]
        taken = await self._patiently(lambda: self._cell.queues.finish(triples), "hand in")
        for (claim, _), counted in zip(batch, taken, strict=True):
            leases.drop(claim.request, claim.token)
            if not counted:
                log.info(
                    "request %s: its lease was lost, or it was handed in before; this has no effect", claim.request
                )

    def gone(self, request: str) -> None:
        """Its lease is lost or its workflow has ended: stop running it."""
        assert self._leases is not None
        task = self._running.get(request)
        if task is not None and request not in self._leases.held():  # it may have been claimed again meanwhile
            log.info("request %s is no longer ours; aborting", request)
            abort = asyncio.create_task(end(task))  # one cancellation may be swallowed, and nobody would come again
            self._aborts.add(abort)
            abort.add_done_callback(self._aborts.discard)

    def lose_seat(self, why: SeatLost) -> None:
        """Touch nothing of the instance any more. If there is none, what runs here counts no more either."""
        self._lost = why
        self.seat_lost.set()
        if isinstance(why, Unregistered):
            self.hurry()

    def check(self) -> None:
        """Raise SeatLost if it is."""
        if self._lost is not None:
            raise self._lost

    @property
    def draining(self) -> bool:
        """Whether it has been told to stop claiming."""
        return self._draining

    def stop_claiming(self, grace_s: float) -> None:
        """Let claim_loop end, at once. From now on a store that is away has grace_s to come back."""
        self._draining = True
        self._patience_ends = min(self._patience_ends, clock.monotonic_s() + grace_s)
        self._room_changed.set()

    def hurry(self) -> None:
        """Cut the grace short: what runs is given back now, or left to its lease if the store is away."""
        self._patience_ends = clock.monotonic_s()
        self._hurried.set()

    async def close(self) -> None:
        """Stop waiting for the queue and for the engine."""
        await end(*self._running.values(), *([self._waiter] if self._waiter else []))

    async def drain(self, grace_s: float) -> None:
        """After claim_loop has ended: send the queue elsewhere, finish what runs or, after grace_s, give it back.

        Raises StoreUnavailable when the store stays away: what is held here is taken over when its leases end.
        """
        await self._evacuate("draining")
        await self._let_finish(grace_s)
        await self._give_back()
        await self._evacuate("draining")  # whatever a coordinator pushed before it saw the new status

    async def abandon(self) -> None:
        """Stop all that runs under a seat that is gone, and give back what the store may still know of."""
        self.stop_claiming(0.0)
        with suppress(StoreUnavailable):
            await self._give_back()

    async def _give_back(self) -> None:
        assert self._leases is not None
        held = list(self._leases.held().items())
        await end(*self._running.values())
        await self._hand_in()
        await self._give_up(held, "ended" if self._ended_at_work else "")

    async def _let_finish(self, grace_s: float) -> None:
        finished = asyncio.gather(*self._running.values(), return_exceptions=True)
        hurried = asyncio.create_task(_changed(self._hurried))
        either: set[asyncio.Future[Any]] = {finished, hurried}
        await asyncio.wait(either, timeout=grace_s, return_when=asyncio.FIRST_COMPLETED)
        await end(hurried)

    async def _evacuate(self, status: str) -> None:
        seat = self._seat
        await self._patiently(lambda: self._cell.instances.evacuate(seat.instance, status, seat.epoch), status)

    async def _patiently(self, call: Callable[[], Awaitable[T]], name: str) -> T:
        return await patiently(call, name, lambda: clock.monotonic_s() >= self._patience_ends)


async def run_until(runner: Runner, stop: asyncio.Event, grace_s: float) -> None:
    """Run until `stop` or the engine's end, then drain. Raises SeatLost, StoreUnavailable."""
    claiming = asyncio.create_task(runner.claim_loop())
    handing_in = asyncio.create_task(runner.hand_in_loop())
    watching = asyncio.create_task(runner.health_loop())
    breaking = asyncio.create_task(runner.breaker.run())
    publishing = asyncio.create_task(runner.publisher.run())
    stopping = asyncio.create_task(_changed(stop))
    losing = asyncio.create_task(_changed(runner.seat_lost))
    ends = {claiming, handing_in, watching, breaking, stopping, losing}
    try:
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        if watching.done():
            log.error("the engine has ended: what it had goes elsewhere, and this worker ends")
        for loop in (claiming, handing_in, breaking):
            if loop.done():
                await loop
        runner.check()
        runner.stop_claiming(grace_s)
        await claiming
        await runner.drain(0.0 if watching.done() else grace_s)
    except SeatLost:
        await runner.abandon()
        raise
    finally:
        await end(*ends, publishing)
        await runner.close()


async def _changed(event: asyncio.Event) -> bool:
    return await event.wait()
