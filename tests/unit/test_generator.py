"""Generated traces: the statistics they are made for, bounds of every length, recipes, and the commands."""

import json
from collections import Counter
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from common.errors import HexgenError, InvalidDocument
from coordinator.simulator.generator import VARIANTS, Recipe, Tenant, generate
from coordinator.simulator.source import load_trace, recipe
from coordinator.simulator.statistics import statistics
from coordinator.simulator.trace import check_trace, read_trace
from hexgen_flow.cli import main

PUBLISHED = {  # calls, prompt tokens, tokens of answers of a mean workflow
    "text2sql-1": (19.2, 50_500, 1980),
    "text2sql-2": (20.7, 69_700, 2390),
    "text2sql-3": (20.9, 65_600, 2500),
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_means_are_those_published(variant: str) -> None:
    found = statistics(load_trace(f"generated:{variant},workflows=600", prefixes=True))
    calls, prompt, output = PUBLISHED[variant]
    assert found["calls_per_workflow"] == pytest.approx(calls, rel=0.03)
    assert found["prompt_tokens_per_workflow"] == pytest.approx(prompt, rel=0.05)
    assert found["output_tokens_per_workflow"] == pytest.approx(output, rel=0.05)
    assert 0.6 < found["repeatable"] < 0.75
    assert found["distinct"] == 600


@settings(max_examples=25)
@given(st.sampled_from(sorted(VARIANTS)), st.integers(0, 2**40), st.integers(1, 30))
def test_every_workflow_is_a_text2sql_workflow(variant: str, seed: int, count: int) -> None:
    trace = generate(Recipe(variant, count, seed))
    check_trace("generated", trace)
    assert len(trace) == count
    for workflow in trace:
        stages = Counter(call.stage for call in workflow.calls)
        assert (stages["candidate"], stages["retriever"], stages["unit_tester"]) == (2, 4, 3)
        assert stages["revise"] in VARIANTS[variant].rounds
        assert stages["evaluate"] in VARIANTS[variant].evaluates
        for at, call in enumerate(workflow.calls):
            assert 200 < call.prompt_tokens < 15_000
            assert 0 < call.output_tokens < 1100
            assert all(before < at for before in call.needs)
            assert call.needs or at == 0
            lengths = [0, *(tokens for _, tokens in call.prefix), call.prompt_tokens]
            assert lengths == sorted(set(lengths))


def test_the_numbers_of_revise_rounds_are_equally_often() -> None:
    trace = generate(Recipe("text2sql-3", 110, 4))
    rounds = Counter(sum(call.stage == "revise" for call in workflow.calls) for workflow in trace)
    assert rounds == dict.fromkeys(range(11), 10)


def test_lengths_within_a_workflow_lean_to_the_same_side() -> None:
    answers = [
        [call.output_tokens for call in workflow.calls if call.stage == "candidate"]
        for workflow in generate(Recipe("text2sql-1", 400))
    ]
    first, second = zip(*answers, strict=True)
    middle = sorted(first)[200]
    long = [after for before, after in answers if before > middle]
    assert sum(long) / len(long) > sum(second) / len(second) + 20


def test_a_recipe_gives_the_same_again_and_another_seed_another() -> None:
    wanted = "generated:text2sql-2,workflows=20,tenants=3,singles=0.4,seed="
    assert load_trace(wanted + "5", prefixes=True) == load_trace(wanted + "5", prefixes=True)
    assert load_trace(wanted + "5", prefixes=True) != load_trace(wanted + "6", prefixes=True)


def test_tenants_have_their_shares_and_scales_single_calls_their_own() -> None:
    trace = load_trace("generated:text2sql-1,workflows=1200,tenants=2,singles=0.5,slos=0.5/2", prefixes=True)
    counts = Counter(workflow.tenant for workflow in trace)
    shares = {tenant: count / 1200 for tenant, count in counts.items()}
    assert shares == pytest.approx({"tenant-1": 1 / 3, "tenant-2": 1 / 6, "chat": 0.25, "rag": 0.25}, abs=0.04)
    singles = [workflow for workflow in trace if workflow.tenant in ("chat", "rag")]
    assert all([call.stage for call in workflow.calls] == [workflow.tenant] for workflow in singles)
    assert {workflow.slo_scale for workflow in trace if workflow not in singles} == {0.5, 2.0}
    assert {workflow.slo_scale for workflow in singles} == {0.2, 0.3}


@pytest.mark.parametrize(
    ("wanted", "fault"),
    [
        ("text2sql-9", "is not one of text2sql-1"),
        ("text2sql-1,workflows=0", "from 1 to"),
        ("text2sql-1,workflows=many", "a whole number, not 'many'"),
        ("text2sql-1,color=red", "must be one of workflows="),
        ("text2sql-1,seed=-1", "seed: must be"),
        ("text2sql-1,tenants=0", "from 1 to"),
        ("text2sql-1,singles=1", "below 1"),
        ("text2sql-1,singles=nan", "below 1"),
        ("text2sql-1,slos=1/nan", "nan must be a number"),
        ("text2sql-1,slos=1//2", "with / between"),
    ],
)
def test_a_bad_recipe_is_refused(wanted: str, fault: str) -> None:
    with pytest.raises(InvalidDocument, match=fault):
        generate(recipe(wanted))


def test_tenants_that_cannot_be(tmp_path: Path) -> None:
    for tenants in ((), (Tenant("a", "poem"),), (Tenant("a", share=0.0),), (Tenant("a", weight=float("nan")),)):
        with pytest.raises(HexgenError, match="tenant"):
            generate(Recipe("text2sql-1", tenants=tenants))


def test_the_commands_write_a_trace_and_show_it(tmp_path: Path) -> None:
    out = str(tmp_path / "made.json")
    made = CliRunner().invoke(main, ["trace", "generate", "text2sql-1,workflows=5", "--out", out, "--rate", "0.5"])
    assert (made.exit_code, made.output.split(":")[1].split()[:2]) == (0, ["5", "workflows,"])
    trace = read_trace(Path(out))
    assert [workflow.calls for workflow in trace] == [one.calls for one in generate(Recipe("text2sql-1", 5))]
    assert all(workflow.arrival_s is not None for workflow in trace)
    shown = CliRunner().invoke(main, ["trace", "show", out, "--json"])
    assert json.loads(shown.output)["workflows"] == 5
    assert "candidate" in CliRunner().invoke(main, ["trace", "show", out]).output
    refused = CliRunner().invoke(main, ["trace", "generate", "text2sql-1", "--out", str(tmp_path / "no" / "made.json")])
    assert refused.exit_code != 0
    assert "cannot be written" in refused.output
