"""How long one request takes on one instance (t_exec), and who may run it at all. Numbers in, numbers out."""

from typing import Protocol

from common.model import Instance

ATTENTION_TOKENS = 106_000.0
"""Prompt length at which attention adds as much again to a prefill (twice the 53,000 of one iteration: its mean)."""
Demand = tuple[str | None, frozenset[str], frozenset[str]]
"""What a request asks of an instance, but for the length of its prompt: model (None: any), labels, features."""


class Figures(Protocol):
    """How fast an instance is, see `common.model.InstanceProfile`."""

    @property
    def prefill_tokens_per_s(self) -> float: ...
    @property
    def overhead_s(self) -> float: ...
    @property
    def weights_s(self) -> float: ...
    @property
    def kv_s_per_token(self) -> float: ...


def exec_s(profile: Figures, prompt_tokens: float, output_tokens: float) -> float:
    """Seconds a request takes alone on an instance: prefill of i tokens, then o decode iterations (batch 1).

    prefill = i / R * (1 + i / 106000); an iteration = overhead + weights + 1 / R + kappa * (i + o / 2), the KV growing
    from i to i + o.
    """
    prefill = prefill_s(profile.prefill_tokens_per_s, prompt_tokens, 0.0)
    kv = profile.kv_s_per_token * (prompt_tokens + 0.5 * output_tokens)
    step = profile.overhead_s + profile.weights_s + 1.0 / profile.prefill_tokens_per_s + kv
    return prefill + output_tokens * step


def prefill_s(rate: float, prompt_tokens: float, cached_tokens: float) -> float:
    """Seconds to prefill a prompt at `rate` tokens/s, of which so many are cached: attention spans those too."""
    return (prompt_tokens - cached_tokens) / rate * (1.0 + (prompt_tokens + cached_tokens) / ATTENTION_TOKENS)


def serves(instance: Instance, model: str | None, requires: frozenset[str], features: frozenset[str]) -> bool:
    """Whether the instance answers to this model (None: any), has the labels and the features."""
    named = model is None or model in instance.models
    return named and requires <= instance.labels and features <= instance.features
