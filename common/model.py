"""The nouns: plain frozen records shared by coordinator, workers and simulator. No bytes, no Redis, no clock here."""

from dataclasses import dataclass, field
from typing import Any

Json = Any
"""A value JSON can carry: None, bool, int, float, str, list or dict."""


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


@dataclass(frozen=True, slots=True)
class ToolCall:
    """What a tool is asked."""

    tool: str
    args: dict[str, Json]


@dataclass(frozen=True, slots=True)
class Usage:
    """What a request cost the engine, in tokens. `cached_tokens` of the prompt came from the prefix cache."""

    prompt_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0


@dataclass(frozen=True, slots=True)
class InstanceProfile:
    """How fast an engine is, and how much it holds (see `common.enginemodel` for the formula).

    Units: prefill_tokens_per_s in tokens/s; step_s (weights read + overhead) and overhead_s in s; kv_s_per_token in s per KV token
    of the decoding sequences and iteration; kv_tokens and context_tokens in tokens.
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


@dataclass(frozen=True, slots=True)
class Instance:
    """An engine with a queue, as the cluster sees it. `speed` is observed / predicted execution time (1.0 = as profiled)."""

    id: str
    epoch: int
    profile: InstanceProfile
    models: tuple[str, ...]
    labels: frozenset[str] = field(default_factory=frozenset)
    features: frozenset[str] = field(default_factory=frozenset)
    status: str = "ready"
    speed: float = 1.0
