"""What is learned of stages and instances while they run: fading sums, and the means that follow. No clock, no Redis.

The start is the definition's hints; they count as a few observations, so a wrong hint is soon outvoted. Each
observation takes 1/WINDOW off what was seen before: what drifts is followed.
"""

from collections.abc import Mapping, Sequence

from common.events import Outcome
from coordinator.language.definition import LlmBody, StageSpec, ToolBody

MOST_NAMES = 20_000
"""What is learned of has a bound: inline definitions may have any number of names. Those observed last are kept."""

WINDOW = 500
HINT_WEIGHT = 3.0
HINT_TOKENS = 1200.0
CHARS_PER_TOKEN = 4.0
TOOL_S = 0.1
DEFAULT_OUTPUT_TOKENS = 128.0
BRANCH = 0.5
OUTLIER = 10.0
"""No answer and no tool call counts for more than so many times what was expected."""

ROUNDS_APART = 16
"""The rounds of a repeat are told apart up to here; all after them count as this one."""

Sums = dict[str, tuple[float, ...]]
"""By name: how many observations, and the sum of each thing observed, all faded alike."""


class Estimates:
    """Means by name. `shared` is what all coordinators have learned, `added` what this one has not yet told."""

    def __init__(self) -> None:
        self._sums: dict[str, list[float]] = {}
        self._added: dict[str, list[float]] = {}

    def replace(self, shared: Mapping[str, tuple[float, ...]]) -> None:
        """Take over what all coordinators know together."""
        self._sums = {name: list(values) for name, values in shared.items()}
        for name, values in self._added.items():
            _fold(self._sums, name, values)

    def take_added(self) -> Sums:
        """What was learned since the last call, to be told to the others."""
        taken = {name: tuple(values) for name, values in self._added.items()}
        self._added.clear()
        return taken

    def chars_per_token(self, workflow: str, stage: StageSpec) -> float:
        """Characters of a prompt per token of it."""
        _, tokens, chars = self._read("prompt", workflow, stage, 3)
        return (HINT_TOKENS * CHARS_PER_TOKEN + chars) / (HINT_TOKENS + tokens)

    def prompt_tokens(self, workflow: str, stage: StageSpec) -> float:
        """Mean prompt length; at the start that of the bare template."""
        count, tokens, _ = self._read("prompt", workflow, stage, 3)
        assert isinstance(stage.body, LlmBody)
        sources = [stage.body.prompt] if stage.body.prompt else [template for _, template in stage.body.messages]
        hint = sum(len(template.source) for template in sources) / CHARS_PER_TOKEN
        return (HINT_WEIGHT * hint + tokens) / (HINT_WEIGHT + count)

    def output_tokens(self, workflow: str, stage: StageSpec) -> float:
        """Mean answer length of an llm stage."""
        assert isinstance(stage.body, LlmBody)
        hint = stage.body.expected_output_tokens or min(DEFAULT_OUTPUT_TOKENS, stage.body.max_tokens)
        count, tokens = self._read("output", workflow, stage, 2)
        return (HINT_WEIGHT * hint + tokens) / (HINT_WEIGHT + count)

    def tool_s(self, workflow: str, stage: StageSpec) -> float:
        """Mean time of a tool stage in s."""
        assert isinstance(stage.body, ToolBody)
        hint = stage.body.expected_s if stage.body.expected_s is not None else TOOL_S
        count, seconds = self._read("tool", workflow, stage, 2)
        return (HINT_WEIGHT * hint + seconds) / (HINT_WEIGHT + count)

    def knows(self, workflow: str, stage: StageSpec) -> bool:
        """Whether the times of a leaf are more than a guess: it has run, or the definition says what to expect."""
        if isinstance(stage.body, LlmBody):
            return stage.body.expected_output_tokens is not None or self._read("output", workflow, stage, 2)[0] > 0
        assert isinstance(stage.body, ToolBody)
        return stage.body.expected_s is not None or self._read("tool", workflow, stage, 2)[0] > 0

    def branch(self, workflow: str, stage: StageSpec) -> float:
        """How likely its `when` is true."""
        return self._chance("when", workflow, stage, BRANCH)

    def goes_on(self, workflow: str, stage: StageSpec) -> list[float]:
        """How likely each round that its repeat may have is followed by another.

        What is known of all rounds counts as a few observations of each.
        """
        assert stage.repeat is not None
        anywhere = self._chance("while", workflow, stage, BRANCH)
        apart = min(ROUNDS_APART, stage.repeat.most - 1)
        chances = [self._chance(_while(round), workflow, stage, anywhere) for round in range(apart)]
        return [*chances, *chances[-1:] * (stage.repeat.most - 1 - apart), 0.0]

    def _chance(self, kind: str, workflow: str, stage: StageSpec, hint: float) -> float:
        count, hits = self._read(kind, workflow, stage, 2)
        return (HINT_WEIGHT * hint + hits) / (HINT_WEIGHT + count)

    def learn(self, workflow: str, stage: StageSpec, outcome: Outcome) -> None:
        """A request of this stage finished. From an engine that reports no usage there is nothing to learn."""
        usage = outcome.usage
        if not isinstance(stage.body, LlmBody):
            most = OUTLIER * self.tool_s(workflow, stage)
            self._observe(_name("tool", workflow, stage), min(outcome.run_ms / 1000, most))
        elif usage.prompt_tokens:
            most = OUTLIER * self.output_tokens(workflow, stage)
            self._observe(_name("output", workflow, stage), min(usage.output_tokens, most))
            self._observe(_name("prompt", workflow, stage), usage.prompt_tokens, outcome.prompt_chars)

    def saw_branch(self, workflow: str, stage: StageSpec, taken: bool) -> None:
        """A `when` was evaluated."""
        self._observe(_name("when", workflow, stage), float(taken))

    def saw_round(self, workflow: str, stage: StageSpec, round: int, again: bool) -> None:
        """A `while` was evaluated after this round, from 0."""
        for kind in ("while", _while(round)):
            self._observe(_name(kind, workflow, stage), float(again))

    def _observe(self, name: str, *values: float) -> None:
        if name not in self._added and len(self._added) >= MOST_NAMES:
            return
        for sums in (self._sums, self._added):
            _fold(sums, name, (1.0, *values))

    def _read(self, kind: str, workflow: str, stage: StageSpec, width: int) -> list[float]:
        found = self._sums.get(_name(kind, workflow, stage), [])
        return found if len(found) == width else [0.0] * width


def _name(kind: str, workflow: str, stage: StageSpec) -> str:
    model = stage.body.model if isinstance(stage.body, LlmBody) else None
    return f"{kind}/{workflow}/{stage.path}/{model or ''}"


def _while(round: int) -> str:
    return f"while@{min(round, ROUNDS_APART - 1)}"


def _fold(sums: dict[str, list[float]], name: str, later: Sequence[float]) -> None:
    """Add what was seen later; faded itself, its count tells how much it takes off. `learn.lua` does the same."""
    faded = 1.0 - later[0] / WINDOW
    earlier = sums.get(name, [])
    if len(earlier) != len(later):  # nothing, or told by a version that observed other things
        earlier = [0.0] * len(later)
    sums[name] = [old * faded + new for old, new in zip(earlier, later, strict=True)]
