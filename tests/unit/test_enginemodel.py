"""The engine model: times by hand; against a plain model that scans everything; stretches against single steps."""

import math
from dataclasses import dataclass, field, replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.enginemodel import Block, EngineModel, Sequence
from common.model import InstanceProfile
from common.profiles import PROFILES, named

PROFILE = InstanceProfile("plain", 1000.0, weights_s=0.030, overhead_s=0.005, kv_s_per_token=1e-6, kv_tokens=10_000)
SMALL = replace(PROFILE, kv_tokens=300, max_batch=4, chunk_tokens=32, weights_s=0.020)


def run(model: EngineModel) -> list[str]:
    """Run until idle; the ids in the order they ended."""
    ended: list[str] = []
    while model.begin() < math.inf:
        ended += [sequence.id for sequence in model.end()]
        assert model.kv_tokens + model.cache.idle_tokens <= model.kv_room
    return ended


def is_empty(model: EngineModel) -> bool:
    held = (model.running, model.kv_tokens, model.decoding_kv, model.unprefilled_tokens, model.waiting_tokens)
    return held == (0, 0, 0, 0, 0) and not model.waiting and not model.decoding


# --- times by hand


def test_prefill_is_bound_by_compute_and_decode_by_weights() -> None:
    model = EngineModel(PROFILE)
    model.add(Sequence("a", prompt_tokens=100, output_tokens=3))
    prefill_s = 0.005 + 100 * (1 + 50 / 53_000) / 1000 + 0.5 * 0.030
    assert model.begin() == pytest.approx(prefill_s)
    assert model.end() == []
    assert model.step()[0] == pytest.approx(0.005 + 0.030 + 0.5 * 0.002 + 101e-6)
    duration, finished = model.step()
    assert duration == pytest.approx(0.005 + 0.030 + 0.5 * 0.002 + 102e-6)
    assert [sequence.id for sequence in finished] == ["a"]
    assert is_empty(model)
    assert model.begin() == math.inf


def test_a_chunk_shares_its_iteration_with_decoding() -> None:
    model = EngineModel(PROFILE)
    model.add(Sequence("a", prompt_tokens=10, output_tokens=50))
    model.step()
    model.add(Sequence("b", prompt_tokens=1000, output_tokens=1))
    compute_s = (512 * (1 + 256 / 53_000) + 2) / 1000
    assert model.step()[0] == pytest.approx(0.005 + compute_s + 0.015 + 11e-6)
    compute_s = (488 * (1 + (512 + 244) / 53_000) + 2) / 1000
    duration, finished = model.step()
    assert duration == pytest.approx(0.005 + compute_s + 0.015 + 12e-6)
    assert [sequence.id for sequence in finished] == ["b"]


def test_chunks_do_not_change_the_work_of_a_prompt() -> None:
    model = EngineModel(replace(PROFILE, weights_s=0.0, overhead_s=0.0))
    model.add(Sequence("a", prompt_tokens=9000, output_tokens=1))
    total = 0.0
    while (duration := model.begin()) < math.inf:
        total += duration
        model.end()
    assert total == pytest.approx(9000 * (1 + 9000 / 106_000) / 1000)
    assert model.iteration == math.ceil(9000 / 512)
    assert model.prefilled_tokens == 9000


def test_one_stretch_covers_a_whole_decode() -> None:
    model = EngineModel(PROFILE)
    model.add(Sequence("a", prompt_tokens=100, output_tokens=201))
    model.step()
    kv_s = sum(1e-6 * (100 + made) for made in range(1, 201))
    assert model.begin() == pytest.approx(200 * 0.036 + kv_s)
    assert [sequence.id for sequence in model.end()] == ["a"]


def test_cut_keeps_the_iteration_that_runs() -> None:
    profile = replace(PROFILE, kv_s_per_token=0.0)
    model = EngineModel(profile)
    model.add(Sequence("a", prompt_tokens=1, output_tokens=100))
    model.step()
    step_s = 0.036
    assert model.begin() == pytest.approx(99 * step_s)
    assert model.cut(10.5 * step_s) == pytest.approx(11 * step_s)
    assert model.cut(20 * step_s) == pytest.approx(11 * step_s), "a cut never lengthens"
    assert model.cut(0.0) == pytest.approx(step_s)
    model.end()
    assert model.iteration == 2
    assert model.begin(max_s=4.2 * step_s) == pytest.approx(5 * step_s)


