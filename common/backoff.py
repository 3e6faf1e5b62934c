"""Keeping a loop alive over trouble with the store: back off with jitter, log once per change of state."""

import logging
import secrets
from collections.abc import Awaitable, Callable
from typing import TypeVar

from common import clock
from common.errors import HexgenError, StoreUnavailable, Superseded

LONGEST_PAUSE_S = 2.0
log = logging.getLogger("hexgen.loop")


async def keep(name: str, turn: Callable[[], Awaitable[None]], on_good: Callable[[str], None] = lambda _: None) -> None:
    """Run `turn` again and again until it is cancelled or another incarnation has taken over; tell of each good one.

    While the store is away, turns are tried at growing, jittered pauses. Any other error is logged with its traceback,
    and the loop goes on: one bad entry must not stop the rest.
    """
    failures = 0
    while True:
        try:
            await turn()
            on_good(name)
            if failures:
                log.info("%s: back after %d failed turns", name, failures)
            failures = 0
        except Superseded:
            raise
        except HexgenError as error:
            failures += 1
            if failures == 1:
                log.warning("%s: %s; trying again", name, error)
        except Exception:
            failures += 1
            log.exception("%s: unexpected error; going on", name)
        if failures:
            await clock.sleep(pause_s(failures))


def pause_s(failures: int) -> float:
    """Seconds to wait after so many failures in a row: doubling from 50 ms, up to 2 s, half of it random."""
    longest = min(LONGEST_PAUSE_S, 0.05 * 2.0 ** min(failures, 10))
    return longest * (0.5 + secrets.randbelow(1000) / 2000)


T = TypeVar("T")


async def patiently(call: Callable[[], Awaitable[T]], name: str, give_up: Callable[[], bool] = lambda: False) -> T:
    """The call's result, tried again while the store is away, until give_up() says so. Other errors pass."""
    failures = 0
    while True:
        try:
            result = await call()
            if failures:
                log.info("%s: back after %d failed tries", name, failures)
            return result
        except StoreUnavailable as error:
            if give_up():
                raise
            failures += 1
            if failures == 1:
                log.warning("%s: %s; trying again", name, error)
            await clock.sleep(pause_s(failures))
