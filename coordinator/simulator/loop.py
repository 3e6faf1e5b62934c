"""The event loop: arrivals, completions and timers, and between them the policy's decisions. Time is a number here.

Written in plain functions over arrays and records: `coordinator.simulator.compiled` compiles them where numba is there.
"""

import math
from heapq import heappop, heappush
from typing import Any

from common import enginebatch, enginemodel
from common.enginerecords import NONE
from common.policy.cost import exec_s
from common.policy.rules import Rules
from coordinator.simulator.deciding import IN_LINE, World, charge, chosen_for, key_of, lift, look, plan_line, settle
from coordinator.simulator.queues import push, take

Timers = list[tuple[float, int]]
"""A heap of (time, call that is ready or a tool call that ends). Its last stands for no timer at all."""


def run(world: World, rules: Rules, hop_s: float) -> float:
    """Run until every workflow has ended; the time of the last event, in s.

    hop_s: from a completion to the next call's being ready. All that happens at one moment happens before anything
    starts then.
    """
    engines, workflows = world.engines, world.workflows
    now, arrived, left, root, stale = 0.0, 0, len(workflows), 0, False
    timers = [(math.inf, NONE)]
    while left > 0:
        when = workflows[arrived].arrival if arrived < len(workflows) else math.inf
        what = -1
        if timers[0][0] <= when:
            when, what = timers[0][0], -2
        for m in range(len(engines)):
            if engines[m].ends_at <= when:
                when, what = engines[m].ends_at, m
        if stale and when > now:
            start_all(world, rules, now)
            stale = False
            continue
        now, stale = when, True
        if what == -1:
            while root < len(world.roots) and world.calls[world.roots[root]].workflow == arrived:
                ready(world, rules, world.roots[root], now, timers)
                root += 1
            arrived += 1
        elif what == -2:
            q = heappop(timers)[1]
            if world.calls[q].started_at >= 0.0:  # a tool's end
                left -= complete(world, q, now, hop_s, timers)
            else:
                ready(world, rules, q, now, timers)
        else:
            left -= stretch_ended(world, what, now, hop_s, timers)
    return now


def stretch_ended(world: World, m: int, now: float, hop_s: float, timers: Timers) -> int:
    """An engine has run its stretch. Returns the workflows ended."""
    e = world.engines[m]
    if e.decoding_count > 0:
        e.token_s = enginemodel.token_time(e.token_s, e.planned_s / e.iterations, e.planned_s, enginemodel.TOKEN_TIME_S)
    e.busy_s += e.planned_s
    count = enginemodel.end(e, world.calls, world.blocks, world.caches[m], world.finished)
    e.ends_at = math.inf
    ended = 0
    for at in range(count):
        q = world.finished[at]
        e.backlog_s -= world.calls[q].cost_s
        forget(e, q)
        settle(world, q)
        ended += complete(world, q, now, hop_s, timers)
    return ended


def forget(e: Any, q: int) -> None:
    """A call is no longer among the started ones."""
    at = 0
    while e.started_ids[at] != q:
        at += 1
    e.started -= 1
    e.started_ids[at] = e.started_ids[e.started]


def complete(world: World, q: int, now: float, hop_s: float, timers: Timers) -> int:
    """A call has ended: those that waited for it alone are ready a hop later. Returns the workflows ended."""
    c = world.calls[q]
    c.ended_at = now
    for at in range(c.first_child, c.first_child + c.children):
        child = world.children[at]
        world.calls[child].needs -= 1
        if world.calls[child].needs == 0:
            heappush(timers, (now + hop_s, child))
    workflow = world.workflows[c.workflow]
    workflow.left -= 1
    if workflow.left > 0:
        return 0
    workflow.ended_at = now
    return 1


def ready(world: World, rules: Rules, q: int, now: float, timers: Timers) -> None:
    """A call may start: a tool runs at once, any other goes into the line or is bound to an instance."""
    c = world.calls[q]
    c.ready_at = now
    if c.tool_s > 0.0:
        c.started_at = now
        heappush(timers, (now + c.tool_s, q))
        return
    lift(world, q)
    look(world)
    m = NONE if rules.late else chosen_for(world, rules, q)
    c.key = key_of(world, rules, q, m, now)
    charge(world, q)
    if m == NONE:
        line = len(world.engines)
        push(world.keys[line], world.ids[line], world.counts[IN_LINE], c.key, q)
        world.counts[IN_LINE] += 1
    else:
        bind(world, q, m)


def bind(world: World, q: int, m: int) -> None:
    """Put a call into an instance's queue."""
    c, e = world.calls[q], world.engines[m]
    c.cost_s = exec_s(world.candidates[m], c.prompt_tokens, c.expected_tokens)
    e.backlog_s += c.cost_s
    e.queued_tokens += c.expected_tokens
    push(world.keys[m], world.ids[m], e.queued, c.key, q)
    e.queued += 1


def start_all(world: World, rules: Rules, now: float) -> None:
    """Start what may start, and let the engines that ended a stretch go on."""
    if world.counts[IN_LINE] > 0:
        bind_planned(world, plan_line(world, rules, now))
    for m in range(len(world.engines)):
        e = world.engines[m]
        while e.queued > 0 and has_room(e, world.calls[world.ids[m, 0]]):
            q = take(world.keys[m], world.ids[m], e.queued, 0)
            e.queued -= 1
            e.queued_tokens -= world.calls[q].expected_tokens
            start(world, m, q, now)
        if e.iterations == 0 and e.started > 0:
            e.begun_at = now
            e.ends_at = now + enginemodel.begin(e, world.calls, world.blocks, world.caches[m], math.inf)


def bind_planned(world: World, length: int) -> None:
    """Bind what the plan lets start, in the line's order."""
    line = len(world.engines)
    at = 0
    for place in range(length):
        m = world.targets[place]
        if m == NONE:
            at += 1
        else:
            q = take(world.keys[line], world.ids[line], world.counts[IN_LINE], at)
            world.counts[IN_LINE] -= 1
            bind(world, q, m)


def has_room(e: Any, c: Any) -> bool:
    """Whether an instance claims a call: little to prefill, a free slot, KV room. The only call always has that."""
    if e.unprefilled_tokens >= e.chunk or e.started >= e.max_sequences:
        return False
    return bool(e.started == 0 or e.kv_tokens + e.waiting_tokens + c.prompt_tokens <= e.admit_tokens)


def start(world: World, m: int, q: int, now: float) -> None:
    """Give a call to the engine."""
    e, c = world.engines[m], world.calls[q]
    c.started_at, c.instance = now, m
    e.started_ids[e.started] = q
    e.started += 1
    enginebatch.add(e, world.calls, q)
    if e.iterations > 0:
        enginemodel.cut(e, now - e.begun_at)
        e.ends_at = e.begun_at + e.planned_s
