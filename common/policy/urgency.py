"""In which order a queue is served: one interface, `Order`, and the rules that implement it. No queue, no clock."""

from dataclasses import dataclass
from typing import Protocol


class Order(Protocol):
    """Gives a request its place. Smaller keys run first: key = time it was enqueued + offset."""

    def offset_s(self, budget_s: float, exec_s: float) -> float:
        """What is added to the time of enqueueing, in s.

        budget_s: the request's SLO budget; exec_s: its execution time on the instance whose queue it is.
        """


@dataclass(frozen=True, slots=True)
class Fcfs:
    """First come, first served."""

    def offset_s(self, budget_s: float, exec_s: float) -> float:
        return 0.0


@dataclass(frozen=True, slots=True)
class LatestStart:
    """Most urgent first (arXiv 2505.05286).

    Urgency U = t_exec - (budget - waited) grows at the same pace for all that wait, so its order is that of the latest
    start, enqueued + budget - t_exec, which is computed once.
    """

    def offset_s(self, budget_s: float, exec_s: float) -> float:
        return budget_s - exec_s
