"""The engine model by hand: times, order, room and aborts."""

import math
from dataclasses import replace

import pytest

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


def is_empty(model: EngineModel) -> bool:
    held = (model.running, model.kv_tokens, model.decoding_kv, model.unprefilled_tokens, model.waiting_tokens)
    return held == (0, 0, 0, 0, 0) and not model.waiting and not model.decoding


# --- times by hand


def test_prefill_is_bound_by_compute_and_decode_by_weights() -> None:
    model = EngineModel(PROFILE)
    model.add(Sequence("a", prompt_tokens=100, output_tokens=3))
    prefill_s = 0.005 + 100 * (1 + 50 / 53_000) / 1000 + 0.5 * 0.030
    assert model.begin() == pytest.approx(prefill_s)
    assert model.end() == []
    assert model.step()[0] == pytest.approx(0.005 + 0.030 + 0.5 * 0.002 + 101e-6)
    duration, finished = model.step()
    assert duration == pytest.approx(0.005 + 0.030 + 0.5 * 0.002 + 102e-6)
    assert [sequence.id for sequence in finished] == ["a"]
    assert is_empty(model)
    assert model.begin() == math.inf


def test_a_chunk_shares_its_iteration_with_decoding() -> None:
    model = EngineModel(PROFILE)
    model.add(Sequence("a", prompt_tokens=10, output_tokens=50))
    model.step()
    model.add(Sequence("b", prompt_tokens=1000, output_tokens=1))
    compute_s = (512 * (1 + 256 / 53_000) + 2) / 1000
    assert model.step()[0] == pytest.approx(0.005 + compute_s + 0.015 + 11e-6)
    compute_s = (488 * (1 + (512 + 244) / 53_000) + 2) / 1000
    duration, finished = model.step()
    assert duration == pytest.approx(0.005 + compute_s + 0.015 + 12e-6)
    assert [sequence.id for sequence in finished] == ["b"]


def test_chunks_do_not_change_the_work_of_a_prompt() -> None:
    model = EngineModel(replace(PROFILE, weights_s=0.0, overhead_s=0.0))
    model.add(Sequence("a", prompt_tokens=9000, output_tokens=1))
    total = 0.0
    while (duration := model.begin()) < math.inf:
        total += duration
        model.end()
    assert total == pytest.approx(9000 * (1 + 9000 / 106_000) / 1000)
    assert model.iteration == math.ceil(9000 / 512)
    assert model.prefilled_tokens == 9000


def test_one_stretch_covers_a_whole_decode() -> None:
    model = EngineModel(PROFILE)
    model.add(Sequence("a", prompt_tokens=100, output_tokens=201))
    model.step()
    kv_s = sum(1e-6 * (100 + made) for made in range(1, 201))
    assert model.begin() == pytest.approx(200 * 0.036 + kv_s)
    assert [sequence.id for sequence in model.end()] == ["a"]


def test_cut_keeps_the_iteration_that_runs() -> None:
    profile = replace(PROFILE, kv_s_per_token=0.0)
    model = EngineModel(profile)
    model.add(Sequence("a", prompt_tokens=1, output_tokens=100))
    model.step()
    step_s = 0.036
    assert model.begin() == pytest.approx(99 * step_s)
    assert model.cut(10.5 * step_s) == pytest.approx(11 * step_s)
    assert model.cut(20 * step_s) == pytest.approx(11 * step_s), "a cut never lengthens"
    assert model.cut(0.0) == pytest.approx(step_s)
    model.end()
    assert model.iteration == 2
    assert model.begin(max_s=4.2 * step_s) == pytest.approx(5 * step_s)


# --- order and room


def test_smaller_priority_first_then_arrival() -> None:
    model = EngineModel(replace(PROFILE, max_batch=1))
    for name, priority in (("late", 5), ("a", 1), ("b", 1), ("first", 0)):
        model.add(Sequence(name, 10, 2, priority=priority))
    assert run(model) == ["first", "a", "b", "late"]