# --- order and room


def test_smaller_priority_first_then_arrival() -> None:
    model = EngineModel(replace(PROFILE, max_batch=1))
    for name, priority in (("late", 5), ("a", 1), ("b", 1), ("first", 0)):
        model.add(Sequence(name, 10, 2, priority=priority))
    assert run(model) == ["first", "a", "b", "late"]


def test_admission_stops_at_98_percent_of_the_room() -> None:
    model = EngineModel(replace(PROFILE, kv_tokens=1000))
    model.add(Sequence("a", 500, 10))
    model.add(Sequence("b", 481, 10))
    model.add(Sequence("c", 1, 10))
    model.step()
    model.step()
    assert (model.running, len(model.waiting)) == (1, 2), "500 + 481 is above 980, and c does not pass b"
    model = EngineModel(replace(PROFILE, kv_tokens=1000))
    model.add(Sequence("a", 500, 10))
    model.add(Sequence("b", 480, 10))
    model.step()
    assert model.running == 2


def test_a_lone_sequence_may_fill_the_room() -> None:
    model = EngineModel(replace(PROFILE, kv_tokens=1000))
    model.add(Sequence("a", 990, 10))
    assert run(model) == ["a"]


def test_overflow_takes_back_the_youngest_and_computes_it_again() -> None:
    model = EngineModel(replace(PROFILE, kv_tokens=200))
    old, young = Sequence("old", 90, 60), Sequence("young", 90, 60)
    model.add(old)
    model.add(young)
    assert run(model) == ["old", "young"]
    assert (old.preemptions, young.preemptions) == (0, 1)
    assert model.prefilled_tokens == 90 + 90 + 90 + 11, "11 tokens each had been made when 200 were held"
    assert is_empty(model)


@pytest.mark.parametrize(
    ("sequence", "message"),
    [
        (Sequence("a", 0, 1), "prompt and output tokens"),
        (Sequence("a", 1, 0), "prompt and output tokens"),
        (Sequence("a", 9_000, 1_001), "needs 10001 KV tokens; the engine has 10000"),
        (Sequence("twice", 1, 1), "already in the engine"),
        (Sequence("a", 10, 1, prefix=(Block("x", 11),)), "prefix longer than its prompt of 10"),
    ],
)
def test_what_could_never_run_is_refused(sequence: Sequence, message: str) -> None:
    model = EngineModel(PROFILE)
    model.add(Sequence("twice", 1, 1))
    with pytest.raises(ValueError, match=message):
        model.add(sequence)


def test_stretches_begin_and_end_in_turn() -> None:
    model = EngineModel(PROFILE)
    with pytest.raises(ValueError, match="no stretch"):
        model.end()
    model.add(Sequence("a", 1, 2))
    model.begin()
    with pytest.raises(ValueError, match="end it first"):
        model.begin()


# --- abort


@pytest.mark.parametrize("steps", [0, 1, 2, 4])
def test_abort_frees_all_in_every_phase(steps: int) -> None:
    model = EngineModel(PROFILE)
    model.add(Sequence("a", 1000, 5, prefix=(Block("x", 400), Block("y", 900))))
    for _ in range(steps):
        model.step()
    assert model.abort("a")
    assert is_empty(model)
    assert not model.abort("a")


@pytest.mark.parametrize("prompt", [5, 100, 2000])
def test_abort_during_a_stretch_leaves_the_others_right(prompt: int) -> None:
    model = EngineModel(PROFILE)
    model.add(Sequence("stays", 10, 20))
    model.step()
    model.add(Sequence("goes", prompt, 10))
    planned = model.begin()
    model.cut(0.0)
    assert model.abort("goes")
    assert model.planned_s <= planned
    assert model.kv_tokens == 10, "the stretch is not applied yet"
    assert run_from_stretch(model) == ["stays"]
    assert is_empty(model)
    assert model.iteration == 20


def run_from_stretch(model: EngineModel) -> list[str]:
    ended = [sequence.id for sequence in model.end()]
    return ended + run(model)


# --- prefix cache


