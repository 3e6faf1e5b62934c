"""The event loop: arrivals, completions and timers, and between them the policy's decisions. Time is a number here.

Written in plain functions over arrays and records: `coordinator.simulator.compiled` compiles them where numba is there.
"""

import math
from heapq import heappop, heappush
from typing import Any, NamedTuple

from common import enginebatch, enginemodel
from common.enginerecords import NONE
from common.policy.cost import exec_s
from common.policy.finish import STEAL_BELOW, cached_tokens, finish_cost, steal_cost, step_s
from coordinator.simulator.queues import push, take

ROUND_ROBIN, TWO_CHOICES, SCORE, LEAST_WORK, FINISH_TIME = range(5)
FCFS, WORKFLOW_FCFS, URGENCY, LATEST_START = range(4)
DEPTH = 8
"""So many heads of each other queue an instance looks at when it steals."""
REMEMBERED_S = 20.0
Timers = list[tuple[float, int]]
"""A heap of (time, call that is ready or a tool call that ends). Its last stands for no timer at all."""


class Rules(NamedTuple):
    """A policy for the loop. r in s^2: beta (1 - alpha) / alpha; hop_s: from a completion to the next call."""

    dispatch: int
    order: int
    steals: bool
    r: float = 100.0
    hop_s: float = 0.005


class World(NamedTuple):
    """All there is, as arrays. engines, calls ...: see `coordinator.simulator.records`."""

    engines: Any
    calls: Any
    workflows: Any
    blocks: Any
    caches: Any
    children: Any
    roots: Any
    keys: Any
    ids: Any
    dice: Any
    finished: Any


def run(world: World, rules: Rules) -> float:
    """Run until every workflow has ended; the time of the last event, in s."""
    engines, workflows = world.engines, world.workflows
    now, arrived, left, turn, root = 0.0, 0, len(workflows), 0, 0
    timers = [(math.inf, NONE)]
    while left > 0:
        now = workflows[arrived].arrival if arrived < len(workflows) else math.inf
        what = -1
        if timers[0][0] <= now:
            now, what = timers[0][0], -2
        for m in range(len(engines)):
            if engines[m].ends_at <= now:
                now, what = engines[m].ends_at, m
        if what == -1:
            while root < len(world.roots) and world.calls[world.roots[root]].workflow == arrived:
                turn = ready(world, rules, world.roots[root], now, turn, timers)
                root += 1
            arrived += 1
        elif what == -2:
            q = heappop(timers)[1]
            if world.calls[q].started_at >= 0.0:  # a tool's end
                left -= complete(world, rules, q, now, timers)
            else:
                turn = ready(world, rules, q, now, turn, timers)
        else:
            left -= stretch_ended(world, rules, what, now, timers)
    return now


def stretch_ended(world: World, rules: Rules, m: int, now: float, timers: Timers) -> int:
    """An engine has run its stretch: what is complete goes on, what fits starts. Returns the workflows ended."""
    e = world.engines[m]
    remember_step(e)
    e.busy_s += e.planned_s
    count = enginemodel.end(e, world.calls, world.blocks, world.caches[m], world.finished)
    e.ends_at = math.inf
    ended = 0
    for at in range(count):
        q = world.finished[at]
        e.backlog_s -= world.calls[q].cost_s
        forget(e, q)
        ended += complete(world, rules, q, now, timers)
    fill(world, rules, m, now)
    if e.iterations == 0:
        go_on(world, m, now)
    return ended


def remember_step(e: Any) -> None:
    """Time between tokens: a moving average weighted by time, which rises at half speed."""
    if e.decoding_count > 0:
        weight = 1.0 - math.exp(-e.planned_s / REMEMBERED_S)
        step = e.planned_s / e.iterations
        if step > e.token_s:
            weight *= 0.5
        e.token_s += weight * (step - e.token_s)


def forget(e: Any, q: int) -> None:
    """A call is no longer among the started ones."""
    at = 0
    while e.started_ids[at] != q:
        at += 1
    e.started -= 1
    e.started_ids[at] = e.started_ids[e.started]


def complete(world: World, rules: Rules, q: int, now: float, timers: Timers) -> int:
    """A call has ended: those that waited for it alone are ready a hop later. Returns the workflows ended."""
    c = world.calls[q]
    c.ended_at = now
    for at in range(c.first_child, c.first_child + c.children):
        child = world.children[at]
        world.calls[child].needs -= 1
        if world.calls[child].needs == 0:
            heappush(timers, (now + rules.hop_s, child))
    workflow = world.workflows[c.workflow]
    workflow.left -= 1
    if workflow.left > 0:
        return 0
    workflow.ended_at = now
    return 1


def ready(world: World, rules: Rules, q: int, now: float, turn: int, timers: Timers) -> int:
    """A call may start: it is dispatched, and whoever has room claims; a tool runs at once. Returns the next turn."""
    c = world.calls[q]
    c.ready_at = now
    if c.tool_s > 0.0:
        c.started_at = now
        heappush(timers, (now + c.tool_s, q))
        return turn
    m = choose(world, rules, q, turn)
    e = world.engines[m]
    c.cost_s = exec_s(e, c.prompt_tokens, c.expected_tokens)
    e.backlog_s += c.cost_s
    push(world.keys[m], world.ids[m], e.queued, key_of(world, rules, c, now), q)
    e.queued += 1
    fill(world, rules, m, now)
    if rules.steals and e.queued > 0:
        for other in range(len(world.engines)):
            if other != m:
                fill(world, rules, other, now)
    return turn + 1


