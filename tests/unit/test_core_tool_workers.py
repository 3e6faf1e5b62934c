"""The core: tool requests wait while no tool worker has the tool, or not all of them."""

import pytest
from core_bench import START, Bench

ONE = {"stages": {"a": {"tool": "t", "args": {"n": 1}}}}


@pytest.mark.parametrize(
    ("offered", "reason"),
    [
        ((), "no tool worker is running"),
        (({"u"}, {"u", "v"}), "no tool worker offers t"),
        (({"t", "u"}, {"u"}), "not every tool worker offers t"),
    ],
)
def test_a_tool_request_waits_until_all_tool_workers_have_its_tool(offered, reason):
    bench = Bench(ONE)
    bench.offer(*offered)
    assert bench.submit().delays == [("a", 1000)]
    bench.wait()
    assert bench.told == ["stage_started a", "waiting a"]
    assert bench.events[-1][1] == {"stage": "a", "reason": reason}
    bench.offer({"t"}, {"t", "u"})
    bench.wait()
    assert bench.of("a").instance == "tools"


def test_another_reason_is_told_anew():
    bench = Bench(ONE)
    bench.offer()
    bench.submit()
    bench.offer({"u"})
    bench.wait()
    assert [data["reason"] for kind, data in bench.events if kind == "waiting"] == [
        "no tool worker is running",
        "no tool worker offers t",
    ]


def test_at_the_deadline_it_fails_with_the_reason():
    bench = Bench(ONE, slo_s=1.5)
    bench.offer()
    bench.submit()
    bench.wait()
    bench.wait()
    assert bench.now == START + 1500
    assert bench.error == ("a", "no tool worker is running, and the deadline has passed")


def test_what_was_queued_waits_under_its_id_when_the_last_tool_worker_goes():
    bench = Bench(ONE)
    bench.submit()
    request = bench.of("a").request
    bench.offer()
    assert bench.evacuate("a").delays == [("a", 1000)]
    bench.offer({"t"})
    bench.wait()
    assert bench.of("a").request == request
