"""What is learned of stages and instances while they run: running sums, and the means that follow. No clock, no Redis.

The start is the definition's hints; they count as a few observations, so a wrong hint is soon outvoted.
"""

from collections.abc import Mapping

from common.events import Outcome
from coordinator.language.definition import LlmBody, StageSpec, ToolBody

MOST_NAMES = 20_000
"""What is learned of has a bound: inline definitions may have any number of names."""

HINT_WEIGHT = 3.0
HINT_TOKENS = 1200.0
CHARS_PER_TOKEN = 4.0
TOOL_S = 0.1
DEFAULT_OUTPUT_TOKENS = 128.0
BRANCH = 0.5
Sums = dict[str, tuple[float, ...]]


class Estimates:
    """Means by name. `shared` is what all coordinators have learned, `added` what this one has not yet told."""

    def __init__(self) -> None:
        self._sums: dict[str, list[float]] = {}
        self._added: dict[str, list[float]] = {}

    def replace(self, shared: Mapping[str, tuple[float, ...]]) -> None:
        """Take over what all coordinators know together."""
        self._sums = {name: list(values) for name, values in shared.items()}
        for name, values in self._added.items():
            _add(self._sums, name, values)

    def take_added(self) -> Sums:
        """What was learned since the last call, to be told to the others."""
        taken = {name: tuple(values) for name, values in self._added.items()}
        self._added.clear()
        return taken

    def give_back(self, taken: Mapping[str, tuple[float, ...]]) -> None:
        """What was taken could not be told; it is told the next time."""
        for name, values in taken.items():
            _add(self._added, name, values)

    def chars_per_token(self, workflow: str, stage: StageSpec) -> float:
        """Characters of a prompt per token of it."""
        _, chars, tokens = self._read("chars", workflow, stage, 3)
        return (HINT_TOKENS * CHARS_PER_TOKEN + chars) / (HINT_TOKENS + tokens)

    def prompt_tokens(self, workflow: str, stage: StageSpec) -> float:
        """Mean prompt length; at the start that of the bare template."""
        count, tokens = self._read("prompt", workflow, stage, 2)
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

    def chance(self, kind: str, workflow: str, stage: StageSpec) -> float:
        """How often a `when` was true ("when"), or a round was followed by another ("while")."""
        count, hits = self._read(kind, workflow, stage, 2)
        return (HINT_WEIGHT * BRANCH + hits) / (HINT_WEIGHT + count)

    def speed(self, instance: str) -> float:
        """Observed over predicted execution time of an instance."""
        predicted, observed = self._sums.get(f"speed/{instance}", (0.0, 0.0))
        return (1.0 + observed) / (1.0 + predicted)

    def learn(self, workflow: str, stage: StageSpec, outcome: Outcome) -> None:
        """A request of this stage finished. From an engine that reports no usage there is nothing to learn."""
        usage = outcome.usage
        if not isinstance(stage.body, LlmBody):
            self._observe("tool", workflow, stage, outcome.run_ms / 1000)
        elif usage.prompt_tokens:
            self._observe("output", workflow, stage, usage.output_tokens)
            self._observe("prompt", workflow, stage, usage.prompt_tokens)
            self._observe("chars", workflow, stage, outcome.prompt_chars, usage.prompt_tokens)

    def saw_choice(self, kind: str, workflow: str, stage: StageSpec, taken: bool) -> None:
        """A `when` or `while` was evaluated."""
        self._observe(kind, workflow, stage, float(taken))

    def saw_speed(self, instance: str, predicted_s: float, observed_s: float) -> None:
        """A request ran for observed_s where predicted_s were expected."""
        for sums in (self._sums, self._added):
            _add(sums, f"speed/{instance}", (predicted_s, observed_s))

    def _observe(self, kind: str, workflow: str, stage: StageSpec, *values: float) -> None:
        name = _name(kind, workflow, stage)
        if name not in self._sums and len(self._sums) >= MOST_NAMES:
            return
        for sums in (self._sums, self._added):
            _add(sums, name, (1.0, *values))

    def _read(self, kind: str, workflow: str, stage: StageSpec, width: int) -> list[float]:
        return self._sums.get(_name(kind, workflow, stage)) or [0.0] * width


def _name(kind: str, workflow: str, stage: StageSpec) -> str:
    model = stage.body.model if isinstance(stage.body, LlmBody) else None
    return f"{kind}/{workflow}/{stage.path}/{model or ''}"


def _add(sums: dict[str, list[float]], name: str, values: tuple[float, ...] | list[float]) -> None:
    old = sums.get(name)
    if old is None:
        sums[name] = list(values)
    else:
        for place, value in enumerate(values):
            old[place] += value
