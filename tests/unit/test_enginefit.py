"""The speeds learned from iterations are those of the engine, whatever the profile said and whatever goes wrong."""

import math
import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.enginefit import SANE, EngineFit, Iteration, TokenTime
from common.model import InstanceProfile
from common.profiles import PROFILES

A100 = PROFILES["a100"]


def seconds(profile: InstanceProfile, made: Iteration) -> float:
    """By the formula of the engine model."""
    compute = made.work / profile.prefill_tokens_per_s
    longer, shorter = max(compute, profile.weights_s), min(compute, profile.weights_s)
    return profile.overhead_s + longer + shorter / 2 + profile.kv_s_per_token * made.kv_tokens


def iterations(profile: InstanceProfile, count: int, seed: int, noise: float = 0.0, stalls: float = 0.0):
    """A mix of decoding with and without prefill, with noise of that deviation and stalls of ten times the time."""
    chance = random.Random(seed)
    for _ in range(count):
        prompt = chance.choice([0, 0, 0, chance.randint(1, 512), 512])
        decoding = chance.randint(0 if prompt else 1, 40)
        context = chance.uniform(0, 10_000) if prompt else 0.0
        made = Iteration(prompt, decoding, decoding * chance.uniform(200, 2000), 0.0, context)
        late = 10.0 if chance.random() < stalls else max(0.2, chance.gauss(1.0, noise))
        yield replace(made, seconds=late * seconds(profile, made))


def learned(told: InstanceProfile, heard) -> EngineFit:
    fit = EngineFit(told)
    for iteration in heard:
        fit.observe(iteration)
    return fit


@given(
    st.sampled_from(sorted(PROFILES)), st.floats(0.7, 1.3), st.floats(0.7, 1.3), st.floats(0.7, 1.3),
    st.integers(0, 1000), st.floats(0.0, 0.05), st.floats(0.0, 0.1),
)  # fmt: skip
@settings(max_examples=12)
def test_a_profile_that_is_30_percent_wrong_is_mended_under_noise_and_stalls(
    name: str, rate: float, step: float, kappa: float, seed: int, noise: float, stalls: float
) -> None:
    true = PROFILES[name]
    told = replace(
        true,
        prefill_tokens_per_s=true.prefill_tokens_per_s * rate,
        weights_s=true.weights_s * step,
        overhead_s=true.overhead_s * step,
        kv_s_per_token=true.kv_s_per_token * kappa,
    )
    found = learned(told, iterations(true, 600, seed, noise, stalls)).speeds
    assert found.prefill_tokens_per_s == pytest.approx(true.prefill_tokens_per_s, rel=0.06)
    assert found.step_s == pytest.approx(true.weights_s + true.overhead_s, rel=0.06)
    assert found.kv_s_per_token == pytest.approx(true.kv_s_per_token, rel=0.4, abs=1e-8)


def test_a_right_profile_stays_as_it_is() -> None:
    found = learned(A100, iterations(A100, 1000, 1)).speeds
    assert found.prefill_tokens_per_s == pytest.approx(A100.prefill_tokens_per_s, rel=1e-6)
    assert found.step_s == pytest.approx(0.035, rel=1e-6)
    assert found.kv_s_per_token == pytest.approx(A100.kv_s_per_token, rel=1e-6)


def test_before_anything_is_heard_the_profile_holds() -> None:
    fit = EngineFit(A100)
    assert fit.speeds == pytest.approx((3400.0, 0.035, A100.kv_s_per_token))
    assert fit.iterations == 0


def test_a_long_time_of_decoding_does_not_undo_what_was_learned_of_prefill() -> None:
    true = replace(A100, prefill_tokens_per_s=2400.0)
    fit = learned(A100, iterations(true, 500, 1))
    for _ in range(5000):
        fit.observe(Iteration(0, 8, 8000, seconds(true, Iteration(0, 8, 8000, 0.0))))
    assert fit.speeds.prefill_tokens_per_s == pytest.approx(2400.0, rel=0.05)


def test_an_engine_that_becomes_slower_is_followed() -> None:
    slow = replace(A100, prefill_tokens_per_s=1700.0, weights_s=0.06, overhead_s=0.01)
    fit = learned(A100, iterations(A100, 1000, 1))
    for iteration in iterations(slow, 2500, 2):
        fit.observe(iteration)
    assert fit.speeds.prefill_tokens_per_s == pytest.approx(1700.0, rel=0.1)
    assert fit.speeds.step_s == pytest.approx(0.07, rel=0.1)


@given(st.lists(st.builds(
    Iteration, st.integers(0, 512), st.integers(0, 64), st.floats(0, 1e5), st.floats(allow_nan=True), st.floats(0, 1e5)
), max_size=80))  # fmt: skip
def test_whatever_it_hears_the_speeds_stay_sane(heard: list[Iteration]) -> None:
    found = learned(A100, heard).speeds
    assert 1 / SANE <= found.prefill_tokens_per_s / 3400.0 <= SANE * 1.001
    assert 0.999 / SANE <= found.step_s / 0.035 <= SANE * 1.001
    assert 0 <= found.kv_s_per_token <= SANE * A100.kv_s_per_token * 1.001


def test_a_profile_without_kappa_may_get_one() -> None:
    true = replace(A100, kv_s_per_token=0.2e-6)
    found = learned(replace(A100, kv_s_per_token=0.0), iterations(true, 1000, 1)).speeds
    assert found.kv_s_per_token == pytest.approx(0.2e-6, rel=0.3)


def test_the_time_between_tokens_falls_in_20_s_and_rises_at_half_speed() -> None:
    mean = TokenTime()
    for _ in range(8000):
        mean.observe(Iteration(0, 1, 0, 0.1))
    assert mean.seconds == pytest.approx(0.1, rel=1e-3)
    mean.observe(Iteration(0, 1, 0, 0.05, count=400))
    assert mean.seconds == pytest.approx(0.05 + 0.05 * math.exp(-1), rel=1e-3)
    before = mean.seconds
    mean.observe(Iteration(0, 1, 0, 0.1, count=200))
    assert mean.seconds == pytest.approx(before + 0.5 * (1 - math.exp(-1)) * (0.1 - before))


def test_an_engine_that_lives_faster_forgets_faster_and_prefill_alone_says_nothing() -> None:
    mean = TokenTime(pace=10.0)
    mean.observe(Iteration(512, 0, 0, 9.0))
    assert mean.seconds == 0.0
    mean.observe(Iteration(0, 1, 0, 0.01, count=200))
    assert mean.seconds == pytest.approx(0.01 * 0.5 * (1 - math.exp(-1)))
