"""The one door to clocks. Deadlines and queue scores are Redis time (`common.store`), never this host's wall clock."""

import asyncio
import time


def monotonic_s() -> float:
    """Seconds that only go forward; for durations on this host."""
    return time.monotonic()


def cpu_s() -> float:
    """Seconds of CPU that this process has used."""
    return time.process_time()


def wall_ms() -> int:
    """This host's wall clock in ms since the epoch; for log lines, ids and offsets, never for scheduling."""
    return time.time_ns() // 1_000_000


async def sleep(seconds: float) -> None:
    """Wait without blocking the loop."""
    await asyncio.sleep(seconds)