def test_a_cached_prefix_is_not_prefilled_again() -> None:
    model = EngineModel(PROFILE)
    first = Sequence("first", 1000, 3, prefix=(Block("t", 600), Block("t+1", 900)))
    other = Sequence("other", 1000, 3, prefix=(Block("t", 600), Block("t+2", 900)))
    again = Sequence("again", 1000, 3, prefix=(Block("t", 600), Block("t+1", 900)))
    for sequence in (first, other, again):
        model.add(sequence)
        run(model)
    assert [sequence.cached_tokens for sequence in (first, other, again)] == [0, 600, 900]
    assert model.prefilled_tokens == 1000 + 400 + 100
    assert model.cache.idle_tokens == 1200
    off = EngineModel(PROFILE, prefix_cache=False)
    for name in ("first", "again"):
        off.add(Sequence(name, 1000, 3, prefix=(Block("t", 600),)))
        run(off)
    assert (off.prefilled_tokens, off.cache.idle_tokens) == (2000, 0)


def test_a_whole_prompt_in_the_cache_still_computes_its_last_block() -> None:
    model = EngineModel(PROFILE)
    for name in ("a", "b"):
        model.add(Sequence(name, 100, 2, prefix=(Block("x", 50), Block("y", 100))))
        run(model)
    assert model.prefilled_tokens == 150
    assert model.cache.idle_tokens == 100


def test_running_sequences_share_the_room_of_a_prefix() -> None:
    model = EngineModel(PROFILE)
    for name in ("a", "b", "c"):
        model.add(Sequence(name, 1000, 50, prefix=(Block("x", 900),)))
    while model.unprefilled_tokens:
        model.step()
    assert model.running == 3
    assert model.kv_tokens == 900 + 3 * 100 + model.iteration - 2, "only a decodes during b's and c's prefill"
    assert model.abort("a")
    assert model.kv_tokens == 900 + 2 * 100
    run(model)
    assert (model.kv_tokens, model.cache.idle_tokens) == (0, 900)


def test_idle_blocks_go_least_recently_used_first() -> None:
    model = EngineModel(replace(PROFILE, kv_tokens=1000))
    for name in ("x", "y", "x"):
        model.add(Sequence(name, 401, 1, prefix=(Block(name, 400),)))
        run(model)
    model.add(Sequence("z", 401, 1, prefix=(Block("z", 400),)))
    run(model)
    model.add(x := Sequence("x", 401, 1, prefix=(Block("x", 400),)))
    run(model)
    model.add(y := Sequence("y", 401, 1, prefix=(Block("y", 400),)))
    run(model)
    assert (x.cached_tokens, y.cached_tokens) == (400, 0)


def test_an_aborted_prefill_leaves_only_what_was_computed() -> None:
    model = EngineModel(PROFILE)
    model.add(Sequence("a", 2000, 5, prefix=(Block("x", 500), Block("y", 1000), Block("z", 1500))))
    model.step()
    model.step()
    model.abort("a")
    assert (model.kv_tokens, model.cache.idle_tokens) == (0, 1000)


def test_a_preempted_sequence_finds_its_own_blocks() -> None:
    model = EngineModel(replace(PROFILE, kv_tokens=200))
    model.add(Sequence("old", 90, 60))
    model.add(young := Sequence("young", 90, 60, prefix=(Block("x", 40),)))
    assert run(model) == ["old", "young"]
    assert model.prefilled_tokens == 90 + 90 + (90 + 11 - 40)
    assert (young.preemptions, young.cached_tokens) == (1, 0), "cached tokens are those of the first admission"


# --- against a model that scans


@dataclass(slots=True)
class Plain:
    """A sequence of `Scanner`: `goal` tokens to compute before it decodes, 0 while it waits."""

    id: str
    prompt: int
    output: int
    priority: int
    arrived: int
    made: int = 0
    computed: int = 0
    goal: int = 0

    @property
    def held(self) -> int:
        return max(self.goal, self.prompt + self.made - 1)

    @property
    def decodes(self) -> bool:
        return self.computed == self.goal


