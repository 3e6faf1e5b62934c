"""An instance as decisions see it: live a record of its profile and load, in the simulator a row of the same fields."""

from dataclasses import dataclass

from common.engine import ADMIT_SHARE
from common.model import InstanceLoad, InstanceProfile


@dataclass(slots=True)
class Candidate:
    """An instance: its figures, what it has, and what a plan has put there. In tokens and s.

    kv_tokens: held by running calls; kv_time: KV tokens times seconds that these will still hold; weight: the sum of
    theirs; token_s: recent mean time between two tokens. queued: requests bound to it that do not run, with
    queued_tokens of answers; backlog_s: execution time of all it has. planned...: of calls that keep a place in a plan.
    """

    prefill_tokens_per_s: float
    overhead_s: float
    weights_s: float
    kv_s_per_token: float
    kv_room: int
    admit_tokens: int
    max_sequences: int
    chunk: int
    running: int = 0
    kv_tokens: int = 0
    unprefilled_tokens: int = 0
    token_s: float = 0.0
    kv_time: float = 0.0
    weight: float = 0.0
    queued: int = 0
    queued_tokens: float = 0.0
    backlog_s: float = 0.0
    planned: int = 0
    planned_tokens: float = 0.0
    planned_kv_time: float = 0.0


def candidate(profile: InstanceProfile, load: InstanceLoad | None = None) -> Candidate:
    """An instance of this profile, with what it has said of itself."""
    found = Candidate(
        prefill_tokens_per_s=profile.prefill_tokens_per_s,
        overhead_s=profile.overhead_s,
        weights_s=profile.weights_s,
        kv_s_per_token=profile.kv_s_per_token,
        kv_room=profile.kv_tokens,
        admit_tokens=int(ADMIT_SHARE * profile.kv_tokens),
        max_sequences=profile.max_batch,
        chunk=profile.chunk_tokens,
    )
    if load is not None:
        found.running = len(load.running)
        found.kv_tokens = load.kv_tokens
        found.unprefilled_tokens = load.unprefilled_tokens
        # What was slow is not slow any more when it is idle; it would be shunned, and so never found to be fast again.
        found.token_s = load.token_s if load.running else 0.0
    return found
