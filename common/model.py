"""The nouns: plain frozen records shared by coordinator, workers and simulator. No bytes, no Redis, no clock here."""

from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

Json = Any
"""A value JSON can carry: None, bool, int, float, str, list or dict."""


TOOLS = "tools"
"""The queue of tool requests: an instance without an engine."""

LINE = "line"
"""The queue of requests that no instance has yet: see `common.lineup`."""


@dataclass(frozen=True, slots=True)
class Slo:
    """When a workflow should be done. Both in ms of Redis time since the epoch."""

    arrival_at: int
    deadline_at: int


@dataclass(frozen=True, slots=True)
class Sampling:
    """How an engine samples. `json_schema` constrains the output to a JSON document."""

    max_tokens: int = 512
    temperature: float = 0.0
    top_p: float = 1.0
    stop: tuple[str, ...] = ()
    seed: int | None = None
    json_schema: dict[str, Json] | None = None


@dataclass(frozen=True, slots=True)
class LlmCall:
    """What an engine is asked. Exactly one of `prompt` and `messages` is set."""

    prompt: str | None
    messages: tuple[dict[str, str], ...] | None
    model: str | None
    sampling: Sampling

    def text(self) -> str:
        """All that the model will read, roles left out."""
        if self.prompt is not None:
            return self.prompt
        return "\n".join(message["content"] for message in self.messages or ())

    def characters(self) -> int:
        """How much it carries."""
        return len(self.text())


@dataclass(frozen=True, slots=True)
class ToolCall:
    """What a tool is asked."""

    tool: str
    args: dict[str, Json]

    def characters(self) -> int:
        """How much it carries, about."""
        return _characters(self.args)


def _characters(value: Json) -> int:
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        return sum(len(key) + _characters(inner) for key, inner in value.items())
    if isinstance(value, list):
        return sum(map(_characters, value))
    return 8


@dataclass(frozen=True, slots=True)
class Usage:
    """What a request cost the engine, in tokens. `cached_tokens` of the prompt came from the prefix cache."""

    prompt_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0


@dataclass(frozen=True, slots=True)
class InstanceProfile:
    """How fast an engine is, and how much it holds (see `common.enginemodel` for the formula).

    Units: prefill_tokens_per_s in tokens/s; weights_s (reading the weights once) and overhead_s in s per iteration;
    kv_s_per_token in s per KV token of the decoding sequences and iteration; kv_tokens and context_tokens in tokens.
    """

    name: str
    prefill_tokens_per_s: float
    weights_s: float
    overhead_s: float
    kv_s_per_token: float
    kv_tokens: int
    context_tokens: int = 32768
    max_batch: int = 64
    chunk_tokens: int = 512

    @property
    def longest_prompt(self) -> int:
        """Tokens of the longest prompt that, with a token after it, is within context and memory."""
        return min(self.context_tokens, self.kv_tokens) - 1


@dataclass(frozen=True, slots=True)
class Instance:
    """An engine and its queue, as the cluster sees it."""

    id: str
    epoch: int
    profile: InstanceProfile
    models: tuple[str, ...]
    labels: frozenset[str] = field(default_factory=frozenset)
    features: frozenset[str] = field(default_factory=frozenset)
    status: str = "ready"


@dataclass(frozen=True, slots=True)
class Head:
    """What is fixed when a workflow is accepted; only its deadline can be amended.

    `definition` is the digest of the version it runs to its end.

    `encoding` ("json" or "msgpack") is how its events and result are written; `stream` asks for token events;
    `on_deadline` ("continue" or "cancel") is what becomes of it once its deadline has come.
    """

    tenant: str
    name: str
    definition: str
    inputs: dict[str, Json]
    slo: Slo
    encoding: str = "json"
    stream: bool = False
    on_deadline: str = "continue"


@dataclass(frozen=True, slots=True)
class Node:
    """The state of one stage, copy or round (`states.STAGE`) and, on a leaf, of its request (`states.REQUEST`).

    `left`: copies that must still complete; `round`: the current round of a repeat; `attempt`: attempts that failed;
    `error`: why it has failed, or is not queued now; `prompt_tokens`: its prompt's length as counted by an engine that
    had no room for it, else 0; `waiting_since`: ms of Redis time since when no instance could take it, else 0;
    `completed_at`: ms of Redis time at the step that took its output, else 0 (so too where an older version took it).
    """

    status: str = "pending"
    left: int = 0
    round: int = 0
    request: str = ""
    phase: str = "new"
    attempt: int = 0
    error: str = ""
    prompt_tokens: int = 0
    waiting_since: int = 0
    completed_at: int = 0


