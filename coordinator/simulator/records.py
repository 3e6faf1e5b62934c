"""The simulator's records: numpy rows, which serve the functions of engine model and policies as objects do."""

import numpy as np
from numpy.typing import NDArray

from common.engine import ADMIT_SHARE
from common.enginerecords import NONE
from common.model import InstanceProfile

MOST_SEQUENCES = 256
Rows = NDArray[np.void]

_ENGINE_COUNTS = [
    "kv_room",
    "admit_tokens",
    "max_sequences",
    "chunk",
    "running",
    "kv_tokens",
    "decoding_kv",
    "unprefilled_tokens",
    "prefilled_tokens",
    "waiting_tokens",
    "idle_tokens",
    "iteration",
    "arrivals",
    "admissions",
    "prefilling",
    "first_waiting",
    "last_waiting",
    "joining_count",
    "decoding_count",
    "oldest",
    "newest",
    "iterations",
    "queued",
    "started",
]
_ENGINE_FIGURES = [
    "prefill_tokens_per_s",
    "weights_s",
    "overhead_s",
    "kv_s_per_token",
    "linear_s",
    "square_s",
    "planned_s",
    "begun_at",
    "ends_at",
    "backlog_s",
    "token_s",
    "busy_s",
]
_CALL_COUNTS = [
    "prompt_tokens",
    "output_tokens",
    "priority",
    "leaf",
    "cached_tokens",
    "generated",
    "preemptions",
    "arrived",
    "admitted",
    "position",
    "last_iteration",
    "before",
    "after",
    "workflow",
    "needs",
    "first_child",
    "children",
    "instance",
    "attempts",
]
_CALL_FIGURES = [
    "expected_tokens",
    "stage_s",
    "rest_s",
    "tool_s",
    "cost_s",
    "key",
    "weight",
    "ready_at",
    "started_at",
    "ended_at",
]

ENGINE = np.dtype(
    [(name, "i8") for name in _ENGINE_COUNTS]
    + [(name, "f8") for name in _ENGINE_FIGURES]
    + [(name, "i8", (MOST_SEQUENCES,)) for name in ("joining_ids", "decoding_ids", "started_ids")],
    align=True,
)
"""One instance. Beyond `EngineRecord`: queued and started requests; begun_at, ends_at: the stretch that runs, in s;
backlog_s: expected work not ended; token_s: a moving average of the time between tokens; busy_s: time it ran."""

CALL = np.dtype([(name, "i8") for name in _CALL_COUNTS] + [(name, "f8") for name in _CALL_FIGURES], align=True)
"""One call. Beyond `CallRecord`: expected_tokens of its answer, stage_s: its stage's mean time in the cluster, rest_s:
what is expected after it; needs: calls it still waits for; its children are a slice of the workload's list."""

WORKFLOW = np.dtype(
    [(name, "f8") for name in ("arrival", "deadline", "slo_s", "weight", "ended_at")]
    + [(name, "i8") for name in ("left", "tenant")]
)
"""One workflow. weight: its tenant's share of the cluster; left: calls not ended."""
BLOCK = np.dtype([("end", "i8"), ("tokens", "i8"), ("parent", "i8")])
CACHE = np.dtype([("held", "i8"), ("older", "i8"), ("newer", "i8"), ("mark", "i8"), ("idle", "?")], align=True)


def engines(profiles: list[InstanceProfile]) -> Rows:
    """Idle instances of these profiles. Raises ValueError for a batch that is too large."""
    rows = np.zeros(len(profiles), ENGINE)
    for row, profile in zip(rows, profiles, strict=True):
        if profile.max_batch > MOST_SEQUENCES:
            raise ValueError(f"profile {profile.name}: a batch of {profile.max_batch}; at most {MOST_SEQUENCES}")
        for name in ("prefill_tokens_per_s", "weights_s", "overhead_s", "kv_s_per_token"):
            row[name] = getattr(profile, name)
        row["kv_room"], row["admit_tokens"] = profile.kv_tokens, int(ADMIT_SHARE * profile.kv_tokens)
        row["max_sequences"], row["chunk"] = profile.max_batch, profile.chunk_tokens
        row["ends_at"] = np.inf
        for name in ("prefilling", "first_waiting", "last_waiting", "oldest", "newest"):
            row[name] = NONE
    return rows


def caches(instances: int, blocks: int) -> Rows:
    """Empty prefix caches, one row of blocks for each instance."""
    rows = np.zeros((instances, max(1, blocks)), CACHE)
    for name in ("older", "newer", "mark"):
        rows[name] = NONE
    return rows
