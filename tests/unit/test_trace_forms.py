"""Traces: the forms that are read, what is refused, and that what is written is read again."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.errors import InvalidDocument
from coordinator.simulator.trace import Trace, TracedCall, TracedWorkflow, check_trace, read_trace, write_trace

CALL = {"stage": "a", "prompt_tokens": 100, "output_tokens": 5}
LINE = {"timestamp": 1500, "input_length": 1100, "output_length": 0, "hash_ids": [7, 8, 9]}


def read(folder: Path, document: object, name: str = "trace.json") -> Trace:
    path = folder / name
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return read_trace(path)


def workflow(**changes: object) -> dict[str, object]:
    return {"calls": [CALL], **changes}


def test_a_workflow_says_whose_it_was_and_when_it_came(tmp_path: Path) -> None:
    given = workflow(tenant="ann", slo_scale=0.5, weight=2, arrival_s=3)
    (found,) = read(tmp_path, [given])
    assert found == TracedWorkflow((TracedCall("a", 100, 5),), "ann", 0.5, 2.0, 3.0)
    assert read(tmp_path, [workflow()]) == (TracedWorkflow((TracedCall("a", 100, 5),), "default", 1.0, 1.0, None),)


def test_a_line_of_mooncake_is_a_workflow_whose_full_blocks_are_shared(tmp_path: Path) -> None:
    later = {**LINE, "timestamp": 2500, "hash_ids": [7, 8, 5]}
    found = read(tmp_path, "\n".join(map(json.dumps, [LINE, later])) + "\n", "recorded.jsonl")
    prefix = (("7", 512), ("8", 1024))
    assert [one.calls for one in found] == [(TracedCall("call", 1100, 1, prefix=prefix),)] * 2
    assert [one.arrival_s for one in found] == [1.5, 2.5]


@pytest.mark.parametrize(
    ("document", "place", "fault"),
    [
        ([workflow(tenant="")], "trace.json[0].tenant", "must be a text"),
        ([workflow(slo_scale=0)], "trace.json[0].slo_scale", "not 0"),
        ([workflow(weight="heavy")], "trace.json[0].weight", "not 'heavy'"),
        ([workflow(arrival_s=-1)], "trace.json[0].arrival_s", "not -1"),
        ([workflow(arrival_s=2), workflow(arrival_s=1)], "trace.json[1].arrival_s", "sort by arrival"),
        ([workflow(arrival_s=2), workflow()], "trace.json[1].arrival_s", "for all workflows or none"),
        ([workflow(color="red")], "trace.json[0].color", "is not one of"),
        ([7], "trace.json[0]", "must be a mapping"),
        ([{"calls": 7}], "trace.json[0]", "has no calls"),
        ([workflow(calls=[7])], "trace.json[0].calls[0]", "must be a mapping"),
        ([workflow(calls=[{"stage": "a", "prompt_tokens": 1}])], "trace.json[0].calls[0].output_tokens", "not None"),
        ([workflow(calls=[{**CALL, "prefix": [[5, 5]]}])], "trace.json[0].calls[0].prefix", "must be a text"),
        ([workflow(calls=[{**CALL, "prefix": [["k", 9], ["l", 9]]}])], "trace.json[0].calls[0].prefix", "more than"),
        ([{**LINE, "hash_ids": [7]}], "trace.json[0].hash_ids", "must be 3 whole numbers, one for each 512 tokens"),
        ([{**LINE, "hash_ids": [7, None, 9]}], "trace.json[0].hash_ids", "must be 3 whole numbers"),
        ([workflow(calls=[CALL, {**CALL, "needs": [False]}])], "trace.json[0].calls[1].needs", "must be positions"),
        ([workflow(tenant="\ud800")], "trace.json[0].tenant", "must be a text, not '\\ud800'"),
        ([workflow(**{"\ud800": 1})], "trace.json[0]", "must be a text, not '\\ud800'"),
        ([{**LINE, "timestamp": None}], "trace.json[0].timestamp", "milliseconds"),
        ('[{"calls": [{"stage": "a", "prompt_tokens": NaN, "output_tokens": 1}]}]', "prompt_tokens", "not nan"),
        ('[{"calls": [{"stage": "t", "prompt_tokens": 1, "output_tokens": 1, "tool_s": NaN}]}]', "tool_s", "not nan"),
        ('[{"calls": [{"stage": "a", "prompt_tokens": 1, "output_tokens": 1}], "slo_scale": NaN}]', "slo", "not nan"),
        ("[" * 100_000, "trace.json", "is not JSON"),
        ("", "trace.json", "at least one"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(tmp_path: Path, document: object, place: str, fault: str) -> None:
    with pytest.raises(InvalidDocument) as refused:
        read(tmp_path, document)
    assert place in refused.value.field
    assert fault in refused.value.message


@pytest.mark.parametrize("name", ["recorded.json", "recorded.jsonl"])
def test_entries_may_stand_in_lines_whatever_the_files_name(tmp_path: Path, name: str) -> None:
    lines = "\n".join(json.dumps(workflow(tenant=tenant), ensure_ascii=False) for tenant in ("a\u2028b", "c"))
    assert [one.tenant for one in read(tmp_path, lines, name)] == ["a\u2028b", "c"]
    assert read(tmp_path, [workflow()], name) == read(tmp_path, workflow(), name)


def test_a_line_that_is_not_json_is_told_by_its_number(tmp_path: Path) -> None:
    with pytest.raises(InvalidDocument, match=r"is not JSON: .* line 3 column 15 "):
        read(tmp_path, "\n".join([json.dumps(LINE), "", '{"timestamp": }']), "recorded.jsonl")


def test_an_empty_file_of_lines_and_one_that_is_no_text(tmp_path: Path) -> None:
    with pytest.raises(InvalidDocument, match="at least one"):
        read(tmp_path, "\n", "recorded.jsonl")
    (tmp_path / "bytes.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidDocument, match="is not JSON"):
        read_trace(tmp_path / "bytes.json")


def shares(*prefix: tuple[str, int]) -> TracedWorkflow:
    return TracedWorkflow((TracedCall("a", 100, 5, prefix=prefix),))


def test_a_prefix_key_is_the_same_text_everywhere_but_a_workflows_own() -> None:
    check_trace("t", (shares(("k", 10), (".own", 20)), shares(("k", 10), (".own", 30))))
    for other in (shares(("k", 11)), shares(("j", 5), ("k", 10))):
        with pytest.raises(InvalidDocument, match=r"t\[1\].prefix: key 'k'"):
            check_trace("t", (shares(("k", 10)), other))


@st.composite
def calls(draw: st.DrawFn) -> tuple[TracedCall, ...]:
    found = []
    for at in range(draw(st.integers(1, 5))):
        tool_s = draw(st.sampled_from([0.0, 0.0, 0.25, 1e-3]))
        prompt, output = draw(st.integers(1, 10_000_000)), draw(st.integers(1, 5000))
        needs = draw(st.lists(st.integers(0, at - 1), unique=True)) if at else []
        prefix = ((f".{at}", draw(st.integers(1, prompt))),) if draw(st.booleans()) else ()
        found.append(TracedCall(draw(st.text(min_size=1, max_size=5)), prompt, output, tuple(needs), tool_s, prefix))
    return tuple(found)


FACTORS = st.floats(1e-6, 1e6)
WORKFLOWS = st.builds(TracedWorkflow, calls(), st.text(min_size=1, max_size=9), FACTORS, FACTORS, st.none())


@given(st.lists(WORKFLOWS, min_size=1, max_size=4), st.lists(st.floats(0, 1e9), min_size=4, max_size=4) | st.none())
def test_what_is_written_is_read_again(
    tmp_path_factory: pytest.TempPathFactory, workflows: list[TracedWorkflow], arrivals: list[float] | None
) -> None:
    if arrivals:
        paired = zip(workflows, sorted(arrivals), strict=False)
        workflows = [replace(one, arrival_s=at) for one, at in paired]
    path = tmp_path_factory.getbasetemp() / "written.json"
    write_trace(path, tuple(workflows))
    assert read_trace(path) == tuple(workflows)
