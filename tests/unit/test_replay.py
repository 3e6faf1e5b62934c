"""scripts/compare: what is made of a traced workload for each side, and the figures that come out."""

import importlib
from pathlib import Path
from types import ModuleType

import pytest

from common.errors import HexgenError
from common.model import LlmCall, Sampling
from common.policy.registry import policy
from common.profiles import A100, L40S
from coordinator.estimates import Estimates
from coordinator.language.compiler import compile_definition
from coordinator.language.definition import LlmBody
from coordinator.simulator.generator import Recipe, generate
from coordinator.simulator.trace import Trace, TracedCall, TracedWorkflow
from workers.engines.protocol import EngineCall

BENCHMARKS = Path(__file__).resolve().parents[2] / "scripts" / "benchmarks"
PROFILES = (A100, L40S)
TRACE: Trace = (
    TracedWorkflow(
        (
            TracedCall("draft SQL", 9000, 600, (), prefix=(("instructions", 5000), (".schema", 8000))),
            TracedCall("draft SQL", 8000, 500, (), prefix=(("instructions", 5000),)),
            TracedCall("run", 0, 0, (0, 1), tool_s=0.2),
            TracedCall("choose", 1200, 30, (2,)),
        )
    ),
    TracedWorkflow((TracedCall("choose", 1, 10, ()),)),
)


