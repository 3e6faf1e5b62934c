"""Which instance a request is bound to when it becomes ready: `choose`, the first of a policy's two decisions.

Plain functions over records (`common.policy.candidate`, which has the numbers of an instance that any policy looks
at): the simulator compiles them. Policies that bind late plan a whole line instead, see `common.policy.line`.
"""

import math

from common.enginerecords import NONE, Table
from common.policy.candidate import Candidate
from common.policy.cost import exec_s
from common.policy.line import InLine, step_s
from common.policy.rules import LEAST_WAIT, LEAST_WORK, ROUND_ROBIN, SCORE, TWO_CHOICES, Rules


def choose(
    rules: Rules, c: InLine, candidates: Table[Candidate], eligible: Table[int], count: int, turn: int,
    dice: tuple[float, float],
) -> int:  # fmt: skip
    """Position among the candidates, or NONE if those asked refuse.

    eligible: the positions of the `count` (at least one) that can serve the call; turn: how many dispatches came
    before, for rotations and ties; dice: two numbers in [0, 1) for rules that leave something to chance.
    """
    if rules.dispatch == ROUND_ROBIN:
        return eligible[turn % count]
    if rules.dispatch == TWO_CHOICES:
        return _two_choices(rules, candidates, eligible, count, dice)
    best, least = NONE, math.inf
    for step in range(count):
        m = eligible[(turn + step) % count]
        cost = _cost(rules, candidates[m], c)
        if cost < least:
            best, least = m, cost
    return best


def _two_choices(
    rules: Rules, candidates: Table[Candidate], eligible: Table[int], count: int, dice: tuple[float, float]
) -> int:
    """Of two random instances the one with fewer requests, unless both have as many as they take at a time."""
    first = int(dice[0] * count)
    second = (first + 1 + int(dice[1] * (count - 1))) % count
    m = eligible[first]
    if ongoing(candidates[eligible[second]]) < ongoing(candidates[m]):
        m = eligible[second]
    return NONE if 0 < rules.most_ongoing <= ongoing(candidates[m]) else m


def ongoing(k: Candidate) -> int:
    """Requests that an instance has, running or bound to it."""
    return k.running + k.queued


def _cost(rules: Rules, k: Candidate, c: InLine) -> float:
    """What is wanted least.

    The paper's score, argmax of (1 - alpha) beta / t_queue - alpha t_exec, has one free number: r = beta (1 - alpha) /
    alpha in s^2 (arXiv 2505.05286).
    """
    own = exec_s(k, c.prompt_tokens, c.expected_tokens)
    cost = math.inf
    if rules.dispatch == SCORE:
        cost = own - rules.r / (max(k.backlog_s, 0.0) + rules.floor_s)
    elif rules.dispatch == LEAST_WORK:
        cost = max(k.backlog_s, 0.0) + own
    elif rules.dispatch == LEAST_WAIT:
        cost = wait_s(k) + own
    return cost


def wait_s(k: Candidate) -> float:
    """QLM's expected wait in a queue: the answers' tokens in it over the tokens per second that the batch makes."""
    return k.queued_tokens * step_s(k, 0.0) / max(k.running, 1)
