"""A profile found by least squares is the one its iterations were made with."""

import random
from dataclasses import replace

import pytest

from common.engine import EngineModel, Sequence
from common.enginefit import Iteration
from common.profiles import PROFILES
from workers.engines import warmup
from workers.engines.fit import fit
from workers.engines.inflight import InFlight

TRUE = replace(PROFILES["a100"], chunk_tokens=512)
UNMEASURED = replace(TRUE, prefill_tokens_per_s=1.0, weights_s=0.0, overhead_s=0.0, kv_s_per_token=0.0)


class ModelledEngine:
    """Runs prompts on the engine model and reports its iterations, each late by up to `noise` of its time."""

    def __init__(self, noise: float = 0.0) -> None:
        self.now = 0.0
        self.calls = InFlight(lambda: self.now)
        self.calls.kv_room = TRUE.kv_tokens
        self._model = EngineModel(TRUE, prefix_cache=False)
        self._noise = noise
        self._random = random.Random(7)
        self._runs = 0

    async def run(self, prompt_tokens: int, output_tokens: int) -> None:
        self._runs += 1
        self._model.add(Sequence(str(self._runs), prompt_tokens, output_tokens))
        finished: list[Sequence] = []
        while not finished:
            before, decoding = self._model.prefilled_tokens, len(self._model.decoding)
            seconds, finished = self._model.step()
            self.now += seconds * (1 + self._noise * self._random.random())
            held = self._model.kv_tokens / TRUE.kv_tokens
            self.calls.iteration(self._model.prefilled_tokens - before, decoding, held)


async def test_the_engine_model_measured_like_an_engine_gives_its_profile() -> None:
    engine = ModelledEngine()
    found = await warmup.measure(engine.run, engine.calls, UNMEASURED)
    assert found.prefill_tokens_per_s == pytest.approx(TRUE.prefill_tokens_per_s, rel=0.03)
    assert found.weights_s + found.overhead_s == pytest.approx(TRUE.weights_s + TRUE.overhead_s, rel=0.03)
    assert found.kv_s_per_token == pytest.approx(TRUE.kv_s_per_token, rel=0.2)
    assert (found.name, found.kv_tokens, found.max_batch) == (TRUE.name, TRUE.kv_tokens, TRUE.max_batch)


async def test_noise_bends_the_estimate_but_does_not_break_it() -> None:
    engine = ModelledEngine(noise=0.5)
    found = await warmup.measure(engine.run, engine.calls, UNMEASURED)
    assert 0.5 < found.prefill_tokens_per_s / TRUE.prefill_tokens_per_s < 1.5
    assert 0.7 < (found.weights_s + found.overhead_s) / (TRUE.weights_s + TRUE.overhead_s) < 1.7
    assert found.kv_s_per_token >= 0


async def test_a_context_shorter_than_a_chunk_can_be_measured_if_roughly() -> None:
    engine = ModelledEngine()
    found = await warmup.measure(engine.run, engine.calls, replace(UNMEASURED, context_tokens=200))
    assert 0.5 < found.prefill_tokens_per_s / TRUE.prefill_tokens_per_s < 1.5


def test_speeds_stay_positive_when_the_times_make_no_sense() -> None:
    odd = [Iteration(512, 0, 0, 0.1), Iteration(128, 0, 0, 0.4), Iteration(0, 1, 600, 0.01), Iteration(0, 1, 100, 0.2)]
    found = fit(odd, UNMEASURED)
    assert found.prefill_tokens_per_s > 0
    assert found.weights_s > 0
    assert found.overhead_s >= 0
    assert found.kv_s_per_token == 0


@pytest.mark.parametrize("iterations", [[], [Iteration(10, 0, 0, 0.1)], [Iteration(0, 1, 10, 0.1)]])
def test_too_little_is_refused(iterations: list[Iteration]) -> None:
    with pytest.raises(ValueError, match="too few to fit"):
        fit(iterations, UNMEASURED)
