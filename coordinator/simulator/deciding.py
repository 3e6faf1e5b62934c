"""The policy's decisions inside the simulator: candidates as the policies see them, keys, bindings, the line's plan.

Glue between the loop's arrays and the functions of `common.policy`, which decide. Plain functions, compiled where numba
is there. Knows no events.
"""

import math
from typing import Any, NamedTuple

from common.enginebatch import generated
from common.enginerecords import NONE
from common.policy.cost import exec_s
from common.policy.dispatch import choose, wait_s
from common.policy.fairness import behind_s, price
from common.policy.line import AHEAD, held_kv_time, lateness, plan, urgency_weight
from common.policy.rules import LEAST_COST, Rules
from common.policy.urgency import Facts, offset_s
from common.prefixcache import match

LATER = 7919
"""How far on in the dice a refused call's next ones are."""
IN_LINE, TURN = 0, 1
"""Places in `World.counts`: calls in the line, dispatches so far."""


class World(NamedTuple):
    """All there is, as arrays. engines, calls ...: see `coordinator.simulator.records`.

    keys, ids: a queue for each instance, and the line as the last; cached, targets: of the line's plan; eligible: of a
    call that is bound; rate: prefill tokens/s of all.
    """

    engines: Any
    candidates: Any
    calls: Any
    workflows: Any
    tenants: Any
    blocks: Any
    caches: Any
    children: Any
    roots: Any
    keys: Any
    ids: Any
    dice: Any
    finished: Any
    cached: Any
    targets: Any
    eligible: Any
    counts: Any
    rate: float


def look(world: World) -> None:
    """Bring what decisions know of the instances up to date."""
    for m in range(len(world.engines)):
        e, k = world.engines[m], world.candidates[m]
        k.running, k.queued, k.queued_tokens, k.backlog_s = e.started, e.queued, e.queued_tokens, e.backlog_s
        k.kv_tokens = e.kv_tokens + e.waiting_tokens
        k.unprefilled_tokens = e.unprefilled_tokens
        k.token_s = e.token_s if e.started > 0 else 0.0  # what was slow is not slow any more when it is idle


def look_closely(world: World, rules: Rules, now: float) -> None:
    """What the line's plan wants to know beyond that: how long what runs holds its KV room, how urgent all are."""
    length = min(world.counts[IN_LINE], AHEAD)
    total, count = 0.0, length
    for m in range(len(world.engines)):
        e, k = world.engines[m], world.candidates[m]
        k.planned, k.planned_tokens, k.planned_kv_time, k.kv_time, k.weight = 0, 0.0, 0.0, 0.0, 0.0
        count += e.started
        for at in range(e.started):
            c = world.calls[e.started_ids[at]]
            unprefilled = max(c.prompt_tokens - c.position, 0)
            k.kv_time += held_kv_time(k, c.prompt_tokens, generated(e, c), unprefilled, c.expected_tokens)
            total += _late(world, c, now)
    line = world.ids[len(world.engines)]
    for at in range(length):
        total += _late(world, world.calls[line[at]], now)
    mean = total / count
    for m in range(len(world.engines)):
        e, k = world.engines[m], world.candidates[m]
        for at in range(e.started):
            k.weight += urgency_weight(_late(world, world.calls[e.started_ids[at]], now), mean, rules.weights)
    for at in range(length):
        c = world.calls[line[at]]
        c.weight = urgency_weight(_late(world, c, now), mean, rules.weights)


def _late(world: World, c: Any, now: float) -> float:
    return lateness(now, c.key, world.workflows[c.workflow].slo_s)


def plan_line(world: World, rules: Rules, now: float) -> int:
    """Plan the line; `World.targets` then has the instance of each of the first calls, or NONE. Returns how many."""
    count, length = len(world.engines), min(int(world.counts[IN_LINE]), AHEAD)
    line = world.ids[count]
    look(world)
    if rules.dispatch != LEAST_COST:
        for at in range(length):
            m = chosen_for(world, rules, line[at])
            world.targets[at] = m
            if m != NONE:
                world.candidates[m].queued += 1
        return length
    look_closely(world, rules, now)
    for at in range(length):
        c = world.calls[line[at]]
        for m in range(count):
            world.cached[at, m] = NONE
            if can_hold(world.engines[m], c):
                world.cached[at, m], _ = match(world.blocks, world.caches[m], c.leaf, c.prompt_tokens)
    plan(world.calls, line, length, world.candidates, count, world.cached, rules.weights, world.targets)
    return length


def can_hold(e: Any, c: Any) -> bool:
    """Whether a call fits an instance at all."""
    return bool(c.prompt_tokens + c.output_tokens <= e.kv_room)


def chosen_for(world: World, rules: Rules, q: int) -> int:
    """The instance that a call is bound to, or NONE if those asked refuse. Decides on the last look."""
    count, c = 0, world.calls[q]
    for m in range(len(world.engines)):
        if can_hold(world.engines[m], c):
            world.eligible[count] = m
            count += 1
    turn = world.counts[TURN]
    world.counts[TURN] += 1
    at = (q + LATER * c.attempts) % len(world.dice)
    c.attempts += 1
    dice = (world.dice[at, 0], world.dice[at, 1])
    return choose(rules, c, world.candidates, world.eligible, count, turn, dice)


def key_of(world: World, rules: Rules, q: int, m: int, now: float) -> float:
    """A call's place in the queue of instance m or, if NONE, in the line."""
    c = world.calls[q]
    workflow, tenant = world.workflows[c.workflow], world.tenants[world.workflows[c.workflow].tenant]
    exec_there, wait_there = c.stage_s, 0.0
    if m != NONE:
        exec_there = exec_s(world.candidates[m], c.prompt_tokens, c.expected_tokens)
        wait_there = wait_s(world.candidates[m])
    left, path = workflow.deadline - now, c.stage_s + c.rest_s
    behind = 0.0
    if rules.fairness > 0.0:
        behind = behind_s(tenant.served, _least_served(world), world.rate)
    budget = left * c.stage_s / path
    facts = Facts(now, left, workflow.slo_s, budget, exec_there, path, wait_there, tenant.served, behind)
    return now + offset_s(rules, facts)


def _least_served(world: World) -> float:
    least = math.inf
    for at in range(len(world.tenants)):
        if world.tenants[at].active > 0:
            least = min(least, world.tenants[at].served)
    return least


def lift(world: World, q: int) -> None:
    """A call is ready: its tenant is active, and if it was away lifted to the least of the others."""
    tenant = world.tenants[world.workflows[world.calls[q].workflow].tenant]
    if tenant.active == 0:
        least = _least_served(world)
        if least < math.inf:
            tenant.served = max(tenant.served, least)
    tenant.active += 1


def charge(world: World, q: int) -> None:
    """A call has its key: its tenant pays for what is expected."""
    c = world.calls[q]
    workflow = world.workflows[c.workflow]
    world.tenants[workflow.tenant].served += price(c.prompt_tokens, c.expected_tokens, workflow.weight)


def settle(world: World, q: int) -> None:
    """A call has ended: its tenant pays for its true length."""
    c = world.calls[q]
    workflow = world.workflows[c.workflow]
    tenant = world.tenants[workflow.tenant]
    tenant.active -= 1
    tenant.served += price(0.0, c.output_tokens - c.expected_tokens, workflow.weight)
