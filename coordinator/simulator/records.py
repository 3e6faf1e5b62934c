"""The simulator's records: numpy rows, which serve the functions of engine model and policies as objects do."""

from collections.abc import Sequence
from dataclasses import fields

import numpy as np
from numpy.typing import NDArray

from common.engine import ADMIT_SHARE
from common.enginerecords import NONE
from common.model import InstanceProfile
from common.policy.candidate import Candidate

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
    "queued_tokens",
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
backlog_s: expected work not ended; queued_tokens: expected answers of what is queued; token_s: a moving average of the
time between tokens; busy_s: time it ran."""

CANDIDATE = np.dtype([(field.name, "i8" if field.type is int else "f8") for field in fields(Candidate)], align=True)
"""An instance as decisions see it, see `common.policy.candidate`: its figures are those that policies believe."""
TENANT = np.dtype([("served", "f8"), ("active", "i8")])
"""A tenant's virtual counter, see `common.policy.fairness`, and its calls that are queued or run."""

CALL = np.dtype([(name, "i8") for name in _CALL_COUNTS] + [(name, "f8") for name in _CALL_FIGURES], align=True)
"""One call. Beyond `CallRecord`: expected_tokens of its answer, stage_s: its stage's mean time in the cluster, rest_s:
what is expected after it; needs: calls it still waits for; its children are a slice of the workload's list; key: its
place in the order; weight: see `common.policy.line`; attempts: how often it was refused."""

WORKFLOW = np.dtype(
    [(name, "f8") for name in ("arrival", "deadline", "slo_s", "weight", "ended_at")]
    + [(name, "i8") for name in ("left", "tenant")]
)
"""One workflow. weight: its tenant's share of the cluster; left: calls not ended."""
BLOCK = np.dtype([("end", "i8"), ("tokens", "i8"), ("parent", "i8")])
CACHE = np.dtype([("held", "i8"), ("older", "i8"), ("newer", "i8"), ("idle", "?")], align=True)


def engines(profiles: Sequence[InstanceProfile]) -> Rows:
    """Idle instances of these profiles. Raises ValueError for a batch that is too large."""
    rows = _of_profiles(profiles, ENGINE)
    for row, profile in zip(rows, profiles, strict=True):
        if profile.max_batch > MOST_SEQUENCES:
            raise ValueError(f"profile {profile.name}: a batch of {profile.max_batch}; at most {MOST_SEQUENCES}")
        row["ends_at"] = np.inf
        for name in ("prefilling", "first_waiting", "last_waiting", "oldest", "newest"):
            row[name] = NONE
    return rows


def candidates(profiles: Sequence[InstanceProfile]) -> Rows:
    """What policies believe of instances."""
    return _of_profiles(profiles, CANDIDATE)


def _of_profiles(profiles: Sequence[InstanceProfile], kind: np.dtype[np.void]) -> Rows:
    rows = np.zeros(len(profiles), kind)
    for row, profile in zip(rows, profiles, strict=True):
        for name in ("prefill_tokens_per_s", "weights_s", "overhead_s", "kv_s_per_token"):
            row[name] = getattr(profile, name)
        row["kv_room"], row["admit_tokens"] = profile.kv_tokens, int(ADMIT_SHARE * profile.kv_tokens)
        row["max_sequences"], row["chunk"] = profile.max_batch, profile.chunk_tokens
    return rows


def caches(instances: int, blocks: int) -> Rows:
    """Empty prefix caches, one row of blocks for each instance."""
    rows = np.zeros((instances, max(1, blocks)), CACHE)
    for name in ("older", "newer"):
        rows[name] = NONE
    return rows
