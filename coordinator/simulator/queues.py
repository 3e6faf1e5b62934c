"""A queue in order of its keys, over plain arrays."""

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
