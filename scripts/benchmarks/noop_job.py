"""The no-op job that every peer's worker runs, and how its end leads to the next job of its chain.

`job`: the job itself enqueues its successor. `driver`: it pushes a note, and the driver (see `drive`) enqueues it, as
an orchestrator outside the library would. Both are measured. Must not know any peer.
"""

import json
import os
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

from redis import Redis

from common.clock import monotonic_s

URL = os.environ["BENCH_URL"]
NOTES = "bench:notes"
_ENQUEUES_ITSELF = os.environ["BENCH_SUCCESSOR"] == "job"

connection = Redis.from_url(URL, socket_timeout=None)
_gaps_s: dict[int, list[float | None]] = defaultdict(list)
_lock = threading.Lock()


@contextmanager
def ending(chain: int, step: int, length: int) -> Iterator[bool]:
    """The body of a job, which has nothing to do: entering is its completion. True: enqueue the successor inside."""
    completed_at = monotonic_s()
    last = step == length - 1
    yield _ENQUEUES_ITSELF and not last
    if not _ENQUEUES_ITSELF:
        _tell(chain, step, completed_at, [])
        return
    gaps_s = _whole(chain, None if last else monotonic_s() - completed_at, length)
    if gaps_s is not None:
        _tell(chain, length - 1, completed_at, gaps_s)


def _whole(chain: int, gap_s: float | None, length: int) -> list[float] | None:
    """A chain's gaps once all its jobs have come by: among threads, the last may be earlier than the one before."""
    with _lock:
        _gaps_s[chain].append(gap_s)
        if len(_gaps_s[chain]) < length:
            return None
        return [gap for gap in _gaps_s.pop(chain) if gap is not None]


def _tell(chain: int, step: int, completed_at: float, gaps_s: list[float]) -> None:
    connection.rpush(NOTES, json.dumps([chain, step, completed_at, gaps_s]))
