"""A live plan: instances as they say they are, requests as their records have them, the same decisions as simulated."""

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from common.lineup import Asked, Lineup, Standing
from common.model import Instance, InstanceLoad, InstanceProfile, RunningCall
from common.policy.candidate import candidate
from common.policy.registry import policy
from common.prefix import BLOCK_CHARS, chain
from coordinator.planning import Plan, cached_tokens, placements, plan, wanted

PROFILE = InstanceProfile("p", 10_000.0, 0.02, 0.005, 1e-7, 100_000)
FAST = Instance("fast", 7, PROFILE, ("m",), frozenset({"big"}), frozenset({"chat"}))
SLOW = replace(FAST, id="slow", profile=replace(PROFILE, prefill_tokens_per_s=2_000.0, weights_s=0.1))
NOW = 1_000_000


def asked(name: str, prompt: int = 300, output: int = 100, **changes: Any) -> Asked:
    return Asked(name, NOW, prompt, output, 60_000, **changes)


def told(*running: RunningCall, **changes: Any) -> InstanceLoad:
    kv = sum(call.prompt_tokens + call.generated_tokens for call in running)
    unprefilled = sum(call.unprefilled_tokens for call in running)
    load = InstanceLoad(10_000.0, 0.025, 1e-7, 100_000, 512, 64, kv, unprefilled, 0.025, running)
    return replace(load, **changes)


def runs(name: str, prompt: int = 300, unprefilled: int = 0) -> RunningCall:
    return RunningCall(name, prompt, 10, unprefilled, 100, NOW, 60_000)


def planned(line: list[Asked], *standings: Standing, known: list[Asked] | None = None, name: str = "flow") -> Plan:
    seen = Lineup(NOW, 0, tuple(request.request for request in line), standings)
    records = {request.request: request for request in [*line, *(known or [])]}
    return plan(seen, records, policy(name), Random(1).random)


def where(found: Plan) -> dict[str, str]:
    return {request.request: instance.id for request, instance in found.starts}


@pytest.mark.parametrize("name", ["flow", "ray"])
def test_a_request_starts_on_an_idle_instance(name: str) -> None:
    found = planned([asked("r1")], Standing(FAST, told()), name=name)
    assert where(found) == {"r1": "fast"}
    (placement,) = placements(found, lambda request, instance: request.prompt_tokens + instance.epoch)
    assert (placement.request, placement.instance, placement.epoch, placement.load_ms) == ("r1", "fast", 7, 307)


def test_a_request_starts_where_it_costs_least_and_the_next_goes_round_it() -> None:
    line = [asked(f"r{n}", prompt=600) for n in range(3)]
    found = planned(line, Standing(SLOW), Standing(FAST))
    assert where(found)["r0"] == "fast"
    assert found.unserved == ()
    assert len(where(found)) < 3  # what has to wait for its place waits in the line


@pytest.mark.parametrize(
    "closed",
    [
        Standing(FAST, told(runs("x", 5000, unprefilled=600)), claimed=("x",)),
        Standing(FAST, told(), queued=("x",)),
        Standing(FAST, told(), claimed=("x",)),  # claimed, and not yet told of
        Standing(FAST, None, queued=("x",)),
    ],
)
def test_nothing_starts_where_a_chunk_is_to_be_prefilled_already(closed: Standing) -> None:
    found = planned([asked("r1")], closed, known=[asked("x", prompt=5000)])
    assert where(found) == {}
    assert found.unserved == ()


@pytest.mark.parametrize("name", ["flow", "ray"])
def test_nothing_starts_where_one_runs_alone_but_what_only_that_instance_can_take_is_not_unserved(name: str) -> None:
    line = [asked("fast only", requires=frozenset({"big"})), *(asked(f"r{n}", prompt=1) for n in range(4))]
    alone = Standing(FAST, told(runs("x", 1)), claimed=("x",), alone=True)
    found = planned(line, alone, Standing(replace(SLOW, labels=frozenset()), told()), name=name)
    assert where(found) == {f"r{n}": "slow" for n in range(4)}
    assert found.unserved == ()


@pytest.mark.parametrize("name", ["flow", "ray"])
def test_none_that_is_less_urgent_goes_where_one_goes_that_must_run_alone(name: str) -> None:
    line = tuple(asked(f"r{n}", prompt=1) for n in range(4))
    seen = Lineup(NOW, 0, tuple(one.request for one in line), (Standing(FAST, told()),), alone=frozenset({"r1"}))
    found = plan(seen, {one.request: one for one in line}, policy(name), Random(1).random)
    assert where(found) == {"r0": "fast", "r1": "fast"}
    assert found.unserved == ()


def test_what_an_instance_tells_is_not_counted_twice() -> None:
    found = planned([asked("r1")], Standing(FAST, told(runs("x", 5000)), claimed=("x",)), known=[asked("x", 5000)])
    assert where(found) == {"r1": "fast"}