@dataclass(slots=True)
class Scanner:
    """The rules of the model without its short cuts: every iteration looks at every sequence. No prefix cache."""

    profile: InstanceProfile
    waiting: list[Plain] = field(default_factory=list)
    running: list[Plain] = field(default_factory=list)

    def step(self) -> tuple[float, list[str]]:
        profile = self.profile
        while sum(one.held + one.decodes for one in self.running) > profile.kv_tokens:
            victim = self.running.pop()
            victim.computed = victim.goal = 0
            self.waiting.append(victim)
        decoding = [one for one in self.running if one.decodes]
        work, joining = self.prefill(len(decoding))
        compute = (work + 2 * len(decoding)) / profile.prefill_tokens_per_s
        reads = profile.kv_s_per_token * sum(one.prompt + one.made for one in decoding)
        longer, shorter = max(compute, profile.weights_s), min(compute, profile.weights_s)
        for one in decoding + joining:
            one.made += 1
        done = [one.id for one in self.running if one.made == one.output]
        self.running = [one for one in self.running if one.made < one.output]
        return profile.overhead_s + longer + 0.5 * shorter + reads, done

    def prefill(self, decoding: int) -> tuple[float, list[Plain]]:
        left, work, joining = self.profile.chunk_tokens, 0.0, []
        while left:
            partial = [one for one in self.running if not one.decodes]
            if not partial and not self.admit(decoding):
                break
            one = next(one for one in self.running if not one.decodes)
            tokens = min(left, one.goal - one.computed)
            work += tokens * (1 + (one.computed + tokens / 2) / 53_000)
            one.computed += tokens
            left -= tokens
            joining += [one] if one.decodes else []
        return work, joining

    def admit(self, decoding: int) -> bool:
        if not self.waiting or len(self.running) == self.profile.max_batch:
            return False
        head = min(self.waiting, key=lambda one: (one.priority, one.arrived))
        kv = sum(one.held for one in self.running) + head.prompt + head.made
        if self.running and (kv > int(0.98 * self.profile.kv_tokens) or kv + decoding > self.profile.kv_tokens):
            return False
        self.waiting.remove(head)
        head.goal = head.prompt + head.made
        self.running.append(head)
        return True


@st.composite
def prefixes(draw: st.DrawFn, prompt: int) -> tuple[Block, ...]:
    """Leading blocks that other prompts may have too: a key names the path of choices up to it."""
    path: tuple[int, ...] = ()
    blocks: list[Block] = []
    for choice in draw(st.lists(st.integers(0, 2), max_size=5)):
        path += (choice,)
        if (end := len(path) * 16) > prompt:
            break
        blocks.append(Block(path, end))
    return tuple(blocks)


@st.composite
def scripts(draw: st.DrawFn) -> list[tuple[int, Sequence]]:
    """Sequences with the time they come, in units of 10 ms."""
    script = []
    for at in range(draw(st.integers(1, 14))):
        prompt = draw(st.integers(1, 150))
        sequence = Sequence(str(at), prompt, draw(st.integers(1, 150)), draw(prefixes(prompt)), draw(st.integers(0, 2)))
        script.append((draw(st.integers(0, 400)), sequence))
    return sorted(script, key=lambda entry: entry[0])


PROFILES_TO_TRY = st.builds(
    replace,
    st.just(SMALL),
    weights_s=st.sampled_from([0.0, 0.0321, 0.2]),
    kv_s_per_token=st.sampled_from([0.0, 1e-5]),
    kv_tokens=st.integers(300, 700),
    chunk_tokens=st.sampled_from([16, 31, 64, 512]),
    max_batch=st.integers(1, 6),
)


def copy(sequence: Sequence) -> Sequence:
    return Sequence(sequence.id, sequence.prompt_tokens, sequence.output_tokens, sequence.prefix, sequence.priority)


@settings(deadline=None, max_examples=60)
@given(script=scripts(), profile=PROFILES_TO_TRY)
def test_every_iteration_equals_the_scanning_model(
    script: list[tuple[int, Sequence]], profile: InstanceProfile
) -> None:
    model, scanner = EngineModel(profile, prefix_cache=False), Scanner(profile)
    for at, (_, sequence) in enumerate(script):
        model.add(sequence)
        scanner.waiting.append(
            Plain(sequence.id, sequence.prompt_tokens, sequence.output_tokens, sequence.priority, at)
        )
    ended: list[str] = []
    while scanner.waiting or scanner.running:
        expected_s, expected = scanner.step()
        duration, finished = model.step()
        assert duration == pytest.approx(expected_s, rel=1e-9)
        assert sorted(one.id for one in finished) == sorted(expected)
        assert model.kv_tokens == sum(one.held for one in scanner.running) <= profile.kv_tokens
        assert (model.running, len(model.waiting)) == (len(scanner.running), len(scanner.waiting))
        assert model.unprefilled_tokens == sum(one.prompt + one.made for one in scanner.waiting) + sum(
            one.goal - one.computed for one in scanner.running
        )
        ended += expected
    assert sorted(ended) == sorted(sequence.id for _, sequence in script)
    assert model.begin() == math.inf
    assert is_empty(model)


