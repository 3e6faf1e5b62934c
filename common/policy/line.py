"""One line: ready calls wait unbound, and a plan gives each the instance where it costs least (policy `flow`).

Plain functions over records, which the simulator compiles: `k` is an instance as a decision sees it, `c` a call in the
line. Seconds and tokens everywhere. Knows no queue, no clock, no engine.

The plan is made anew at each event: the calls in turn, most urgent first, each after what was planned before it. A call
whose place is free starts there; any other only keeps its place in the plan, so that those behind it go around it.
"""

import math
from typing import Protocol

from common.enginerecords import NONE, Table
from common.policy.candidate import Candidate
from common.policy.cost import prefill_s
from common.policy.rules import Weights

LEAST_LEFT = 0.15
"""Share of its expected answer that a running call is always taken to have before it."""
MOST_WEIGHT = 8.0
AHEAD = 64
"""So many calls of the line are planned; those behind would not start anyway."""


class InLine(Protocol):
    """A call in the line, or one that runs. expected_tokens of its answer; weight: see `urgency_weight`."""

    @property
    def prompt_tokens(self) -> int: ...
    @property
    def expected_tokens(self) -> float: ...
    @property
    def weight(self) -> float: ...


def lateness(now: float, key: float, slo_s: float) -> float:
    """How late a call is, in thirds of its workflow's SLO (of which three make a workflow's usual SLO)."""
    return 3.0 * (now - key) / slo_s


def urgency_weight(late: float, mean: float, weights: Weights) -> float:
    """What a second of a call counts; mean: the mean lateness of all that run and wait."""
    found = math.exp(min(max(weights.urgency * (late - mean), -10.0), 10.0))
    return min(max(found, 1.0 / MOST_WEIGHT), MOST_WEIGHT)


def step_s(k: Candidate, more_kv: float) -> float:
    """Time between two tokens of a call that adds so much KV."""
    return max(k.overhead_s + k.weights_s + k.kv_s_per_token * (k.kv_tokens + more_kv), k.token_s)


def held_kv_time(k: Candidate, prompt: float, generated: float, unprefilled: float, expected: float) -> float:
    """KV tokens times seconds that a call will still hold on an instance."""
    left = max(expected - generated, LEAST_LEFT * expected)
    return (prompt + generated) * (unprefilled / k.prefill_tokens_per_s + left * step_s(k, 0.0))


def cost_s(k: Candidate, c: InLine, cached: float, weights: Weights) -> float:
    """Time to the end of a call if it goes there, and the delay it puts on others, weighted by their urgency over its.

    wait = w P / R; P: unprefilled and planned prompt tokens. At least the time until there is KV room: if the call does
    not fit, until those that run have freed what is missing, their ends taken to be spread evenly from now on (they
    hold their KV for kv_time / kv_tokens in the mean); if others are planned there, until all have had their time in
    the room. Delay of each other: the prefill, and an answer's worth of longer iterations.
    """
    rate, prompt, expected = k.prefill_tokens_per_s, c.prompt_tokens, c.expected_tokens
    wait = weights.wait * (k.unprefilled_tokens + k.planned_tokens) / rate
    over = k.kv_tokens + prompt - k.admit_tokens
    if over > 0 and k.running > 0:
        wait = max(wait, 2.0 * k.kv_time * over / k.kv_tokens**2 + k.planned_kv_time / k.kv_room)
    elif k.planned > 0:
        wait = max(wait, (k.kv_time + k.planned_kv_time) / k.kv_room)
    own = prefill_s(rate, prompt, cached) + weights.decode * expected * step_s(k, prompt)
    slower = weights.harm_decode * expected * (k.kv_s_per_token * prompt + 2.0 / rate)
    harm = (prompt - cached) / rate + slower
    return wait + own + weights.harm * (k.weight + 2.0) / c.weight * harm


def is_open(k: Candidate) -> bool:
    """Whether an instance starts anything: less than a chunk to prefill, and a free slot."""
    return k.unprefilled_tokens < k.chunk and k.running < k.max_sequences


def fits(k: Candidate, prompt: int) -> bool:
    """Whether there is KV room; the only call always has."""
    return k.running == 0 or k.kv_tokens + prompt <= k.admit_tokens


def begin_there(k: Candidate, c: InLine, cached: int) -> None:
    """The call starts there."""
    k.kv_time += held_kv_time(k, c.prompt_tokens, 0.0, c.prompt_tokens - cached, c.expected_tokens)
    k.running += 1
    k.kv_tokens += c.prompt_tokens
    k.unprefilled_tokens += c.prompt_tokens - cached
    k.weight += c.weight


def keep_place(k: Candidate, c: InLine, cached: int) -> None:
    """The call will go there later."""
    k.planned += 1
    k.planned_tokens += c.prompt_tokens - cached
    k.planned_kv_time += held_kv_time(k, c.prompt_tokens, 0.0, c.prompt_tokens, c.expected_tokens)


def cheapest(candidates: Table[Candidate], c: InLine, cached: Table[int], count: int, weights: Weights) -> int:
    """The instance where a call costs least; NONE if none can serve it, which `cached` tells by a negative number."""
    best, least = NONE, math.inf
    for m in range(count):
        if cached[m] >= 0:
            cost = cost_s(candidates[m], c, cached[m], weights)
            if cost < least:
                best, least = m, cost
    return best


def plan(
    line: Table[InLine], ids: Table[int], length: int, candidates: Table[Candidate], count: int,
    cached: Table[Table[int]], weights: Weights, targets: list[int],
) -> None:  # fmt: skip
    """Writes for each of the first `length` calls of a line where it starts now, or NONE.

    line[ids[at]] are the calls; candidates: `count` instances, which take on what is planned; cached[at][m]: tokens of
    the call's prompt that instance m has in its prefix cache, negative if it cannot serve the call.
    """
    open_ones = 0
    for m in range(count):
        open_ones += is_open(candidates[m])
    for at in range(length):
        targets[at] = NONE
        if open_ones == 0:
            continue
        c = line[ids[at]]
        m = cheapest(candidates, c, cached[at], count, weights)
        if m == NONE:
            continue
        k = candidates[m]
        if k.planned == 0 and is_open(k) and fits(k, c.prompt_tokens):
            begin_there(k, c, cached[at][m])
            targets[at] = m
            open_ones -= not is_open(k)
        else:
            keep_place(k, c, cached[at][m])