def key_of(world: World, rules: Rules, c: Any, now: float) -> float:
    """A call's place in its queue: the smallest goes first."""
    workflow = world.workflows[c.workflow]
    key: float = workflow.deadline - c.stage_s - c.rest_s
    if rules.order == FCFS:
        key = now
    elif rules.order == WORKFLOW_FCFS:
        key = workflow.arrival
    elif rules.order == URGENCY:
        key = now + (workflow.deadline - now) * c.stage_s / (c.stage_s + c.rest_s) - c.cost_s
    return key


def choose(world: World, rules: Rules, q: int, turn: int) -> int:
    """The instance that gets a call."""
    engines, count = world.engines, len(world.engines)
    if rules.dispatch == ROUND_ROBIN:
        return turn % count
    if rules.dispatch == TWO_CHOICES:
        first = int(world.dice[q, 0] * count)
        second = (first + 1 + int(world.dice[q, 1] * (count - 1))) % count
        one, two = engines[first], engines[second]
        return first if one.queued + one.started <= two.queued + two.started else second
    best, best_cost = 0, math.inf
    for step in range(count):
        m = (turn + step) % count
        cost = cost_on(world, rules, world.calls[q], m)
        if cost < best_cost:
            best, best_cost = m, cost
    return best


def cost_on(world: World, rules: Rules, c: Any, m: int) -> float:
    """What dispatch wants least."""
    e = world.engines[m]
    own = exec_s(e, c.prompt_tokens, c.expected_tokens)
    cost: float
    if rules.dispatch == LEAST_WORK:
        cost = e.backlog_s + own
        return cost
    if rules.dispatch == SCORE:
        cost = own - rules.r / (max(e.backlog_s, 0.0) + 1.0)
        return cost
    tokens, kv_seconds, tau = 0.0, 0.0, step_s(e, 0.0)
    for at in range(e.queued):
        d = world.calls[world.ids[m, at]]
        tokens += d.prompt_tokens
        kv_seconds += d.prompt_tokens * (d.prompt_tokens / e.prefill_tokens_per_s + d.expected_tokens * tau)
    cached = cached_tokens(e, world.blocks, world.caches[m], c)
    return finish_cost(e, world.calls, c, cached, tokens, kv_seconds)


def fill(world: World, rules: Rules, m: int, now: float) -> None:
    """Start what the instance has room for: of its own queue or, if it steals, of others'."""
    e = world.engines[m]
    while e.unprefilled_tokens < e.chunk and e.started < e.max_sequences:
        source, at = head(world, rules, m)
        if source == NONE:
            return
        other = world.engines[source]
        q = take(world.keys[source], world.ids[source], other.queued, at)
        other.queued -= 1
        if source != m:
            c = world.calls[q]
            other.backlog_s -= c.cost_s
            c.cost_s = exec_s(e, c.prompt_tokens, c.expected_tokens)
            e.backlog_s += c.cost_s
        start(world, m, q, now)


def head(world: World, rules: Rules, m: int) -> tuple[int, int]:
    """(queue, place) of the most urgent call that the instance may start; NONE if there is none."""
    e = world.engines[m]
    source, place, key = NONE, 0, math.inf
    if e.queued > 0 and fits(e, world.calls[world.ids[m, 0]]):
        source, key = m, world.keys[m, 0]
    if rules.steals:
        for other in range(len(world.engines)):
            if other != m:
                at = stealable(world, m, other, key)
                if at != NONE:
                    source, place, key = other, at, world.keys[other, at]
    return source, place


def stealable(world: World, m: int, other: int, below: float) -> int:
    """The first call among the heads of another queue, of a smaller key, that would end much sooner here."""
    e, o = world.engines[m], world.engines[other]
    for at in range(min(DEPTH, o.queued)):
        if world.keys[other, at] >= below:
            break
        c = world.calls[world.ids[other, at]]
        if fits(e, c):
            here = steal_cost(e, world.calls, c, cached_tokens(e, world.blocks, world.caches[m], c))
            there = steal_cost(o, world.calls, c, cached_tokens(o, world.blocks, world.caches[other], c))
            if here < STEAL_BELOW * there:
                return at
    return NONE


def fits(e: Any, c: Any) -> bool:
    """Whether there is KV room; the only one always has."""
    return bool(e.started == 0 or e.kv_tokens + e.waiting_tokens + c.prompt_tokens <= e.admit_tokens)


def start(world: World, m: int, q: int, now: float) -> None:
    """Give a call to the engine."""
    e, c = world.engines[m], world.calls[q]
    c.started_at, c.instance = now, m
    e.started_ids[e.started] = q
    e.started += 1
    enginebatch.add(e, world.calls, q)
    b = c.leaf
    while b != NONE:
        world.caches[m, b].mark = e.prefilled_tokens + e.unprefilled_tokens
        b = world.blocks[b].parent
    if e.iterations == 0:
        go_on(world, m, now)
    else:
        enginemodel.cut(e, now - e.begun_at)
        e.ends_at = e.begun_at + e.planned_s


def go_on(world: World, m: int, now: float) -> None:
    """The next stretch, if there is anything to do."""
    e = world.engines[m]
    e.begun_at = now
    e.ends_at = now + enginemodel.begin(e, world.calls, world.blocks, world.caches[m], math.inf)
