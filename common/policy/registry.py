"""The policies by name: a rule for dispatch and a rule for order. `vllm` and `hexgen` are selectable live."""

from collections.abc import Callable
from dataclasses import dataclass

from common.errors import InvalidDocument
from common.policy.dispatch import Dispatch, RoundRobin, Score
from common.policy.urgency import Fcfs, LatestStart, Order


@dataclass(frozen=True, slots=True)
class Policy:
    """A scheduling policy. `budgets_along_path`: remaining work counts along the critical path, else summed."""

    name: str
    dispatch: Dispatch
    order: Order
    budgets_along_path: bool = False


_POLICIES: dict[str, Callable[[float], Policy]] = {
    "hexgen": lambda alpha: Policy("hexgen", Score(alpha), LatestStart()),
    "vllm": lambda alpha: Policy("vllm", RoundRobin(), Fcfs()),  # noqa: ARG005
}


def names() -> list[str]:
    """All policies."""
    return sorted(_POLICIES)


def policy(name: str, alpha: float = 0.5) -> Policy:
    """The policy of that name. Raises InvalidDocument naming the field."""
    if name not in _POLICIES:
        raise InvalidDocument("policy", f"{name!r} is not one of {', '.join(names())}")
    if not 0.0 <= alpha <= 1.0:
        raise InvalidDocument("alpha", f"{alpha} must be between 0 and 1")
    return _POLICIES[name](alpha)