def drive(model: EngineModel, script: list[tuple[int, Sequence]], max_s: float) -> list[tuple[str, int, float]]:
    """Feed the script at its times, in stretches of about `max_s`. What ended: id, iteration, time in s."""
    left = [((at + 0.317) / 100, copy(sequence)) for at, sequence in script]
    ended: list[tuple[str, int, float]] = []
    begun_at = 0.0
    while True:
        while left and left[0][0] <= begun_at:
            model.add(left.pop(0)[1])
        if (duration := model.begin(max_s)) == math.inf:
            if not left:
                return ended
            begun_at = left[0][0]
            continue
        if left and left[0][0] < begun_at + duration:
            duration = model.cut(left[0][0] - begun_at)
        begun_at += duration
        ended += [(sequence.id, model.iteration, begun_at) for sequence in model.end()]
        assert model.kv_tokens + model.cache.idle_tokens <= model.kv_room


@settings(deadline=None, max_examples=60)
@given(script=scripts(), profile=PROFILES_TO_TRY, caching=st.booleans(), max_s=st.sampled_from([0.5, math.inf]))
def test_stretches_equal_single_steps(
    script: list[tuple[int, Sequence]], profile: InstanceProfile, caching: bool, max_s: float
) -> None:
    long, single = EngineModel(profile, prefix_cache=caching), EngineModel(profile, prefix_cache=caching)
    expected = drive(single, script, 0.0)
    got = drive(long, script, max_s)
    assert [entry[:2] for entry in got] == [entry[:2] for entry in expected]
    assert [entry[2] for entry in got] == pytest.approx([entry[2] for entry in expected], rel=1e-9)
    assert sorted(entry[0] for entry in got) == sorted(sequence.id for _, sequence in script)
    assert is_empty(long)
    assert long.prefilled_tokens == single.prefilled_tokens
    assert long.cache.idle_tokens == single.cache.idle_tokens <= (profile.kv_tokens if caching else 0)


@settings(deadline=None, max_examples=60)
@given(script=scripts(), profile=PROFILES_TO_TRY, data=st.data())
def test_aborts_at_any_time_leave_nothing_behind(
    script: list[tuple[int, Sequence]], profile: InstanceProfile, data: st.DataObject
) -> None:
    model = EngineModel(profile)
    left = {sequence.id for _, sequence in script}
    for _, sequence in script:
        model.add(sequence)
    while model.begin(data.draw(st.sampled_from([0.0, 0.3, math.inf]))) < math.inf:
        victim = data.draw(st.sampled_from([None, *sorted(left)]))
        if victim is not None:
            model.cut(0.1)
            assert model.abort(victim)
            left.remove(victim)
        left -= {sequence.id for sequence in model.end()}
        assert 0 <= model.kv_tokens <= model.kv_room - model.cache.idle_tokens
    assert not left
    assert is_empty(model)


# --- profiles


def test_the_published_decode_step_of_the_three_known_kinds() -> None:
    for name, step_s in (("a100", 0.035), ("A6000", 0.058), ("l40s", 0.0545)):
        model = EngineModel(named(name))
        model.add(Sequence("a", 100, 2))
        model.step()
        assert model.step()[0] == pytest.approx(step_s, rel=0.03)


def test_profiles_rank_as_published() -> None:
    decode = [PROFILES[name].weights_s for name in ("h100", "a800", "a100", "l40s", "l40", "a6000", "a40")]
    assert all(faster < slower for faster, slower in pairwise(decode))
    with pytest.raises(ValueError, match="'b200'; known are a100, a40, a6000, a800, h100, l40, l40s"):
        named("b200")
