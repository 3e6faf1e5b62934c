"""What work on a value costs, in steps of about 0.1 us, and which operands are too much. Knows nothing of Jinja2."""

from typing import Any

from coordinator.language.filters import FilterError, bounded

EFFORT = 1_000_000

_LONGEST_INT_BITS = 1024
_LARGEST_EXPONENT = 64
_CHARACTERS_PER_STEP = 64
_CHARACTERS_PER_NODE = 8
_NODES_PER_STEP = 2


class Names(dict[str, Any]):
    """The names that renderings see; each adds here what effort it took."""

    spent = 0


def check_operands(operator: str, left: Any, right: Any) -> None:
    """Refuses operands of + * ** % whose result could be vast. Raises FilterError."""
    numbers = isinstance(left, int | float) and isinstance(right, int | float)
    if operator == "**" and numbers and abs(right) > _LARGEST_EXPONENT:
        raise FilterError(f"an exponent is at most {_LARGEST_EXPONENT}")
    if operator == "%" and not numbers:
        raise FilterError("% takes numbers only; put texts together with ~")
    if max(_bits(left), _bits(right)) > _LONGEST_INT_BITS:
        raise FilterError("the number is too large")
    if operator == "+" and not numbers:
        bounded(_length(left) + _length(right))
    if operator == "*" and not numbers:
        count = right if isinstance(right, int) else left
        bounded(max(_length(left), _length(right)) * (count if isinstance(count, int) else 1))


def _length(value: Any) -> int:
    return len(value) if isinstance(value, str | list | tuple | dict) else 1


def steps(value: Any) -> int:
    """How much work a pass over a value is."""
    if isinstance(value, str):
        return len(value) // _CHARACTERS_PER_STEP
    return _length(value)


def build_steps(value: Any) -> int:
    """How much work a walk through a container and all in it is: sharing parts can make a small one vast."""
    count, waiting = 0, [value] if isinstance(value, list | tuple | dict) else []
    while waiting and count < _NODES_PER_STEP * EFFORT:
        part = waiting.pop()
        count += 1
        if isinstance(part, list | tuple):
            waiting.extend(part)
        elif isinstance(part, dict):
            waiting.extend(part.values())
    return count // _NODES_PER_STEP


def compare_steps(value: Any) -> int:
    """How much work it is to compare a value with one like it, or to look through it."""
    size, waiting = 0, [value]
    while waiting and size < _CHARACTERS_PER_STEP * EFFORT:
        part = waiting.pop()
        size += _CHARACTERS_PER_NODE + (len(part) if isinstance(part, str) else 0)
        if isinstance(part, list | tuple):
            waiting.extend(part)
        elif isinstance(part, dict):
            waiting.extend(part.values())
    return size // _CHARACTERS_PER_STEP


def _bits(value: Any) -> int:
    return value.bit_length() if isinstance(value, int) else 0
