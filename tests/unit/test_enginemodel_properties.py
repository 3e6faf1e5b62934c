"""The engine model on random scripts: against a model that scans everything; stretches against single steps."""

import math
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.engine import Block, EngineModel, Sequence
from common.model import InstanceProfile


def is_empty(model: EngineModel) -> bool:
    held = (model.running, model.kv_tokens, model.decoding_kv, model.unprefilled_tokens, model.waiting_tokens)
    return held == (0, 0, 0, 0, 0) and not model.waiting and not model.decoding


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
    InstanceProfile,
    name=st.just("small"),
    prefill_tokens_per_s=st.just(1000.0),
    overhead_s=st.just(0.005),
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
        assert model.kv_tokens + model.idle_tokens <= model.kv_room


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
    assert long.idle_tokens == single.idle_tokens <= (profile.kv_tokens if caching else 0)


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
        assert 0 <= model.kv_tokens <= model.kv_room - model.idle_tokens
    assert not left
    assert is_empty(model)
