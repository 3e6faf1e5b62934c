"""What a completed workflow leaves for replays."""

from dataclasses import replace

from core_bench import START, Bench, asked
from core_definitions import documents
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from common.model import Usage
from common.recorded import Recorded, pack, unpack
from coordinator.recording import MOST_CALLS, recorded


def record_of(bench: Bench) -> Recorded:
    found = recorded(bench.workflow, START + 2500, "hexgen", {"alpha": 0.5})
    assert found
    return found


@settings(suppress_health_check=[HealthCheck.too_slow], max_examples=100)
@given(documents() | documents(joins=True), st.booleans())
def test_a_call_needs_those_whose_last_end_started_it(document, flag):
    """Every request is there once, and was dispatched in the very step in which the last of its needs ended."""
    bench = Bench(document, {"flag": flag}, slo_s=600)
    dispatched, ended = {push.node: 0 for push in bench.submit().pushes}, {}
    step = 0
    while bench.status == "running":
        step += 1
        node = next(iter(bench.queue.values())).node
        made = bench.complete(node, asked(bench.of(node)))
        ended[node] = step
        dispatched |= {push.node: step for push in made.pushes}
    if not ended:
        assert recorded(bench.workflow, START, "hexgen", {}) is None
        return
    marks = {1000 + at: node for at, node in enumerate(ended)}  # each node known again by its run time
    for mark, node in marks.items():
        bench.workflow.outputs[node] = replace(bench.workflow.outputs[node], run_ms=mark)
    calls = record_of(bench).calls
    nodes = [marks[round(1000 * call.run_s)] for call in calls]
    assert sorted(nodes) == sorted(ended)
    for at, (call, node) in enumerate(zip(calls, nodes, strict=True)):
        assert all(before < at for before in call.needs)
        assert dispatched[node] == max((ended[nodes[before]] for before in call.needs), default=0)


DOCUMENT = {
    "name": "flow",
    "stages": {
        "plan": {"prompt": "plan"},
        "fetch": {"needs": ["plan"], "tool": "t"},
        "write": {"needs": ["fetch"], "for_each": "[1, 2]", "prompt": "{{ item }}"},
    },
}


def test_tokens_times_and_tools() -> None:
    record = record_of(Bench(DOCUMENT).run())
    assert [call.stage for call in record.calls] == ["plan", "fetch", "write", "write"]
    assert [call.needs for call in record.calls] == [(), (0,), (1,), (1,)]
    assert [call.tool_s for call in record.calls] == [0.0, 0.05, 0.0, 0.0]
    plan = record.calls[0]
    assert (plan.prompt_tokens, plan.output_tokens, plan.queued_s, plan.run_s) == (100, 10, 0.005, 0.05)
    assert (record.latency_s, record.slo_s, record.policy) == (2.5, 60.0, "hexgen")


def test_a_record_through_bytes_is_the_same() -> None:
    record = record_of(Bench(DOCUMENT).run())
    data = pack(record)
    assert unpack(data) == record
    assert len(data) < 150


def test_what_cannot_be_replayed_is_not_recorded() -> None:
    untold = Bench(DOCUMENT).run().workflow
    untold.outputs["plan"] = replace(untold.outputs["plan"], usage=Usage())
    assert recorded(untold, START, "hexgen", {}) is None
    wide = {"name": "wide", "stages": {"a": {"for_each": f"range({MOST_CALLS + 1}) | list", "prompt": "x"}}}
    assert recorded(Bench(wide).run().workflow, START, "hexgen", {}) is None