def test_admission_stops_at_98_percent_of_the_room() -> None:
    model = EngineModel(replace(PROFILE, kv_tokens=1000))
    model.add(Sequence("a", 500, 10))
    model.add(Sequence("b", 481, 10))
    model.add(Sequence("c", 1, 10))
    model.step()
    model.step()
    assert (model.running, len(model.waiting)) == (1, 2), "500 + 481 is above 980, and c does not pass b"
    model = EngineModel(replace(PROFILE, kv_tokens=1000))
    model.add(Sequence("a", 500, 10))
    model.add(Sequence("b", 480, 10))
    model.step()
    assert model.running == 2


def test_a_lone_sequence_may_fill_the_room() -> None:
    model = EngineModel(replace(PROFILE, kv_tokens=1000))
    model.add(Sequence("a", 990, 10))
    assert run(model) == ["a"]


def test_overflow_takes_back_the_youngest_and_computes_it_again() -> None:
    model = EngineModel(replace(PROFILE, kv_tokens=200))
    old, young = Sequence("old", 90, 60), Sequence("young", 90, 60)
    model.add(old)
    model.add(young)
    assert run(model) == ["old", "young"]
    assert (old.preemptions, young.preemptions) == (0, 1)
    assert model.prefilled_tokens == 90 + 90 + 90 + 11, "11 tokens each had been made when 200 were held"
    assert is_empty(model)


def test_overflow_takes_back_a_sequence_that_still_prefills() -> None:
    model = EngineModel(replace(PROFILE, kv_tokens=1000, chunk_tokens=8))
    model.add(old := Sequence("old", 96, 400))
    model.add(young := Sequence("young", 856, 2))
    assert run(model) == ["old", "young"]
    assert (old.preemptions, young.preemptions) == (0, 1)
    assert model.prefilled_tokens == 96 + 48 * 8 + 856, "48 tokens of old filled the room beside 96 + 856"
    assert is_empty(model)


@pytest.mark.parametrize(
    ("sequence", "message"),
    [
        (Sequence("a", 0, 1), "prompt and output tokens"),
        (Sequence("a", 1, 0), "prompt and output tokens"),
        (Sequence("a", 9_000, 1_001), "needs 10001 KV tokens; the engine has 10000"),
        (Sequence("twice", 1, 1), "already in the engine"),
        (Sequence("a", 10, 1, prefix=(Block("x", 11),)), "prefix longer than its prompt of 10"),
    ],
)
def test_what_could_never_run_is_refused(sequence: Sequence, message: str) -> None:
    model = EngineModel(PROFILE)
    model.add(Sequence("twice", 1, 1))
    with pytest.raises(ValueError, match=message):
        model.add(sequence)


def test_stretches_begin_and_end_in_turn() -> None:
    model = EngineModel(PROFILE)
    with pytest.raises(ValueError, match="no stretch"):
        model.end()
    model.add(Sequence("a", 1, 2))
    model.begin()
    with pytest.raises(ValueError, match="end it first"):
        model.begin()


# --- abort


@pytest.mark.parametrize("steps", [0, 1, 2, 4])
def test_abort_frees_all_in_every_phase(steps: int) -> None:
    model = EngineModel(PROFILE)
    model.add(Sequence("a", 1000, 5, prefix=(Block("x", 400), Block("y", 900))))
    for _ in range(steps):
        model.step()
    assert model.abort("a")
    assert is_empty(model)
    assert not model.abort("a")


@pytest.mark.parametrize("prompt", [5, 100, 2000])
def test_abort_during_a_stretch_leaves_the_others_right(prompt: int) -> None:
    model = EngineModel(PROFILE)
    model.add(Sequence("stays", 10, 20))
    model.step()
    model.add(Sequence("goes", prompt, 10))
    planned = model.begin()
    model.cut(0.0)
    assert model.abort("goes")
    assert model.planned_s <= planned
    assert model.kv_tokens == 10, "the stretch is not applied yet"
    assert run_from_stretch(model) == ["stays"]
    assert is_empty(model)
    assert model.iteration == 20


def run_from_stretch(model: EngineModel) -> list[str]:
    ended = [sequence.id for sequence in model.end()]
    return ended + run(model)
