"""Traces of OpenTelemetry: what becomes a call, what it waited for, whose it was, and what is refused."""

import json
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.errors import InvalidDocument
from coordinator.simulator.otel import told_as_ours
from coordinator.simulator.trace import Trace, TracedCall, read_trace

BEGIN_NS = 1_700_000_000_000_000_000
INPUT, OUTPUT = "gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens"
OPERATION, STAGE, TENANT = "gen_ai.operation.name", "hexgen.stage", "hexgen.tenant"


def attributes(values: dict[str, Any]) -> list[dict[str, Any]]:
    kinds = {int: "intValue", str: "stringValue", float: "doubleValue", bool: "boolValue"}
    return [
        {"key": key, "value": {kinds[type(value)]: str(value) if type(value) is int else value}}
        for key, value in values.items()
    ]


def span(name: str, start: float, end: float, having: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    """A span from `start` to `end` s of its file; its id is its name if not told otherwise."""
    times = (str(BEGIN_NS + round(second * 1e9)) for second in (start, end))
    fields = dict(zip(("startTimeUnixNano", "endTimeUnixNano"), times, strict=True))
    return {"traceId": "a1", "spanId": name, "name": name, **fields, "attributes": attributes(having or {}), **changes}


def call(name: str, start: float, end: float, prompt: int = 100, output: int = 10, **changes: Any) -> dict[str, Any]:
    return span(name, start, end, {OPERATION: "chat", INPUT: prompt, OUTPUT: output}, **changes)


def document(*spans: dict[str, Any], service: str = "shop") -> dict[str, Any]:
    resource = {"attributes": attributes({"service.name": service})}
    return {"resourceSpans": [{"resource": resource, "scopeSpans": [{"scope": {}, "spans": list(spans)}]}]}


def read(folder: Path, *documents: object, name: str = "otel.json") -> Trace:
    path = folder / name
    path.write_text("\n".join(map(json.dumps, documents)))
    return read_trace(path)


def needs(calls: tuple[TracedCall, ...]) -> dict[str, set[str]]:
    return {one.stage: {calls[before].stage for before in one.needs} for one in calls}


def test_a_call_waits_for_those_that_ended_before_it_began_and_for_no_more_than_it_must(tmp_path: Path) -> None:
    spans = [call("last", 6, 7), call("b", 1, 3), call("first", 0, 1), call("a", 1, 4), call("after-a", 4, 6)]
    (found,) = read(tmp_path, document(*spans))
    assert needs(found.calls) == {"first": set(), "a": {"first"}, "b": {"first"}, "after-a": {"a", "b"},
                                  "last": {"after-a"}}  # fmt: skip
    assert (found.tenant, found.arrival_s) == ("shop", 0.0)


def test_the_time_of_tools_and_of_the_client_is_a_tools(tmp_path: Path) -> None:
    spans = [
        span("request", 0, 9),
        span("look up", 0.1, 0.4, {OPERATION: "execute_tool"}, parentSpanId="request"),
        call("draft", 0.5, 2, parentSpanId="request"),
        span("run", 2, 5, {OPERATION: "execute_tool"}, parentSpanId="request"),
        call("choose", 5.005, 8, parentSpanId="request"),
        call("check", 8.005, 8.995, parentSpanId="request"),
    ]
    (found,) = read(tmp_path, document(*spans))
    assert found.calls == (
        TracedCall("before draft", 0, 0, (), 0.5),
        TracedCall("draft", 100, 10, (0,)),
        TracedCall("before choose", 0, 0, (1,), 3.005),
        TracedCall("choose", 100, 10, (2,)),
        TracedCall("check", 100, 10, (3,)),
    )
    (found,) = read(tmp_path, document(*spans, span("tell", 8.995, 9.5)))
    assert found.calls[-1] == TracedCall("after all", 0, 0, (4,), 0.505)


def test_only_the_innermost_span_of_a_model_is_a_call(tmp_path: Path) -> None:
    spans = [
        span("agent", 0, 3, {OPERATION: "invoke_agent", INPUT: 500, OUTPUT: 50}),
        span("remote agent", 2, 3, {OPERATION: "invoke_agent", INPUT: 500, OUTPUT: 50}),
        call("library", 0, 2, 300, 30, parentSpanId="agent"),
        call("client", 0, 2, 301, 31, parentSpanId="step"),
        span("step", 0, 2, parentSpanId="library"),
        span("POST", 0, 2, {"http.request.method": "POST"}, parentSpanId="client"),
        span("embed", 2, 3, {OPERATION: "embeddings", INPUT: 70}),
        span("too many requests", 2, 2.1, {OPERATION: "chat", INPUT: 4}, status={"code": 2}),
    ]
    (found,) = read(tmp_path, document(*spans))
    assert found.calls == (TracedCall("client", 301, 31), TracedCall("after all", 0, 0, (0,), 1.0))


def test_a_trace_without_a_call_is_left_out_and_the_first_with_one_comes_at_0_s(tmp_path: Path) -> None:
    health = span("health", 0, 1, traceId="c3")
    (found,) = read(tmp_path, document(health, call("a", 7, 8)))
    assert ([one.stage for one in found.calls], found.arrival_s) == (["a"], 0.0)


def test_a_span_that_was_delivered_twice_is_one_and_an_embedding_is_no_call(tmp_path: Path) -> None:
    embedding = span("openai.embeddings", 1, 2, {INPUT: 30})
    (found,) = read(tmp_path, document(embedding, call("a", 1, 2)), document(call("a", 1, 2)))
    assert [one.stage for one in found.calls] == ["a"]


def test_a_call_that_failed_but_tells_its_tokens_is_one(tmp_path: Path) -> None:
    (found,) = read(tmp_path, document(call("cut off", 0, 1, output=3, status={"code": 2})))
    assert found.calls == (TracedCall("cut off", 100, 3),)


def test_lengths_are_told_in_old_and_new_words_and_an_empty_answer_is_one_token(tmp_path: Path) -> None:
    old = {"gen_ai.usage.prompt_tokens": 7, "gen_ai.usage.completion_tokens": 0}
    number = [{"key": INPUT, "value": {"intValue": 8}}, {"key": OUTPUT, "value": {"doubleValue": 9.0}}]
    spans = [span("old", 0, 1, old), span("new", 1, 2) | {"attributes": number}]
    (found,) = read(tmp_path, document(*spans))
    assert found.calls == (TracedCall("old", 7, 1), TracedCall("new", 8, 9, (0,)))


def test_a_stage_is_told_by_the_call_or_around_it_else_it_is_the_spans_name(tmp_path: Path) -> None:
    own = span("chat m", 0, 1, {OPERATION: "chat", STAGE: "draft", INPUT: 5, OUTPUT: 5}, parentSpanId="outer")
    around = span("outer", 0, 2, {STAGE: "revise"})
    within = call("chat n", 1, 2, parentSpanId="outer")
    unnamed = call("x", 2, 3) | {"name": ""}
    (found,) = read(tmp_path, document(own, around, within, call("chat o", 3, 4), unnamed))
    assert [one.stage for one in found.calls] == ["draft", "revise", "chat", "chat o"]


def test_workflows_come_by_arrival_from_all_lines_and_the_tenant_is_told_or_the_service(tmp_path: Path) -> None:
    late = call("late", 5, 6, traceId="b2") | {"attributes": attributes({INPUT: 1, OUTPUT: 1, TENANT: "ann"})}
    lines = (document(late, call("second", 3, 4)), document(call("first", 1, 2), service="front"))
    for name in ("otel.json", "otel.jsonl"):
        first, second = read(tmp_path, *lines, name=name)
        assert (first.tenant, first.arrival_s, len(first.calls)) == ("front", 0.0, 3)
        assert (second.tenant, second.arrival_s, second.calls[0].stage) == ("ann", 4.0, "late")
    (nobody,) = read(tmp_path, {"resourceSpans": [{"scopeSpans": [{"spans": [call("a", 0, 1)]}]}]})
    assert nobody.tenant == "default"


PLAIN = call("a", 0, 1)


@pytest.mark.parametrize(
    ("spans", "place", "fault"),
    [
        ([], "otel.json", "has no spans"),
        ([span("a", 0, 1)], "otel.json", f"has no span that is a call, which has {INPUT}"),
        ([span("a", 0, 1, {OPERATION: "chat"})], f"otel.json[0] span a.{INPUT}", "whole number of tokens"),
        ([span("a", 0, 1, {OPERATION: "chat", INPUT: 5})], f"otel.json[0] span a.{OUTPUT}", "not None"),
        ([span("a", 0, 1, {INPUT: 5})], "otel.json", "has no span that is a call"),
        ([span("a", 0, 1, {INPUT: "5", OUTPUT: 5})], f"otel.json[0] span a.{INPUT}", "not '5'"),
        ([span("a", 0, 1, {INPUT: 5.5, OUTPUT: 5})], f"otel.json[0] span a.{INPUT}", "not 5.5"),
        ([call("a", 0, 1, prompt=-5)], f"otel.json[0] span a.{INPUT}", "not '-5'"),
        ([call("a", 2, 1)], "otel.json[0] span a.endTimeUnixNano", "is before its start"),
        ([PLAIN | {"endTimeUnixNano": "0"}], "otel.json[0] span a.endTimeUnixNano", "nanoseconds since 1970, not 0"),
        ([PLAIN | {"startTimeUnixNano": "soon"}], "otel.json[0] span a.startTimeUnixNano", "not 'soon'"),
        ([PLAIN | {"startTimeUnixNano": "9" * 5000}], "otel.json[0] span a.startTimeUnixNano", "nanoseconds"),
        ([PLAIN, call("a", 2, 3)], "otel.json[0] span a.spanId", "two spans of trace a1"),
        ([PLAIN | {"spanId": ""}], "otel.json[0].resourceSpans[0].scopeSpans[0].spans[0].spanId", "must be a text"),
        ([PLAIN | {"traceId": None}], "otel.json[0] span a.traceId", "must be a text"),
        ([PLAIN | {"attributes": [5]}], "otel.json[0] span a.attributes", "must be a list of mappings"),
        ([PLAIN | {"attributes": [{"value": {}}]}], "otel.json[0] span a.attributes[0].key", "must be a text"),
        ([span("a", 0, 1, {INPUT: 5, OUTPUT: 5, STAGE: 7})], f"otel.json[0] span a.{STAGE}", "must be a text, not 7"),
        ([PLAIN, call("b", 90_001, 90_002)], "otel.json[0] span b: the wait before it", "to 86400, not 90000"),
        ([PLAIN, span("b", 9, 90_001)], "otel.json[0] span a: the wait after it", "to 86400, not 90000"),
        ([PLAIN | {"parentSpanId": "b"}, call("b", 0, 1, parentSpanId="a")], "otel.json", "is a call"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_with_span_and_field(
    tmp_path: Path, spans: list[dict[str, Any]], place: str, fault: str
) -> None:
    with pytest.raises(InvalidDocument) as refused:
        read(tmp_path, document(*spans))
    assert refused.value.field.endswith(place)
    assert fault in refused.value.message


def test_other_lines_among_those_of_traces_are_refused_by_number(tmp_path: Path) -> None:
    with pytest.raises(InvalidDocument, match=r'^otel.json\[1\]: must be {"resourceSpans"'):
        read(tmp_path, document(PLAIN), {"resourceLogs": []})
    with pytest.raises(InvalidDocument, match=r"resourceSpans\[0\].resource.attributes: must be a list"):
        read(tmp_path, {"resourceSpans": [{"resource": 5}]})


INTERVAL = st.tuples(st.integers(0, 12), st.integers(0, 12)).map(lambda two: (min(two), max(two)))


def told(calls: list[tuple[int, int]], others: list[tuple[int, int]]) -> list[dict[str, Any]]:
    """The steps of a workflow with calls and other spans at these times; a call's stage is its number."""
    spans = [call(str(at), *times) for at, times in enumerate(calls)]
    spans += [span(f"other {at}", *times) for at, times in enumerate(others)]
    (workflow,) = told_as_ours("x", [document(*spans)])
    steps: list[dict[str, Any]] = workflow["calls"]
    return steps


@given(st.lists(INTERVAL, min_size=1, max_size=9), st.lists(INTERVAL, max_size=3))
def test_each_step_begins_and_ends_as_recorded(calls: list[tuple[int, int]], others: list[tuple[int, int]]) -> None:
    ends: list[float] = []
    for step in told(calls, others):
        ready = max((ends[one] for one in step["needs"]), default=min(begin for begin, _ in calls + others))
        begin, end = (ready, ready + step["tool_s"]) if step["tool_s"] else calls[int(step["stage"])]
        assert begin == ready
        ends.append(end)
    assert max(ends) == max(end for _, end in calls + others)


@given(st.lists(INTERVAL, min_size=1, max_size=9))
def test_a_call_follows_all_that_ended_before_it_and_names_none_twice(calls: list[tuple[int, int]]) -> None:
    before: list[set[int]] = []
    steps = told(calls, [])
    for at, step in enumerate(steps):
        assert not any(one in before[other] for one in step["needs"] for other in step["needs"])
        before.append(set(step["needs"]).union(*(before[one] for one in step["needs"])))
        if not step["tool_s"]:
            models = {one: calls[int(steps[one]["stage"])] for one in range(at) if not steps[one]["tool_s"]}
            begin, _ = calls[int(step["stage"])]
            assert {one for one, (_, end) in models.items() if end <= begin} == before[at] & models.keys()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(exclude_categories=()), max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
MOONCAKE = [{"timestamp": 0, "input_length": 700, "output_length": 3, "hash_ids": [1, 2]}]
OURS = [{"calls": [{"stage": "a", "prompt_tokens": 5, "output_tokens": 5, "needs": [], "tool_s": 1.5,
                    "prefix": [["k", 3]]}], "tenant": "t", "slo_scale": 1.5, "weight": 2, "arrival_s": 0}]  # fmt: skip
PUBLISHED = [{"x": [{"step": "a", "input_length": 5, "output_length": 5}]}]
OTEL = [document(span("agent", 0, 4, status={"code": 1}), call("a", 0, 2, parentSpanId="agent"), call("b", 3, 4))]


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every place within a value, as container and key."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in pairs:
        yield value, key
        yield from places(inner)


@given(st.sampled_from([OTEL, OTEL, MOONCAKE, OURS, PUBLISHED]), st.data())
def test_whatever_stands_in_any_place_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, form: list[Any], data: st.DataObject
) -> None:
    changed = deepcopy(form)
    for _ in range(data.draw(st.integers(1, 2))):
        found = list(places(changed))
        if found:
            container, key = data.draw(st.sampled_from(found))
            container[key] = data.draw(JSON)
    path = tmp_path_factory.getbasetemp() / "changed.json"
    path.write_text(json.dumps(changed))
    try:
        trace = read_trace(path)
    except InvalidDocument as refused:
        str(refused).encode()
        return
    for workflow in trace:
        "".join([workflow.tenant, *(one.stage for one in workflow.calls)]).encode()
    assert all(one.output_tokens or one.tool_s for workflow in trace for one in workflow.calls)
