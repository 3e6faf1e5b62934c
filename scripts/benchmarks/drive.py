"""Drives one peer through one run, in a process of its own; prints the figures as JSON.

Arguments: peer, chains, length, payload bytes; environment as in `noop_job`. The clock is the same in all processes of
a host. Must not start or stop anything.
"""

import asyncio
import importlib
import inspect
import json
import sys
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import cast

import noop_job
from chains import WARM_UP, Chains, Figures, Load, prompt

from common.clock import monotonic_s

Enqueue = Callable[[int, int, int, str], Awaitable[None] | None]
NOTES_AT_ONCE = 100


async def run(enqueue: Enqueue, load: Load) -> Figures:
    """Start all chains, enqueue what the notes call for, and time it from the first enqueuing to the last note."""
    chains, payload = Chains(load), prompt(load.payload_bytes)
    to_start = list(range(load.chains))

    async def put(chain: int, step: int) -> None:
        sent = enqueue(chain, step, load.length, payload)
        if inspect.isawaitable(sent):
            await sent

    async def handle(note: bytes) -> None:
        chain, step, completed_at, gaps_s = json.loads(note)
        chains.handed_on(chain, gaps_s)
        if step + 1 < load.length:
            await put(chain, step + 1)
            chains.handed_on(chain, [monotonic_s() - completed_at])
        else:
            chains.ended(chain)

    started_at = monotonic_s()
    while not chains.over:
        if to_start:
            await put(to_start.pop(), 0)
        await asyncio.gather(*(handle(note) for note in notes(wait=not to_start)))
    return chains.figures(monotonic_s() - started_at)


def notes(*, wait: bool) -> list[bytes]:
    """What jobs have told since; waits for the first if asked to."""
    found = cast("list[bytes] | None", noop_job.connection.lpop(noop_job.NOTES, NOTES_AT_ONCE))
    if found or not wait:
        return found or []
    return [cast("tuple[bytes, bytes]", noop_job.connection.blpop([noop_job.NOTES]))[1]]


async def main(peer: str, load: Load) -> Figures:
    enqueue = importlib.import_module(f"peers.{peer}_peer").enqueue
    await run(enqueue, WARM_UP)
    return await run(enqueue, load)


if __name__ == "__main__":
    print(json.dumps(asdict(asyncio.run(main(sys.argv[1], Load(*map(int, sys.argv[2:])))))))
