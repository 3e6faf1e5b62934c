"""What a real engine holds, from submissions and the engine's own reports."""

from common.enginefit import Iteration
from workers.engines.inflight import InFlight
from workers.engines.protocol import EngineLoad, Progress

NOTHING = EngineLoad(running=0, unprefilled_tokens=0, kv_tokens=0)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def calls(kv_room: int = 1000) -> InFlight:
    made = InFlight(Clock())
    made.kv_room = kv_room
    return made


def test_a_submitted_prompt_counts_at_once_and_nothing_is_left_at_the_end() -> None:
    held = calls()
    assert held.load() == NOTHING
    held.submit("a", 100)
    held.submit("b", 50)
    assert held.load() == EngineLoad(running=2, unprefilled_tokens=150, kv_tokens=150)
    held.end("a")
    held.end("b")
    held.end("never seen")
    assert held.load() == NOTHING


def test_a_better_count_replaces_the_first() -> None:
    held = calls()
    held.submit("a", 100)
    held.submit("a", 70)
    assert held.load() == EngineLoad(running=1, unprefilled_tokens=70, kv_tokens=70)


def test_chunks_lessen_what_is_unprefilled_and_fill_the_cache() -> None:
    held = calls()
    held.submit("a", 600)
    held.iteration(prompt_tokens=200, decoding=0, kv_share=0.2)
    assert held.load() == EngineLoad(running=1, unprefilled_tokens=400, kv_tokens=600)
    held.iteration(prompt_tokens=400, decoding=0, kv_share=0.6)
    held.made("a", 1, cached_tokens=0)
    held.iteration(prompt_tokens=0, decoding=1, kv_share=0.61)
    assert held.load() == EngineLoad(running=1, unprefilled_tokens=0, kv_tokens=610)


def test_cached_tokens_are_not_waited_for() -> None:
    held = calls()
    held.submit("a", 600)
    held.submit("b", 100)
    held.iteration(prompt_tokens=88, decoding=0, kv_share=0.0)
    held.made("a", 1, cached_tokens=512)
    held.made("a", 1, cached_tokens=512)
    assert held.load().unprefilled_tokens == 100


def test_the_order_of_first_output_and_report_does_not_matter() -> None:
    held = calls()
    held.submit("a", 300)
    held.made("a", 1, cached_tokens=0)
    held.iteration(prompt_tokens=300, decoding=0, kv_share=0.3)
    held.submit("b", 200)
    assert held.load().unprefilled_tokens == 200


def test_what_an_aborted_prompt_had_computed_is_forgotten() -> None:
    held = calls()
    held.submit("a", 600)
    held.iteration(prompt_tokens=500, decoding=0, kv_share=0.5)
    held.end("a")
    held.submit("b", 200)
    assert held.load().unprefilled_tokens == 200


def test_a_listener_hears_of_each_iteration_with_what_was_held_before_it() -> None:
    clock = Clock()
    held = InFlight(clock)
    held.kv_room = 1000
    heard: list[Iteration] = []
    held.listen(heard.append)
    clock.now = 7.0  # nothing to do until now
    held.submit("a", 150)
    for now, tokens, decoding, share in ((7.5, 100, 0, 0.1), (7.75, 50, 1, 0.2)):
        clock.now = now
        held.iteration(tokens, decoding, share)
    held.made("a", 1, cached_tokens=0)
    clock.now = 7.875
    held.iteration(prompt_tokens=0, decoding=2, kv_share=0.2)
    held.listen(None)
    held.iteration(prompt_tokens=0, decoding=1, kv_share=0.2)
    assert heard == [
        Iteration(100, 0, 0, 0.5, context_tokens=50),
        Iteration(50, 1, 100, 0.25, context_tokens=125),
        Iteration(0, 2, 200, 0.125),
    ]


def test_each_call_tells_how_far_it_is() -> None:
    held = calls()
    held.submit("a", 100)
    held.submit("b", 300)
    held.submit("c", 50)
    held.iteration(prompt_tokens=100, decoding=0, kv_share=0.1)
    held.made("a", 1, cached_tokens=0)
    held.iteration(prompt_tokens=120, decoding=1, kv_share=0.2)
    held.made("a", 2, cached_tokens=0)
    assert held.progress() == {"a": Progress(100, 2, 0), "b": Progress(300, 0, 180), "c": Progress(50, 0, 50)}
