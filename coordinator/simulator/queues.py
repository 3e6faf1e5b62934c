"""The loop's own structures over plain arrays: a queue in order of its keys, and a heap of timers."""

from typing import Any

from numpy.typing import NDArray

Floats = NDArray[Any]
Ints = NDArray[Any]


def push(keys: Floats, ids: Ints, count: int, key: float, q: int) -> None:
    """Put into a queue of `count`, behind those of an equal key."""
    at = count
    while at > 0 and keys[at - 1] > key:
        keys[at], ids[at] = keys[at - 1], ids[at - 1]
        at -= 1
    keys[at], ids[at] = key, q


def take(keys: Floats, ids: Ints, count: int, at: int) -> int:
    """Take out of a queue of `count`."""
    q = int(ids[at])
    for i in range(at, count - 1):
        keys[i], ids[i] = keys[i + 1], ids[i + 1]
    return q


def set_timer(times: Floats, ids: Ints, count: int, time: float, q: int) -> None:
    """Put into a heap of `count`."""
    at = count
    while at > 0 and times[(at - 1) // 2] > time:
        times[at], ids[at] = times[(at - 1) // 2], ids[(at - 1) // 2]
        at = (at - 1) // 2
    times[at], ids[at] = time, q


def next_timer(times: Floats, ids: Ints, count: int) -> int:
    """Take the first out of a heap of `count`."""
    q = int(ids[0])
    time, last = times[count - 1], ids[count - 1]
    at, child = 0, 1
    while child < count - 1:
        if child + 1 < count - 1 and times[child + 1] < times[child]:
            child += 1
        if times[child] >= time:
            break
        times[at], ids[at] = times[child], ids[child]
        at, child = child, 2 * child + 1
    times[at], ids[at] = time, last
    return q
