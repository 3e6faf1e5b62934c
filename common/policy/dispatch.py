"""Which instance gets a request: one interface, `Dispatch`, and the rules that implement it. No queue, no clock."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


class Dispatch(Protocol):
    """Chooses among the eligible instances."""

    def choose(self, exec_s: Sequence[float], backlog_s: Sequence[float], turn: int) -> int:
        """Position of the chosen instance.

        exec_s: the request's execution time on each, in s; backlog_s: outstanding work of each, in s; turn: how many
        dispatches came before, for rotations and ties. At least one instance is given.
        """


@dataclass(frozen=True, slots=True)
class RoundRobin:
    """Each in turn, whatever its speed and load."""

    def choose(self, exec_s: Sequence[float], backlog_s: Sequence[float], turn: int) -> int:
        return turn % len(exec_s)


@dataclass(frozen=True, slots=True)
class Score:
    """The paper's score: argmax of (1 - alpha) * beta / t_queue - alpha * t_exec (arXiv 2505.05286).

    beta in s^2. t_queue = outstanding work + floor_s, since the score diverges on an idle instance; ties by rotation.
    alpha = 1 looks at execution time alone, alpha = 0 at the queue alone.
    """

    alpha: float = 0.5
    beta: float = 100.0
    floor_s: float = 1.0

    def choose(self, exec_s: Sequence[float], backlog_s: Sequence[float], turn: int) -> int:
        count = len(exec_s)
        pull, push = (1.0 - self.alpha) * self.beta, self.alpha
        best, best_score = 0, float("-inf")
        for step in range(count):
            i = (turn + step) % count
            score = pull / (backlog_s[i] + self.floor_s) - push * exec_s[i]
            if score > best_score:
                best, best_score = i, score
        return best
