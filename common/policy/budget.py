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


def further_rounds(goes_on: Sequence[float]) -> list[float]:
    """How many rounds of a repeat are expected after each; goes_on[r] is the chance that round r is not the last."""
    further: list[float] = []
    for chance in reversed(goes_on):
        further.append(chance * (1.0 + further[-1] if further else 1.0))
    return further[::-1]


def summed(costs: Sequence[float]) -> float:
    """Remaining work as the paper counts it: one stage after the other."""
    return sum(costs)


def critical_path(costs: Sequence[float], needs: Sequence[Sequence[int]]) -> float:
    """The longest path through stages in topological order; needs[i] are the positions that stage i waits for."""
    ends: list[float] = []
    for cost, before in zip(costs, needs, strict=True):
        ends.append(cost + max((ends[i] for i in before), default=0.0))
    return max(ends, default=0.0)
