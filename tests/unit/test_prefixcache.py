"""The prefix cache in the engine model: what is not computed twice, what running sequences share, what goes first."""

import math
from dataclasses import replace

from common.engine import Block, EngineModel, Sequence
from common.model import InstanceProfile

PROFILE = InstanceProfile("plain", 1000.0, weights_s=0.030, overhead_s=0.005, kv_s_per_token=1e-6, kv_tokens=10_000)


def run(model: EngineModel) -> list[str]:
    """Run until idle; the ids in the order they ended."""
    ended: list[str] = []
    while model.begin() < math.inf:
        ended += [sequence.id for sequence in model.end()]
        assert model.kv_tokens + model.idle_tokens <= model.kv_room
    return ended


def test_a_cached_prefix_is_not_prefilled_again() -> None:
    model = EngineModel(PROFILE)
    first = Sequence("first", 1000, 3, prefix=(Block("t", 600), Block("t+1", 900)))
    other = Sequence("other", 1000, 3, prefix=(Block("t", 600), Block("t+2", 900)))
    again = Sequence("again", 1000, 3, prefix=(Block("t", 600), Block("t+1", 900)))
    for sequence in (first, other, again):
        model.add(sequence)
        run(model)
    assert [sequence.cached_tokens for sequence in (first, other, again)] == [0, 600, 900]
    assert model.prefilled_tokens == 1000 + 400 + 100
    assert model.idle_tokens == 1200
    off = EngineModel(PROFILE, prefix_cache=False)
    for name in ("first", "again"):
        off.add(Sequence(name, 1000, 3, prefix=(Block("t", 600),)))
        run(off)
    assert (off.prefilled_tokens, off.idle_tokens) == (2000, 0)


def test_a_whole_prompt_in_the_cache_still_computes_its_last_block() -> None:
    model = EngineModel(PROFILE)
    for name in ("a", "b"):
        model.add(Sequence(name, 100, 2, prefix=(Block("x", 50), Block("y", 100))))
        run(model)
    assert model.prefilled_tokens == 150
    assert model.idle_tokens == 100


def test_running_sequences_share_the_room_of_a_prefix() -> None:
    model = EngineModel(PROFILE)
    for name in ("a", "b", "c"):
        model.add(Sequence(name, 1000, 50, prefix=(Block("x", 900),)))
    while model.unprefilled_tokens:
        model.step()
    assert model.running == 3
    assert model.kv_tokens == 900 + 3 * 100 + model.iteration - 2, "only a decodes during b's and c's prefill"
    assert model.abort("a")
    assert model.kv_tokens == 900 + 2 * 100
    run(model)
    assert (model.kv_tokens, model.idle_tokens) == (0, 900)


def test_idle_blocks_go_least_recently_used_first() -> None:
    model = EngineModel(replace(PROFILE, kv_tokens=1000))
    for name in ("x", "y", "x"):
        model.add(Sequence(name, 401, 1, prefix=(Block(name, 400),)))
        run(model)
    model.add(Sequence("z", 401, 1, prefix=(Block("z", 400),)))
    run(model)
    model.add(x := Sequence("x", 401, 1, prefix=(Block("x", 400),)))
    run(model)
    model.add(y := Sequence("y", 401, 1, prefix=(Block("y", 400),)))
    run(model)
    assert (x.cached_tokens, y.cached_tokens) == (400, 0)


def test_an_aborted_prefill_leaves_only_what_was_computed() -> None:
    model = EngineModel(PROFILE)
    model.add(Sequence("a", 2000, 5, prefix=(Block("x", 500), Block("y", 1000), Block("z", 1500))))
    model.step()
    model.step()
    model.abort("a")
    assert (model.kv_tokens, model.idle_tokens) == (0, 1000)


def test_a_preempted_sequence_finds_its_own_blocks() -> None:
    model = EngineModel(replace(PROFILE, kv_tokens=200))
    model.add(Sequence("old", 90, 60))
    model.add(young := Sequence("young", 90, 60, prefix=(Block("x", 40),)))
    assert run(model) == ["old", "young"]
    assert model.prefilled_tokens == 90 + 90 + (90 + 11 - 40)
    assert (young.preemptions, young.cached_tokens) == (1, 0), "cached tokens are those of the first admission"
