"""Ending asyncio tasks for certain."""

import asyncio
from typing import Any

AGAIN_S = 0.2


async def end(*tasks: "asyncio.Task[Any]") -> None:
    """Cancel tasks and wait until each has ended, however it ends.

    One cancellation is not enough: `asyncio.wait_for` of Python 3.11, with which the Redis client sends, swallows one
    that comes just as its work is done, and the task then waits for a reply that may never come.
    """
    pending = set(tasks)
    while pending:
        for task in pending:
            task.cancel()
        _, pending = await asyncio.wait(pending, timeout=AGAIN_S)
    for task in tasks:
        if not task.cancelled():
            task.exception()  # seen: no "never retrieved" warning for what its owner does not await
