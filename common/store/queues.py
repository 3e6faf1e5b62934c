"""What workers do with their queue, and what the recoverer does for those that cannot: leases, tokens, re-routing."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from common import wire
from common.errors import AttemptFailed, BadRecord, Superseded, Unregistered
from common.events import Outcome
from common.model import TOOLS, Claim
from common.policy.fairness import price
from common.store.client import BLOCK_S, Client, translated
from common.store.keys import Keys
from common.store.scripts import Call, Scripts, call_id

log = logging.getLogger("hexgen.store")
_SEAT_LOST: dict[bytes, type[Superseded | Unregistered]] = {b"epoch": Superseded, b"gone": Unregistered}


@dataclass(frozen=True, slots=True)
class Room:
    """What may start now: requests, prompt tokens that may still be queued in the engine, free KV tokens.

    empty: nothing runs, so the first request is taken whatever its length; the engine will say if it cannot take it.
    Only then one is taken that must run alone.
    """

    requests: int
    prefill_tokens: int
    kv_tokens: int
    empty: bool = False

    @property
    def is_open(self) -> bool:
        return self.requests > 0 and self.prefill_tokens > 0


@dataclass(frozen=True, slots=True)
class Seat:
    """Who claims: an instance under its epoch (None for tools, which keep none), by one process."""

    instance: str
    epoch: int | None
    claimant: str

    @property
    def epoch_text(self) -> str:
        return "" if self.epoch is None else str(self.epoch)


class Loss(NamedTuple):
    """A lease that ended, of a request of a workflow's node; `losses` counts those the request has had.

    engine: what became of its claimant's engine ("stalled", "ended"), if it was that; empty where nobody renewed it.
    """

    request: str
    workflow: str
    node: str
    claimant: str
    losses: int
    engine: str


class Queues:
    """The workers' side of the store."""

    def __init__(self, client: Client, blocking: Client, keys: Keys) -> None:
        self._client = client
        self._blocking = blocking
        self._keys = keys
        self._scripts = Scripts(client, keys.prefix)

    async def claim(self, seat: Seat, call: str, lease_ms: int, room: Room) -> list[Claim]:
        """The most urgent requests that fit the room, under lease; a tool's call id is a ticket. Raises SeatLost."""
        return (await self.claim_and_look(seat, call, lease_ms, room))[0]

    async def claim_and_look(self, seat: Seat, call: str, lease_ms: int, room: Room) -> tuple[list[Claim], int]:
        """As `claim`, and how many requests are still queued."""
        reply = await self._scripts.run(
            "claim", seat.instance, seat.epoch_text, seat.claimant, call, lease_ms,
            room.requests, room.prefill_tokens, room.kv_tokens, int(room.empty),
        )  # fmt: skip
        _check_seat(seat, reply[0])
        now, flat, left = reply[1:]
        found = [_claim(flat[i], flat[i + 1], flat[i + 2], now) for i in range(0, len(flat), 3)]
        return [claim for claim in found if claim is not None], left

    async def wait(self, instance: str) -> bool:
        """Sleep until something is pushed to the queue, at most BLOCK_S. True when woken."""
        with translated():
            return bool(await self._blocking.bzpopmin(self._keys.wake(instance), timeout=BLOCK_S))

    async def renew(self, seat: Seat, lease_ms: int, held: Sequence[tuple[str, int]]) -> tuple[str, list[str]]:
        """Keep these (request, token) leases; (status of the instance, requests no longer held). Raises SeatLost."""
        pairs = [part for pair in held for part in pair]
        reply = await self._scripts.run("renew", seat.instance, seat.epoch_text, lease_ms, *pairs)
        _check_seat(seat, reply[0])
        return reply[1].decode(), [request.decode() for request in reply[2]]

    async def finish(self, ended: Sequence[tuple[str, int, Outcome | AttemptFailed]]) -> list[bool]:
        """Hand in (request, token, outcome or failure); False where that has no effect.

        The lease was lost, or it was handed in before and only the reply was lost, or the record cannot be read (which
        is logged); nothing was written then.
        """
        calls = []
        for request, token, outcome in ended:
            if isinstance(outcome, Outcome):
                calls.append(Call("complete", (request, token, wire.pack_outcome(outcome), _cost(outcome))))
            else:
                reason = wire.pack_failure(str(outcome), outcome.retryable, outcome.prompt_tokens)
                calls.append(Call("fail", (request, token, reason)))
        return await self._counted(calls)

    async def release(self, held: Sequence[tuple[str, int]]) -> None:
        """Give claimed requests back, to be routed anew; a bad record keeps none of the others."""
        await self._counted([Call("release", pair) for pair in held])

    async def forfeit(self, held: Sequence[tuple[str, int]], engine: str) -> None:
        """The engine is lost under claimed requests, `engine` says how (see Loss): each has a loss, and is given back.

        Coordinators do that, as with leases that ran out.
        """
        await self._counted([Call("forfeit", (*pair, engine)) for pair in held])

    async def _counted(self, calls: Sequence[Call]) -> list[bool]:
        replies = await self._scripts.try_many(calls)
        for call, reply in zip(calls, replies, strict=True):
            if isinstance(reply, BadRecord):
                log.warning("request %s: %s cannot take effect: %s", call.args[0], call.script, reply)
            elif reply == -1:
                log.warning("request %s ends: its record does not tell whose it is", call.args[0])
        return [reply == 1 for reply in replies]

    async def emit_tokens(self, claim: Claim, text: str) -> None:
        """Tell the workflow's watchers a piece of the answer. A later attempt has a larger number and begins anew."""
        data = wire.dump({"stage": claim.node, "attempt": claim.token, "text": text}, claim.encoding)
        with translated():
            await self._client.xadd(
                self._keys.events(claim.workflow), {"type": "token", claim.encoding: data},
                maxlen=10_000, approximate=True, nomkstream=True,
            )  # fmt: skip

    async def reap(self, lease_ms: int, losses: int, most: int = 100) -> list[Loss] | None:
        """End leases that nobody renewed or that were forfeited, the oldest `most`.

        With so many `losses` a request is a dead letter. Nothing is left when that was none. None while a server that
        has (re)started or taken over gives time to come back.
        """
        word, *lost = await self._scripts.run("reap", lease_ms, losses, most)
        if word == b"grace":
            return None
        flat: list[Any] = [value.decode("utf-8", "replace") if isinstance(value, bytes) else value for value in lost[0]]
        size = len(Loss._fields)
        return [Loss(*flat[i : i + size]) for i in range(0, len(flat), size)]

    async def promote(self, most: int = 100) -> int:
        """Wake delayed nodes that are due, the oldest `most`; how many that were."""
        return int(await self._scripts.run("promote", most))

    async def has_to_relay(self) -> bool:
        """Whether tool requests wait or tickets are out: only then it matters what RQ has."""
        with translated():
            return bool(await self._client.exists(self._keys.queue(TOOLS), self._keys.relayed))

    async def to_relay(self, jobs: int, lost_ms: int, most: int = 100) -> list[str]:
        """New tickets, to be written to RQ now, whose queue has so many jobs. A claim of that call id uses one up."""
        return [ticket.decode() for ticket in await self._scripts.run("relay", call_id(), jobs, lost_ms, most)]

    async def wait_tools(self) -> bool:
        """Sleep until a tool request is pushed, at most BLOCK_S."""
        return await self.wait(TOOLS)


def _claim(name: bytes, token: Any, fields: Sequence[bytes | None], now: int) -> Claim | None:
    """None, and logged, where it cannot be read: its lease will run out, and with enough losses its workflow fails."""
    request = name.decode()
    try:
        payload, enqueued_at, deadline_at, prefix, *figures = fields
        times = (int(enqueued_at or b""), int(deadline_at or b""), now)
        prompt, expected, slo, key, alone = (int(float(figure or 0)) for figure in figures)
        return wire.unpack_claim(
            request, int(token), payload or b"", times, prefix or b"", (prompt, expected, slo, key), bool(alone)
        )
    except Exception as error:  # whatever bytes can lead to
        log.warning("request %s cannot be read and is left to its lease: %s: %s", request, type(error).__name__, error)
        return None


def _cost(outcome: Outcome) -> int | str:
    """What its tenant has had, in tokens; nothing where the engine does not say."""
    usage = outcome.usage
    return round(price(usage.prompt_tokens, usage.output_tokens, 1.0)) if usage.prompt_tokens else ""


def _check_seat(seat: Seat, word: bytes) -> None:
    """Raises SeatLost unless an operation has taken the seat for what it was."""
    if word in _SEAT_LOST:
        raise _SEAT_LOST[word](seat.instance)
