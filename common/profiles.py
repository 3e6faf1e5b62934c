"""Named instance profiles: a 70B model on one kind of GPU each. Figures only; nothing here measures anything.

The decode step of A100, A6000 and L40S is published; their prefill rates, kappa and KV room are assumed. So are all
figures of the others: scaled from A100 or A6000 by ratios of published seconds per Text-to-SQL stage. Stages with long
answers give the decode ratio (geometric mean of keywords, candidate, unit test), those with short ones the prefill
ratio (retriever, unit tester).
"""

from dataclasses import replace

from common.model import InstanceProfile

A100 = InstanceProfile("a100", 3400.0, weights_s=0.030, overhead_s=0.0050, kv_s_per_token=0.226e-6, kv_tokens=100_000)
A6000 = InstanceProfile("a6000", 1250.0, weights_s=0.052, overhead_s=0.0060, kv_s_per_token=0.265e-6, kv_tokens=40_000)
L40S = InstanceProfile("l40s", 1700.0, weights_s=0.049, overhead_s=0.0055, kv_s_per_token=0.234e-6, kv_tokens=40_000)


def _like(base: InstanceProfile, name: str, *, decode: float, prefill: float) -> InstanceProfile:
    """The profile of a kind that takes `decode` and `prefill` times as long as `base`, with the same KV room."""
    return replace(
        base,
        name=name,
        prefill_tokens_per_s=base.prefill_tokens_per_s / prefill,
        weights_s=base.weights_s * decode,
        overhead_s=base.overhead_s * decode,
        kv_s_per_token=base.kv_s_per_token * decode,
    )


PROFILES: dict[str, InstanceProfile] = {
    profile.name: profile
    for profile in (
        A100,
        A6000,
        L40S,
        _like(A100, "h100", decode=0.484, prefill=0.444),
        _like(A100, "a800", decode=0.629, prefill=0.503),
        _like(A6000, "a40", decode=1.202, prefill=0.991),
        _like(A6000, "l40", decode=0.971, prefill=0.805),
    )
}


def named(name: str) -> InstanceProfile:
    """The profile of a GPU kind, in any case. Raises ValueError that lists the known ones."""
    profile = PROFILES.get(name.lower())
    if profile is None:
        raise ValueError(f"no instance profile is named {name!r}; known are {', '.join(sorted(PROFILES))}")
    return profile