class Grounds(NamedTuple):
    """What a request's key follows from besides its deadline, as it was when it was routed.

    It is kept, so that another deadline gives the key that it would have given then. at: ms of Redis time; share: of
    what remained of the SLO, as its budget; the others as in `common.policy.urgency.Facts`.
    """

    at: int = 0
    share: float = 1.0
    exec_s: float = 0.0
    path_s: float = 0.0
    wait_s: float = 0.0
    served: float = 0.0
    behind_s: float = 0.0


NO_GROUNDS = Grounds()


@dataclass(frozen=True, slots=True)
class Push:
    """A request to be put into an instance's queue.

    Queue score = enqueued_at + offset_ms (the order policy's); load_ms is what it adds to the instance's backlog;
    budget_ms its share of the remaining SLO; prompt_tokens the estimate that the worker's admission uses; prefix the
    `common.prefix.chain` of its prompt (empty for a tool); expected_tokens of its answer; slo_ms of its workflow;
    requires, features: labels and features that an instance must have for it; longer_than: in the line, the
    longest prompt of the instances that serve it but for the length of its own, in tokens (0: there are none); tenant
    pays price (`common.policy.fairness`) for it, in tokens (empty: nobody does); grounds: what its key follows from.
    """

    request: str
    node: str
    instance: str
    offset_ms: int
    load_ms: int
    budget_ms: int
    deadline_at: int
    prompt_tokens: int
    call: LlmCall | ToolCall
    stage: str
    timeout_s: float
    stream: bool
    prefix: bytes = b""
    expected_tokens: int = 0
    slo_ms: int = 0
    requires: frozenset[str] = frozenset()
    features: frozenset[str] = frozenset()
    longer_than: int = 0
    tenant: str = ""
    price: int = 0
    grounds: Grounds = NO_GROUNDS


@dataclass(frozen=True, slots=True)
class Rescore:
    """Another key for a request that was queued before, and what else follows from its deadline; see `Push`."""

    request: str
    offset_ms: int
    budget_ms: int
    deadline_at: int
    slo_ms: int


@dataclass(frozen=True, slots=True)
class Claim:
    """A request a worker holds under a lease. Times in ms of Redis time; from `prefix` on as in `Push`.

    key_ms is the score it had in its queue: the smaller, the more urgent. alone: nothing may run beside it, since one
    more loss (see `common.store.queues.Loss`) is its end.
    """

    request: str
    token: int
    enqueued_at: int
    deadline_at: int
    claimed_at: int
    workflow: str
    node: str
    stage: str
    call: LlmCall | ToolCall
    timeout_s: float
    stream: bool
    encoding: str
    prefix: bytes = b""
    prompt_tokens: int = 0
    expected_tokens: int = 0
    slo_ms: int = 0
    key_ms: int = 0
    alone: bool = False


@dataclass(frozen=True, slots=True)
class RunningCall:
    """One call in an engine. key_ms and slo_ms as in `Claim`; expected_tokens: the whole answer's."""

    request: str
    prompt_tokens: int
    generated_tokens: int
    unprefilled_tokens: int
    expected_tokens: int
    key_ms: int
    slo_ms: int


@dataclass(frozen=True, slots=True)
class InstanceLoad:
    """What a worker says of its engine: how fast it is found to be, how much it holds, and what runs in it.

    Units: prefill_tokens_per_s in tokens/s; step_s (an iteration that does nothing else: weights and overhead) in s;
    kv_s_per_token as in `InstanceProfile`; token_s: a moving average of the time between two tokens, in s; all else in
    tokens. kv_tokens and unprefilled_tokens count what the engine lets wait too. iterations: how many the three speeds
    are learned from; idle_prefill: share of its time in which it had nothing to prefill though a request waited for it.
    cache_version is that of the prefix cache published beside it.
    """

    prefill_tokens_per_s: float
    step_s: float
    kv_s_per_token: float
    kv_room: int
    chunk_tokens: int
    max_batch: int
    kv_tokens: int
    unprefilled_tokens: int
    token_s: float
    running: tuple[RunningCall, ...] = ()
    iterations: int = 0
    idle_prefill: float = 0.0
    cache_version: int = 0

    def corrected(self, profile: InstanceProfile) -> InstanceProfile:
        """The profile with the speeds found; overhead and reading of weights keep their proportion."""
        told_s = profile.weights_s + profile.overhead_s
        weights_s = self.step_s * profile.weights_s / told_s if told_s > 0 else self.step_s
        return replace(
            profile,
            prefill_tokens_per_s=self.prefill_tokens_per_s,
            weights_s=weights_s,
            overhead_s=self.step_s - weights_s,
            kv_s_per_token=self.kv_s_per_token,
        )
