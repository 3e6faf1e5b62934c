"""What prompts share: assumed where a trace does not tell, dropped, and counted."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from common.errors import InvalidDocument
from coordinator.simulator.prefixes import assumed_prefixes, is_published, repeatable, without_prefixes
from coordinator.simulator.source import load_trace
from coordinator.simulator.trace import Trace, TracedCall, TracedWorkflow, check_trace


def published(*prompts: tuple[str, int]) -> TracedWorkflow:
    return TracedWorkflow(tuple(TracedCall(stage, tokens, 10) for stage, tokens in prompts))


TRACE: Trace = (
    published(("generate_candidate_x", 12_000), ("generate_candidate_x", 8000), ("revise", 6000), ("revise", 5000)),
    published(("generate_candidate_x", 10_000), ("generate_candidate_x", 9000), ("revise", 7000)),
)


def test_templates_are_shares_of_the_shortest_prompts_and_revise_rounds_share_more() -> None:
    found = assumed_prefixes(TRACE)
    assert [[call.prefix for call in workflow.calls] for workflow in found] == [
        [
            (("generate_candidate#1", 5500),),
            (("generate_candidate#2", 4400),),
            (("revise", 2500), (".revise", 4250)),
            (("revise", 2500), (".revise", 4250)),
        ],
        [(("generate_candidate#1", 5500),), (("generate_candidate#2", 4400),), (("revise", 2500),)],
    ]
    check_trace("assumed", found)
    assert not is_published(found)
    assert without_prefixes(found) == TRACE


def test_what_repeats_is_what_came_before() -> None:
    # Of the second workflow its templates, of the first its second round.
    saved, prompts = 4250 + 5500 + 4400 + 2500, 12_000 + 8000 + 6000 + 5000 + 10_000 + 9000 + 7000
    assert repeatable(assumed_prefixes(TRACE)) == pytest.approx(saved / prompts)
    assert repeatable(TRACE) == 0.0


def test_nothing_is_assumed_of_other_stages() -> None:
    other = (replace(TRACE[0], calls=(*TRACE[0].calls, TracedCall("draft", 900, 9))),)
    assert not is_published(other)
    assert assumed_prefixes(other)[0].calls[-1].prefix == ()


def test_a_trace_is_loaded_with_its_own_prefixes_with_assumed_ones_or_with_none(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    steps = [{"step": "evaluate", "input_length": 1000, "output_length": 5}]
    path.write_text(json.dumps([{"x": steps}]))
    assert load_trace(str(path), prefixes=True)[0].calls[0].prefix == (("evaluate", 400),)
    assert load_trace(str(path), prefixes=False)[0].calls[0].prefix == ()
    own = {"stage": "evaluate", "prompt_tokens": 1000, "output_tokens": 5, "prefix": [["k", 7]]}
    path.write_text(json.dumps([{"calls": [own]}]))
    assert load_trace(str(path), prefixes=True)[0].calls[0].prefix == (("k", 7),)
    assert load_trace(str(path), prefixes=False)[0].calls[0].prefix == ()
    with pytest.raises(InvalidDocument, match="neither a file nor such as"):
        load_trace(str(tmp_path / "none.json"), prefixes=True)
