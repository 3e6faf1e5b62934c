"""Recorded workflows as a trace, their arrival, and their replay in the simulator."""

from dataclasses import replace
from pathlib import Path

import pytest

from common.errors import InvalidDocument
from common.profiles import A100, L40S
from common.recorded import Recorded, RecordedCall
from coordinator.replay import Rate, Replay, arrival_rate, burstiness, fitting, trace_of, usual_slo_s, warm
from coordinator.simulator.trace import read_trace, write_trace


def call(stage: str, prompt: int = 900, output: int = 50, cached: int = 0, needs: tuple[int, ...] = ()) -> RecordedCall:
    return RecordedCall(stage, prompt, output, cached, needs, 0.1, 1.5)


def workflow(at: int, **changes: object) -> Recorded:
    calls = (call("draft", cached=640 + at), call("tool", 0, 0, needs=(0,)), call("answer", 300, 20, needs=(1,)))
    record = Recorded("w", f"t{at % 2}", 1000 * at, 1000 * at + 20_000, 1000 * at + 9000, "hexgen", {}, calls)
    return replace(record, **changes)  # type: ignore[arg-type]


RECORDS = [workflow(at) for at in range(40)]


def test_records_become_a_trace_in_the_order_of_arrival() -> None:
    slow = workflow(7, deadline_at=47_000)
    trace = trace_of([*RECORDS[8:], slow, *RECORDS[:7]])
    assert [one.arrival_s for one in trace] == [float(at) for at in range(40)]
    assert (trace[7].tenant, trace[7].slo_scale, trace[8].slo_scale) == ("t1", 2.0, 1.0)
    draft, tool, answer = trace[0].calls
    assert (draft.stage, draft.prompt_tokens, draft.output_tokens, draft.needs) == ("w/draft", 900, 50, ())
    assert (tool.tool_s, tool.needs, answer.needs) == (1.5, (0,), (1,))


def test_what_caches_had_of_most_prompts_of_a_stage_is_their_common_beginning() -> None:
    draft, _, answer = trace_of(RECORDS)[0].calls
    assert draft.prefix == (("w/draft", 644),)
    assert answer.prefix == ()
    rarely = [replace(one, calls=(call("draft", cached=640 if at < 10 else 0),)) for at, one in enumerate(RECORDS)]
    assert trace_of(rarely)[0].calls[0].prefix == ()
    short = replace(RECORDS[0], calls=(call("draft", prompt=600),))
    assert trace_of([*RECORDS[1:], short])[0].calls[0].prefix == ()


def test_what_is_exported_is_read_again_as_it_was(tmp_path: Path) -> None:
    trace = trace_of(RECORDS)
    write_trace(tmp_path / "live.json", trace)
    assert read_trace(tmp_path / "live.json") == trace


def test_workflows_with_a_call_that_no_instance_can_hold_are_left_out() -> None:
    large = replace(RECORDS[0], calls=(call("draft", prompt=L40S.kv_tokens),))
    assert fitting([large, RECORDS[1]], [L40S, L40S]) == [RECORDS[1]]
    assert fitting([large, RECORDS[1]], [A100, L40S]) == [large, RECORDS[1]]
    assert fitting(RECORDS, []) == []


@pytest.mark.parametrize("policy", ["flow", "hexgen"])
def test_a_call_that_one_instance_only_can_hold_is_replayed_there(policy: str) -> None:
    large = [replace(one, calls=(call("draft", prompt=L40S.kv_tokens),)) for one in RECORDS]
    both, one = (
        Replay(fitting(large, cluster), cluster, policy, Rate(0.05), "poisson") for cluster in ([A100, L40S], [A100])
    )
    assert both.p95_s({}, 20, 1) == one.p95_s({}, 20, 1)


def every(gap_ms: int, count: int, start: int = 0) -> list[int]:
    return [start + gap_ms * at for at in range(1, count + 1)]


def test_a_steady_rate_is_counted_over_long() -> None:
    for gap_ms in (100, 2000, 15_000):
        found = arrival_rate(every(gap_ms, 200), 200 * gap_ms)
        assert found.per_s == pytest.approx(1000 / gap_ms, rel=0.02)
        assert found.error < 0.12


