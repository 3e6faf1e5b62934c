"""The cluster as one coordinator sees it for a moment: instances, their backlog, the policy and what was learned."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from common.model import Instance
from common.policy.candidate import Candidate, candidate
from common.policy.cost import Demand, exec_s, serves
from common.policy.dispatch import choose, wait_s
from common.policy.fairness import behind_s
from common.policy.line import step_s
from common.policy.rules import Rules
from coordinator.estimates import Estimates
from coordinator.language.definition import LlmBody, StageSpec
from coordinator.shares import Shares

LONGEST_LOAD_MS = 1 << 40


@dataclass(frozen=True, slots=True)
class Waiting:
    """A request to be dispatched. weight: how urgent it is among others, see `common.policy.line`."""

    prompt_tokens: int
    expected_tokens: float
    weight: float = 1.0


class Cluster:
    """Read by the core; what it dispatches is added to the backlog at once, so that one batch does not pile up.

    instances: all that are registered; backlog_ms: outstanding work by instance id; new_id makes request ids that sort
    by age; turn counts dispatches, for rotations; tools: those of each tool worker; patience_ms: how
    long a late request still waits for an instance; shut: where one runs alone or will soon, so that whatever is bound
    there waits for it. `expected` keeps what `Remaining` works out of definitions.
    """

    def __init__(
        self,
        instances: Sequence[Instance],
        backlog_ms: Mapping[str, int],
        policy: Rules,
        estimates: Estimates,
        new_id: Callable[[], str],
        turn: int = 0,
        tools: Sequence[frozenset[str]] = (),
        patience_ms: int = 0,
        shut: frozenset[str] = frozenset(),
    ) -> None:
        self.patience_ms = patience_ms
        self._shut = shut
        self._registered = instances
        self.instances = [instance for instance in instances if instance.status == "ready"]
        self.backlog_ms = dict(backlog_ms)
        self.policy = policy
        self.estimates = estimates
        self.new_id = new_id
        self.turn = turn
        self.tools = tools
        self.shares = Shares()
        self._serving: dict[Demand, list[Instance]] = {}
        self._longest: dict[Demand, list[int]] = {}
        self.expected: dict[tuple[str, bool, str, StageSpec], Any] = {}
        self._stage_s: dict[StageSpec, float] = {}

    def serving(self, model: str | None, requires: frozenset[str], features: frozenset[str]) -> list[Instance]:
        """The ready instances that can serve such a request, whatever its length."""
        key = (model, requires, features)
        if key not in self._serving:
            self._serving[key] = [i for i in self.instances if serves(i, model, requires, features)]
        return self._serving[key]

    def share(self, tenant: str) -> tuple[float, float]:
        """What a tenant has had, in tokens, and in s of all instances how much more that is than another has had."""
        had, rate = self.shares.of(tenant), sum(i.profile.prefill_tokens_per_s for i in self.instances)
        return float(had), behind_s(had, self.shares.least, rate) if rate else 0.0

    def longest_ever(
        self, model: str | None, requires: frozenset[str], features: frozenset[str], below: float = math.inf
    ) -> int:
        """The longest prompt that any registered instance takes that serves such requests, ready or not; in tokens.

        Of those that take less than `below`; 0 if there are none.
        """
        key = (model, requires, features)
        if key not in self._longest:
            self._longest[key] = [i.profile.longest_prompt for i in self._registered if serves(i, *key)]
        return max((longest for longest in self._longest[key] if longest < below), default=0)

    def choose(self, instances: Sequence[Instance], call: Waiting) -> tuple[int, float]:
        """The policy's choice among these, and the wait to expect there in s. One that is shut only if all are."""
        candidates = [self._candidate(instance) for instance in instances]
        eligible = [m for m, one in enumerate(instances) if one.id not in self._shut] or range(len(instances))
        # Those that leave something to chance bind late, in the planner.
        chosen = choose(self.policy, call, candidates, eligible, len(eligible), self.turn, (0.0, 0.0))
        self.turn += 1
        name, cost = instances[chosen].id, exec_s(instances[chosen].profile, call.prompt_tokens, call.expected_tokens)
        self.backlog_ms[name] = self.backlog_ms.get(name, 0) + load_ms(cost)
        return chosen, wait_s(candidates[chosen])

    def _candidate(self, instance: Instance) -> Candidate:
        found = candidate(instance.profile)
        found.backlog_s = max(0, self.backlog_ms.get(instance.id, 0)) / 1000
        found.queued_tokens = found.backlog_s / step_s(found, 0.0)
        return found

    def stage_s(self, workflow: str, stage: StageSpec) -> float:
        """Expected time of one request of a stage, the mean over the instances that serve it, in s."""
        if stage not in self._stage_s:
            self._stage_s[stage] = self._mean_s(workflow, stage)
        return self._stage_s[stage]

    def known_s(self, workflow: str, stage: StageSpec, best: bool) -> float:
        """As `stage_s`, but 0 where that is a guess: nothing is known of its length, or no ready instance serves it.

        best: on the instance that is the fastest for it, instead of the mean.
        """
        if not self.estimates.knows(workflow, stage):
            return 0.0
        if not isinstance(stage.body, LlmBody):
            return self.estimates.tool_s(workflow, stage)
        costs = self._costs_s(workflow, stage, self._able(stage.body))
        return min(costs, default=0.0) if best else _mean(costs, 0.0)

    def _mean_s(self, workflow: str, stage: StageSpec) -> float:
        if not isinstance(stage.body, LlmBody):
            return self.estimates.tool_s(workflow, stage)
        return _mean(self._costs_s(workflow, stage, self._able(stage.body) or self.instances), 1.0)

    def _able(self, body: LlmBody) -> list[Instance]:
        return self.serving(body.model, body.requires, needed_features(body))

    def _costs_s(self, workflow: str, stage: StageSpec, instances: Sequence[Instance]) -> list[float]:
        """Of one request of an llm stage on each of these."""
        prompt = self.estimates.prompt_tokens(workflow, stage)
        output = self.estimates.output_tokens(workflow, stage)
        return [exec_s(instance.profile, prompt, output) for instance in instances]


def _mean(costs: Sequence[float], default: float) -> float:
    return sum(costs) / len(costs) if costs else default


def needed_features(body: LlmBody) -> frozenset[str]:
    """What an instance's engine must be able to do for this stage."""
    return _SCHEMA if body.json_schema is not None else _NONE


def load_ms(cost_s: float) -> int:
    """What a request of that cost adds to a backlog; at least 1 ms, so that counts show."""
    return min(LONGEST_LOAD_MS, max(1, round(cost_s * 1000)))


_SCHEMA = frozenset({"json_schema"})
_NONE: frozenset[str] = frozenset()