@pytest.fixture
def replay(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return module("replay", monkeypatch)


def module(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module(name)


def prompts(replay: ModuleType, trace: Trace, number: int, which: int) -> dict[str, str]:
    """What the coordinator will render for workflow `number`, which is that one of the trace."""
    definition = compile_definition(replay.documents(trace)[which])
    text = next(given.default for given in definition.inputs if given.name == "text")
    found = {}
    for spec in definition.root.stages:
        assert isinstance(spec.body, LlmBody)
        assert spec.body.prompt is not None
        found[spec.name] = spec.body.prompt.render({"inputs": {"mark": replay.mark(number), "text": text}})
    return found


def shared(one: str, other: str) -> int:
    """Characters that two prompts have in common from the start."""
    return next(at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b)


def test_tools_are_left_out_and_needs_go_through_them(replay: ModuleType) -> None:
    first, _ = replay.prepared(TRACE, PROFILES, prefix_cache=True)
    assert [(call.stage, call.needs) for call in first.calls] == [
        ("draft SQL", ()),
        ("draft SQL", ()),
        ("choose", (0, 1)),
    ]


@pytest.mark.parametrize("prefix_cache", [True, False])
def test_prompts_are_as_long_as_the_trace_says_and_end_with_the_answers_length(
    replay: ModuleType, monkeypatch: pytest.MonkeyPatch, prefix_cache: bool
) -> None:
    trace = replay.prepared(TRACE, PROFILES, prefix_cache=prefix_cache)
    told = module("replay_worker", monkeypatch).AsTold()
    for which, workflow in enumerate(trace):
        found = prompts(replay, trace, 7, which)
        assert [len(prompt) for prompt in found.values()] == [4 * call.prompt_tokens for call in workflow.calls]
        calls = [EngineCall("x", LlmCall(prompt, None, None, Sampling()), "replay") for prompt in found.values()]
        assert [told.respond(call).output_tokens for call in calls] == [call.output_tokens for call in workflow.calls]


def test_prompts_share_what_the_trace_says_is_shared(replay: ModuleType) -> None:
    trace = replay.prepared(TRACE, PROFILES, prefix_cache=True)
    one, other = prompts(replay, trace, 1, 0), prompts(replay, trace, 2, 0)
    blocks = 5000 // 256 * 256
    for pair in ((one["draft_sql_0"], one["draft_sql_1"]), (one["draft_sql_0"], other["draft_sql_0"])):
        assert 4 * blocks <= shared(*pair) < 4 * (blocks + 256)
    assert shared(one["choose_0"], other["choose_0"]) < 256


def test_without_the_cache_no_two_prompts_begin_alike(replay: ModuleType) -> None:
    trace = replay.prepared(TRACE, PROFILES, prefix_cache=False)
    found = [prompt for number in (1, 2) for prompt in prompts(replay, trace, number, 0).values()]
    assert all(shared(one, other) < 256 for at, one in enumerate(found) for other in found[:at])


def test_a_call_that_an_instance_cannot_take_is_refused(replay: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = (TracedWorkflow((TracedCall("draft", 40_000, 1, ()),)),)
    with pytest.raises(module("chains", monkeypatch).BenchmarkError, match="a call of 40001 tokens"):
        replay.prepared(trace, PROFILES, prefix_cache=False)


def test_what_is_submitted_is_what_is_simulated(replay: ModuleType) -> None:
    trace = replay.prepared(generate(Recipe("text2sql-1", workflows=20)), PROFILES, prefix_cache=False)
    load = replay.Load(trace, PROFILES, count=30, rate=0.5, seed=3, slo_s=60.0)
    workload, arrivals = load.workload(), load.arrivals_s()
    assert [at_s for at_s, _ in arrivals] == workload.workflows["arrival"].tolist()
    lengths = [call.output_tokens for _, which in arrivals for call in trace[which].calls]
    assert lengths == workload.calls["output_tokens"].tolist()


def test_the_coordinator_is_taught_the_means_of_the_trace(replay: ModuleType) -> None:
    trace = replay.prepared(TRACE, PROFILES, prefix_cache=False)
    known = replay.documents(trace)
    estimates = Estimates()
    estimates.replace(replay.lessons(trace, known))
    stages = compile_definition(known[0]).stages
    assert estimates.output_tokens("replay", stages["draft_sql_1"]) == pytest.approx(550)
    assert estimates.output_tokens("replay", stages["choose_0"]) == pytest.approx(20)
    assert estimates.prompt_tokens("replay", stages["draft_sql_0"]) == pytest.approx(8500, rel=0.01)
    assert estimates.chars_per_token("replay", stages["draft_sql_0"]) == pytest.approx(4)


def test_the_score_weighs_scaled_times_as_it_weighs_real_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = module("comparing", monkeypatch).Plan(TRACE, PROFILES, 1, 0.1, 8.0, 0.8, "poisson", False)
    real, fast = (policy("hexgen", plan.parameters("hexgen", scale)) for scale in (1.0, 8.0))
    assert (real.r, real.floor_s) == (pytest.approx(25), 1)
    assert policy("flow", plan.parameters("flow", 8.0)) == policy("flow")
    # own - r / (backlog + floor), all of it in units of 1/8 s
    assert 8 * (3.0 / 8 - fast.r / (5.0 / 8 + fast.floor_s)) == pytest.approx(3.0 - real.r / (5.0 + real.floor_s))


def test_means_are_taken_over_seeds_and_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    live = module("live", monkeypatch)
    pairs = [
        live.Pair("vllm", 0, live.Latency(10, 30), (live.Latency(10, 20), live.Latency(10, 30)), 0.0),
        live.Pair("vllm", 1, live.Latency(20, 40), (live.Latency(20, 40), live.Latency(20, 30)), 0.0),
    ]
    row = live.means(pairs)
    assert (row["live_p95_s"], row["simulated_p95_s"], row["ratio_p95_s"]) == (35, 30, 1.167)
    assert (row["ratio_p50_s"], row["spread_p95_s"]) == (1, 0)
    assert "1.167" in live.table({"vllm": row})


def test_ray_serve_is_compared_by_means(monkeypatch: pytest.MonkeyPatch) -> None:
    ray_serve = module("ray_serve", monkeypatch)
    runs = [
        {"name": "ray serve", "seed": 0, "p50_s": 10.0, "p95_s": 30.0},
        {"name": "flow", "seed": 0, "p50_s": 5.0, "p95_s": 10.0},
    ]
    assert ray_serve.summary(runs, "flow")["ratio"] == {"p50_s": 2.0, "p95_s": 3.0}


def test_real_engines_are_compared_by_latency_and_tokens_from_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    engines = module("engines", monkeypatch)
    usage = {"a": {"prompt_tokens": 300, "cached_tokens": 100}, "b": {"prompt_tokens": 100, "cached_tokens": 100}}
    found = {"failed": 0, "workflows": 1, "errors": [], "p50_s": 1.0, "p95_s": 2.0, "usage": usage, "instances": {}}
    row = engines.figures(found)
    assert (row["cached_tokens"], row["prompt_tokens"], row["cached_share"]) == (200, 400, 0.5)
    assert engines.means([row, row | {"p95_s": 4.0}]) == {"p50_s": 1.0, "p95_s": 3.0, "cached_share": 0.5}
    with pytest.raises(HexgenError, match="1 of 1 workflows failed: too long"):
        engines.figures(found | {"failed": 1, "errors": ["too long"]})