def test_chance_does_not_look_like_load() -> None:
    """Twenty that came a third faster than those before them may well be chance."""
    times = [*every(10_000, 80), *every(7500, 20, start=800_000)]
    assert arrival_rate(times, times[-1]).per_s == pytest.approx(0.1, rel=0.1)


def test_a_step_is_seen_within_twenty_arrivals_or_a_minute() -> None:
    slow = every(20_000, 100)
    steep = [*slow, *every(4000, 20, start=slow[-1])]
    assert arrival_rate(steep, steep[-1]) == (pytest.approx(1 / 4, rel=0.06), pytest.approx(20**-0.5))
    fast = [*slow, *every(100, 60, start=slow[-1])]
    assert arrival_rate(fast, fast[-1]) == (pytest.approx(10.0, rel=0.03), pytest.approx(50**-0.5))
    ended = slow[-1] + 800_000
    assert arrival_rate(slow, ended).per_s < 0.6 / 20


def test_with_few_arrivals_the_rate_is_that_of_an_hour() -> None:
    assert arrival_rate([0, 1000, 2000], 3000).per_s == 3 / 3600
    assert arrival_rate(every(1000, 100), 10**9).per_s == 0.0
    assert arrival_rate([], 0).per_s == 0.0


def test_arrivals_in_bursts_are_drawn_in_bursts() -> None:
    even = [100 * at for at in range(60)]
    bursts = [5000 * (at // 10) + at for at in range(60)]
    assert (burstiness(even), burstiness(bursts), burstiness(bursts[:20])) == ("poisson", "gamma", "poisson")
    assert burstiness([5] * 60) == "poisson"


def test_the_same_seed_replays_the_same_workflows_whatever_the_values() -> None:
    assert warm()
    replay = Replay(RECORDS, [A100, L40S], "hexgen", Rate(0.5), "poisson")
    first = replay.p95_s({"alpha": 0.5}, 50, 1)
    assert replay.p95_s({"alpha": 0.5}, 50, 1) == first > 0.0
    assert replay.p95_s({"alpha": 1.0}, 50, 1) != first
    assert replay.p95_s({"alpha": 0.5}, 50, 2) != first
    again = Replay(RECORDS, [A100, L40S], "hexgen", Rate(0.5), "poisson")
    assert again.p95_s({"alpha": 0.5}, 50, 1) == first
    with pytest.raises(InvalidDocument, match="alpha"):
        replay.p95_s({"alpha": 2.0}, 50, 1)


def test_seeds_stand_for_the_rate_and_its_error() -> None:
    """Two instances and many calls a second: it is the rate that counts, not the draw."""
    replay = Replay(RECORDS, [A100], "hexgen", Rate(4.0, 0.5), "poisson")
    low, middle, high = (replay.p95_s({"alpha": 0.5}, 200, seed) for seed in (3, 4, 5))
    assert low < middle < high
    assert replay.p95_s({"alpha": 0.5}, 200, 3, 6.0) > middle


def test_what_nobody_tunes_stays_as_it_is() -> None:
    plain, fair = (
        Replay([replace(one, values=values) for one in RECORDS], [A100], "flow", Rate(6.0), "poisson")
        for values in ({}, {"fairness": 5.0})
    )
    assert plain.p95_s({"harm": 2.0}, 100, 1) != fair.p95_s({"harm": 2.0}, 100, 1)


def test_what_was_recorded_and_is_no_number_of_the_policy_does_nothing() -> None:
    plain, other = (
        Replay([replace(one, values=values) for one in RECORDS], [A100], "flow", Rate(6.0), "poisson")
        for values in ({}, {"alpha": 0.5})
    )
    assert plain.p95_s({}, 20, 1) == other.p95_s({}, 20, 1)


def test_more_load_takes_longer() -> None:
    slow, fast = (Replay(RECORDS, [A100], "flow", Rate(rate), "poisson").p95_s({}, 60, 1) for rate in (0.1, 10.0))
    assert fast > 1.5 * slow


def test_the_usual_slo_is_the_median() -> None:
    assert usual_slo_s([*RECORDS[:2], workflow(2, deadline_at=10**9)]) == 20.0
