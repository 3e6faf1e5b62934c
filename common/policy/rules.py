"""A policy is one record, `Rules`: how an instance is chosen, how requests are ordered, and the numbers of both.

Dispatch and order are each one function over plain numbers (`common.policy.dispatch.choose` or, for the line,
`common.policy.line.plan`; `common.policy.urgency.offset_s`), so that the simulator compiles what runs live. A new
policy is a branch in one of them and a row in `common.policy.registry`.
"""

from typing import NamedTuple

ROUND_ROBIN, TWO_CHOICES, SCORE, LEAST_WORK, LEAST_WAIT, LEAST_COST = range(6)
"""How an instance is chosen."""
FCFS, WORKFLOW_FCFS, URGENCY, LAXITY, GROUPS, SERVED, PATH = range(7)
"""How requests are ordered."""


class Weights(NamedTuple):
    """The numbers of the line (`common.policy.line`).

    wait: how much longer prefill takes than by itself, as decoding goes on beside it; decode: of the time between
    tokens as it is now; harm: what a second of delay of others counts; harm_decode: share of that for slower
    iterations; urgency: how fast a call's weight grows with its lateness; path: share of its expected path by which a
    call goes ahead of its deadline.
    """

    wait: float = 1.4
    decode: float = 0.9
    harm: float = 2.0
    harm_decode: float = 0.6
    urgency: float = 1.5
    path: float = 0.5


class Rules(NamedTuple):
    """A scheduling policy.

    late: requests wait in one line for an instance that can start them, else each is bound to one when it is ready.
    budgets_along_path: remaining work counts along the critical path, else summed. r: of the paper's score, in s^2;
    floor_s: added there to outstanding work, as the score diverges on an idle instance.
    most_ongoing: an instance with so many requests refuses (0: none does). fairness: how much a tenant's requests go
    back for what it was served more than others (0: not at all). hopeless_last: what cannot meet its deadline is last.
    """

    dispatch: int
    order: int
    late: bool = False
    budgets_along_path: bool = False
    r: float = 100.0
    floor_s: float = 1.0
    most_ongoing: int = 0
    fairness: float = 0.0
    hopeless_last: bool = False
    weights: Weights = Weights()
