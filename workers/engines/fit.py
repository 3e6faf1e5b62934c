"""From timed iterations to a profile, by least squares. Pure: the formula fitted is that of `common.enginemodel`.

Assumes what holds where it is used: a decoding sequence alone computes less than the weights take to read, and a
prefilled chunk more.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from common.enginebatch import ATTENTION_TOKENS
from common.enginefit import Iteration
from common.enginemodel import DECODE_WORK
from common.model import InstanceProfile


def fit(iterations: Sequence[Iteration], known: InstanceProfile) -> InstanceProfile:
    """`known` with the four speeds measured. Raises ValueError without decoding or without prefilling iterations.

    Iterations must be pure: either they prefill one prompt or they decode. What noise makes impossible is bounded: no
    speed comes out negative.
    """
    prefills = [i for i in iterations if i.prompt_tokens and not i.decoding]
    decodes = [i for i in iterations if i.decoding and not i.prompt_tokens]
    if not prefills or not decodes:
        raise ValueError(f"{len(prefills)} prefilling and {len(decodes)} decoding iterations are too few to fit")
    work = [i.prompt_tokens * (1 + (i.kv_tokens + i.prompt_tokens / 2) / ATTENTION_TOKENS) for i in prefills]
    start_s, s_per_token = _line(work, [i.seconds for i in prefills])
    base_s, kv_s = _line([i.kv_tokens for i in decodes], [i.seconds for i in decodes])
    if s_per_token <= 0:
        start_s, s_per_token = 0.0, sum(i.seconds for i in prefills) / sum(work)
    alone_s = max(base_s - DECODE_WORK * s_per_token / 2, 1e-6)  # overhead + weights; start_s is overhead + weights / 2
    weights_s = min(max(2 * (alone_s - start_s), 1e-6), alone_s)
    return replace(
        known,
        prefill_tokens_per_s=1 / s_per_token,
        weights_s=weights_s,
        overhead_s=alone_s - weights_s,
        kv_s_per_token=kv_s,
    )


def _line(x: Sequence[float], y: Sequence[float]) -> tuple[float, float]:
    """Intercept and slope of the least squares line; a flat one at the mean where x does not vary or y falls."""
    mean = float(np.mean(y))
    if np.ptp(x) == 0:
        return mean, 0.0
    slope, intercept = np.polyfit(np.asarray(x, dtype=float), np.asarray(y, dtype=float), 1)
    return (float(intercept), float(slope)) if slope > 0 else (mean, 0.0)
