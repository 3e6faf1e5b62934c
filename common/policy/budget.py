"""SLO budgets: how much of what is left of a workflow's time a request may use (arXiv 2505.05286)."""

from collections.abc import Sequence


def budget_s(remaining_slo_s: float, exec_s: float, remaining_exec_s: float) -> float:
    """Seconds for a request that takes exec_s, of remaining_slo_s for work of remaining_exec_s (this request included).

    budget = remaining SLO * t(request) / t(all that remains). A late workflow has a negative budget, not clamped: the
    later, the more urgent.
    """
    if remaining_exec_s <= 0.0:
        return remaining_slo_s
    return remaining_slo_s * min(1.0, exec_s / remaining_exec_s)


def expected_rounds(goes_on: float, most: int, done: int = 0) -> float:
    """Rounds still to come of a repeat, at most most - done; goes_on is the chance that a round is followed by another.

    With done = 0 the first round is certain: 1 + p + p^2 ...; else the current one is over or counted elsewhere:
    p + p^2 ... .
    """
    left = most - max(done, 1)
    further = left * 1.0 if goes_on >= 1.0 else goes_on * (1.0 - goes_on**left) / (1.0 - goes_on)
    return further if done else 1.0 + further


def summed(costs: Sequence[float]) -> float:
    """Remaining work as the paper counts it: one stage after the other."""
    return sum(costs)


def critical_path(costs: Sequence[float], needs: Sequence[Sequence[int]]) -> float:
    """The longest path through stages in topological order; needs[i] are the positions that stage i waits for."""
    ends: list[float] = []
    for cost, before in zip(costs, needs, strict=True):
        ends.append(cost + max((ends[i] for i in before), default=0.0))
    return max(ends, default=0.0)