def test_of_an_instance_that_tells_nothing_what_is_claimed_has_its_prompt_behind_it() -> None:
    known = [asked(f"x{n}", prompt=5000) for n in range(64)]
    few, full = known[:8], known
    for claimed, expected in ((few, {"r1": "fast"}), (full, {})):
        names = tuple(request.request for request in claimed)
        assert where(planned([asked("r1")], Standing(FAST, None, claimed=names), known=known)) == expected


def test_kv_room_counts_what_is_bound_and_not_seen_yet() -> None:
    small = replace(FAST, profile=replace(PROFILE, kv_tokens=1000))
    load = told(kv_room=1000, chunk_tokens=512)
    assert where(planned([asked("r1", 400)], Standing(small, load))) == {"r1": "fast"}
    bound = Standing(small, load, queued=("x",))
    assert where(planned([asked("r1", 700)], bound, known=[asked("x", 400)])) == {}


def test_a_request_goes_to_the_instance_that_holds_its_prefix() -> None:
    text = "a schema " * 1000
    request = asked("r1", prompt=len(text) // 4, prefix=chain(text), characters=len(text), output=20)
    cache = frozenset(chain(text)[at : at + 8] for at in range(0, len(chain(text)), 8))
    other = replace(FAST, id="other")
    assert where(planned([request], Standing(FAST, told()), Standing(other, told(), cache))) == {"r1": "other"}
    assert where(planned([request], Standing(FAST, told(), cache), Standing(other, told()))) == {"r1": "fast"}


def test_cached_tokens_are_whole_blocks_and_never_the_whole_prompt() -> None:
    text = "x" * (3 * BLOCK_CHARS)
    prefix = chain(text)
    cache = frozenset({prefix[:8], prefix[8:16]})
    known = asked("r1", prompt=600, prefix=prefix, characters=len(text))
    assert cached_tokens(known, Standing(FAST, cache=cache)) == 400
    assert cached_tokens(replace(known, characters=0), Standing(FAST, cache=cache)) == 512
    assert cached_tokens(replace(known, prompt_tokens=10, characters=0), Standing(FAST, cache=cache)) == 9
    assert cached_tokens(known, Standing(FAST)) == 0


@pytest.mark.parametrize("name", ["flow", "ray"])
@pytest.mark.parametrize(
    "wants",
    [
        {"model": "other"},
        {"requires": frozenset({"huge"})},
        {"features": frozenset({"json_schema"})},
        {"prompt": PROFILE.longest_prompt + 1},
    ],
)
def test_what_no_instance_can_take_is_unserved_and_holds_up_no_other(name: str, wants: dict[str, Any]) -> None:
    found = planned([asked("r1", **wants), asked("r2", model="m")], Standing(FAST, told()), name=name)
    assert found.unserved == ("r1",)
    assert where(found) == {"r2": "fast"}


def test_without_instances_all_are_unserved_and_so_is_what_cannot_be_read() -> None:
    assert planned([asked("r1"), asked("r2")]).unserved == ("r1", "r2")
    seen = Lineup(NOW, 0, ("r1", "broken"), (Standing(FAST, told()),))
    found = plan(seen, {"r1": asked("r1")}, policy("flow"), Random(1).random)
    assert (where(found), found.unserved) == ({"r1": "fast"}, ("broken",))


def test_ray_gives_no_instance_more_than_five() -> None:
    line = [asked(f"r{n}", prompt=1) for n in range(30)]
    busy = Standing(FAST, told(*(runs(f"x{n}") for n in range(3))), queued=("y",))
    found = planned(line, busy, Standing(SLOW, told()), known=[asked("y")], name="ray")
    places = list(where(found).values())
    assert places.count("fast") <= 1
    assert places.count("slow") <= 5
    assert places


def test_the_records_that_are_wanted_are_those_that_no_load_tells() -> None:
    standing = Standing(FAST, told(runs("a"), runs("gone")), queued=("q",), claimed=("a", "b"))
    silent = Standing(SLOW, None, queued=("s",), claimed=("t",))
    seen = Lineup(NOW, 0, ("r1",), (standing, silent))
    assert sorted(wanted(seen)) == ["b", "q", "r1", "s", "t"]


def test_the_same_look_gives_the_same_plan() -> None:
    line = [asked(f"r{n}", prompt=100 + 50 * n) for n in range(10)]
    standings = (Standing(FAST, told(runs("x"))), Standing(SLOW, told()))
    assert planned(line, *standings) == planned(line, *standings)


def test_an_idle_instance_is_as_fast_as_its_profile_however_slow_it_was() -> None:
    assert candidate(PROFILE, told(token_s=0.3)).token_s == 0.0
    assert candidate(PROFILE, told(runs("r"), token_s=0.3)).token_s == 0.3
