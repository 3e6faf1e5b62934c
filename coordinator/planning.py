"""Plans the line: which requests start now, and where. Pure: what a look found goes in, placements come out.

Policies of one line decide in `common.policy`; here their records are made of what instances say of themselves.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from common.enginerecords import NONE
from common.lineup import Asked, Lineup, Placement, Standing
from common.model import Instance
from common.policy import line
from common.policy.candidate import Candidate, candidate
from common.policy.cost import Demand, serves
from common.policy.dispatch import choose
from common.policy.line import AHEAD, begin_there, held_kv_time, is_open, lateness, urgency_weight
from common.policy.rules import LEAST_COST, Rules
from common.prefix import BLOCK_CHARS, shared_blocks

CHARS_PER_TOKEN = 4.0
"""Of a prompt whose length in characters is not known."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Each of the line's first requests to its (request, instance), or nowhere for now.

    unserved: those that no ready instance can take at all, or whose record cannot be read.
    """

    starts: tuple[tuple[Asked, Instance], ...]
    unserved: tuple[str, ...]


@dataclass(slots=True)
class _Call:
    """A request as the policies see it, see `common.policy.line.InLine`; late: see `lateness`."""

    prompt_tokens: int
    expected_tokens: float
    late: float
    weight: float = 1.0


@dataclass(slots=True)
class _At:
    """An instance in the plan: what it is, the calls its engine runs, and those bound to it that are not seen there."""

    standing: Standing
    candidate: Candidate
    running: list[tuple[_Call, int, int]]
    """With the tokens generated, and those of the prompt to prefill."""
    bound: list[tuple[_Call, int]]
    """With the tokens of the prompt that are in its cache."""


def wanted(seen: Lineup) -> Iterator[str]:
    """The requests whose records a plan needs: the line, and what is bound to an instance and not told by it."""
    yield from seen.line
    for standing in seen.standings:
        yield from standing.queued
        yield from _untold(standing)


def plan(seen: Lineup, asked: Mapping[str, Asked], rules: Rules, dice: Callable[[], float]) -> Plan:
    """The plan of a policy that binds late. asked: records of `wanted`; dice: numbers in [0, 1)."""
    now = seen.now / 1000
    able = _able([asked[name] for name in seen.line if name in asked], [at.instance for at in seen.standings])
    first = _first(able)
    requests = [asked[name] for name in first]
    calls = [_call(request, now) for request in requests]
    instances = [_at(standing, asked, now) for standing in seen.standings]
    _weigh(instances, calls, rules)
    candidates = [_filled(at) for at in instances]
    targets = [NONE] * len(calls)
    if any(map(is_open, candidates)) or rules.dispatch != LEAST_COST:
        cached = [_cached(asked[name], able[name], seen.standings) for name in first]
        _choose(rules, calls, candidates, cached, dice, targets)
    starts = [(request, seen.standings[m].instance) for request, m in zip(requests, targets, strict=True) if m != NONE]
    unserved = tuple(name for name in seen.line if not any(able.get(name, ())))
    return Plan(tuple(_apart(starts, seen.alone)), unserved)


def placements(found: Plan, cost_ms: Callable[[Asked, Instance], int]) -> list[Placement]:
    """A plan for the store; cost_ms tells what a request adds to the backlog of its instance."""
    return [
        Placement(request.request, instance.id, instance.epoch, cost_ms(request, instance))
        for request, instance in found.starts
    ]


def _able(requests: Sequence[Asked], instances: Sequence[Instance]) -> dict[str, tuple[bool, ...]]:
    """Which instances can serve each request at all. Most ask for the same: that is looked at once."""
    demands: dict[Demand, list[bool]] = {}
    longest = [instance.profile.longest_prompt for instance in instances]
    found = {}
    for request in requests:
        key = demand(request)
        if key not in demands:
            demands[key] = [serves(instance, *key) for instance in instances]
        found[request.request] = tuple(
            able and request.prompt_tokens <= most for able, most in zip(demands[key], longest, strict=True)
        )
    return found


def demand(request: Asked) -> Demand:
    """What a request asks for."""
    return request.model, request.requires, request.features


def _cached(request: Asked, able: Sequence[bool], standings: Sequence[Standing]) -> list[int]:
    """Tokens of the prompt in the prefix cache of each instance; negative if that cannot serve the request, or not
    before another has run alone there.
    """
    return [
        cached_tokens(request, at) if can and not at.alone else NONE for can, at in zip(able, standings, strict=True)
    ]


def cached_tokens(request: Asked, standing: Standing) -> int:
    """Tokens of the prompt in the prefix cache of an instance."""
    prompt = request.prompt_tokens
    chars_per_token = request.characters / prompt if request.characters and prompt else CHARS_PER_TOKEN
    shared = shared_blocks(request.prefix, standing.cache) * BLOCK_CHARS / chars_per_token
    return max(0, min(int(shared), prompt - 1))


def _first(able: Mapping[str, tuple[bool, ...]]) -> list[str]:
    """In the order of the line, those that are planned: so many of all that the same instances can take."""
    counts: Counter[tuple[bool, ...]] = Counter()
    first = []
    for name, row in able.items():
        counts[row] += 1
        if counts[row] <= AHEAD:
            first.append(name)
    return first


def _untold(standing: Standing) -> list[str]:
    """What was claimed, and is not among the running calls it has told; of one that tells nothing, all."""
    told = {call.request for call in standing.load.running} if standing.load is not None else frozenset()
    return [request for request in standing.claimed if request not in told]


def _call(request: Asked, now: float) -> _Call:
    late = _late(request.key_ms, request.slo_ms, now)
    return _Call(request.prompt_tokens, float(request.expected_tokens), late)


def _late(key_ms: int, slo_ms: int, now: float) -> float:
    return lateness(now, key_ms / 1000, max(slo_ms, 1) / 1000)


def _at(standing: Standing, asked: Mapping[str, Asked], now: float) -> _At:
    """What an instance has. Of one that tells nothing, what is claimed is taken to have its prompt behind it."""
    load = standing.load
    running = []
    for told in load.running if load is not None else ():
        call = _Call(told.prompt_tokens, float(told.expected_tokens), _late(told.key_ms, told.slo_ms, now))
        running.append((call, told.generated_tokens, told.unprefilled_tokens))
    found = candidate(standing.instance.profile, load)
    bound = [asked[request] for request in standing.queued if request in asked]
    claimed = [asked[request] for request in _untold(standing) if request in asked]
    if load is None:
        running = [(_call(request, now), 0, 0) for request in claimed]
        found.running = len(running)
        found.kv_tokens = sum(call.prompt_tokens for call, _, _ in running)
    else:
        bound += claimed
    not_told = [(_call(request, now), cached_tokens(request, standing)) for request in bound]
    return _At(standing, found, running, not_told)


def _weigh(instances: Sequence[_At], calls: Sequence[_Call], rules: Rules) -> None:
    """Give all that run and wait their weights."""
    everyone = list(calls)
    for at in instances:
        everyone += (call for call, _, _ in at.running)
        everyone += (call for call, _ in at.bound)
    mean = sum(call.late for call in everyone) / max(1, len(everyone))
    for call in everyone:
        call.weight = urgency_weight(call.late, mean, rules.weights)


def _filled(at: _At) -> Candidate:
    """An instance with the weight and KV time of what runs there, and with what is bound to it as if it began now."""
    found = at.candidate
    for call, generated, unprefilled in at.running:
        found.kv_time += held_kv_time(found, call.prompt_tokens, generated, unprefilled, call.expected_tokens)
        found.weight += call.weight
    for call, cached in at.bound:
        begin_there(found, call, cached)
    return found


def _choose(
    rules: Rules, calls: Sequence[_Call], candidates: Sequence[Candidate], cached: Sequence[Sequence[int]],
    dice: Callable[[], float], targets: list[int],
) -> None:  # fmt: skip
    """Writes where each call starts, or NONE."""
    if rules.dispatch == LEAST_COST:
        everyone = range(len(calls))
        line.plan(calls, everyone, len(calls), candidates, len(candidates), cached, rules.weights, targets)
    else:
        targets[:] = [_chosen(rules, *call, candidates, dice) for call in zip(calls, cached, strict=True)]


def _apart(starts: Sequence[tuple[Asked, Instance]], alone: frozenset[str]) -> Iterator[tuple[Asked, Instance]]:
    """Without those that would follow one that must run alone: they stay in the line for the next plan."""
    shut = set()
    for request, instance in starts:
        if instance.id not in shut:
            yield request, instance
        if request.request in alone:
            shut.add(instance.id)


def _chosen(
    rules: Rules, call: _Call, cached: Sequence[int], candidates: Sequence[Candidate], dice: Callable[[], float]
) -> int:
    """Where a call goes if its instance is chosen by itself; NONE if those asked refuse, or nobody can serve it."""
    eligible = [m for m, tokens in enumerate(cached) if tokens >= 0]
    if not eligible:
        return NONE
    m = choose(rules, call, candidates, eligible, len(eligible), 0, (dice(), dice()))
    if m != NONE:
        candidates[m].queued += 1
    return m
