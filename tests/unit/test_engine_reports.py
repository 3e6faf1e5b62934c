"""What an engine model tells of its stretches is what it does: the time is the formula's, the tokens are all there."""

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.engine import Block, EngineModel, Sequence
from common.enginefit import EngineFit, Iteration
from common.profiles import PROFILES

A100 = PROFILES["a100"]
ROOMY = replace(A100, kv_tokens=10_000_000)
sequences = st.lists(st.tuples(st.integers(1, 6000), st.integers(1, 60), st.integers(0, 4)), min_size=1, max_size=8)


def seconds(made: Iteration) -> float:
    compute = made.work / A100.prefill_tokens_per_s
    longer, shorter = max(compute, A100.weights_s), min(compute, A100.weights_s)
    return A100.overhead_s + longer + shorter / 2 + A100.kv_s_per_token * made.kv_tokens


def run(lengths: list[tuple[int, int, int]], stretch_s: float) -> list[Iteration]:
    """All of them from the start, with so many shared blocks each; checks what is unprefilled on the way."""
    model = EngineModel(ROOMY)
    asked = []
    for number, (prompt, output, blocks) in enumerate(lengths):
        prefix = tuple(Block(at, 256 * (at + 1)) for at in range(min(blocks, prompt // 256)))
        asked.append(Sequence(str(number), prompt, output, prefix))
        model.add(asked[-1])
    told = []
    ended: set[str] = set()
    while model.begin(stretch_s) < math.inf:
        told.append(model.begun())
        left = sum(model.unprefilled(sequence) for sequence in asked if sequence.id not in ended)
        assert left == model.unprefilled_tokens
        ended |= {sequence.id for sequence in model.end()}
    return told


@given(sequences, st.sampled_from([0.0, 0.1, math.inf]))
@settings(max_examples=60)
def test_each_stretch_told_takes_the_time_of_the_formula(lengths: list[tuple[int, int, int]], stretch_s: float) -> None:
    for told in run(lengths, stretch_s):
        assert told.seconds == pytest.approx(seconds(told), rel=1e-9)


@given(sequences)
@settings(max_examples=30)
def test_all_that_is_not_cached_is_told_as_prefilled(lengths: list[tuple[int, int, int]]) -> None:
    single = [(prompt, output, 0) for prompt, output, _ in lengths]
    assert sum(told.prompt_tokens for told in run(single, 0.0)) == sum(prompt for prompt, _, _ in lengths)


def test_a_profile_is_learned_from_what_the_model_tells() -> None:
    told = run([(3000 + 100 * at, 40, 0) for at in range(30)], 0.02)
    wrong = replace(A100, prefill_tokens_per_s=2500.0, weights_s=0.024, overhead_s=0.004)
    fit = EngineFit(wrong)
    for iteration in told:
        fit.observe(iteration)
    assert fit.speeds.prefill_tokens_per_s == pytest.approx(A100.prefill_tokens_per_s, rel=0.02)
    assert fit.speeds.step_s == pytest.approx(0.035, rel=0.03)
