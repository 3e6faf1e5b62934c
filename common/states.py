"""The legal moves of a workflow, a stage and a request: (status, event) -> status; an absent entry is the error."""

from collections.abc import Mapping

from common.errors import IllegalTransition

Table = Mapping[tuple[str, str], str]

WORKFLOW: Table = {
    ("running", "complete"): "completed",
    ("running", "fail"): "failed",
    ("running", "cancel"): "cancelled",
}

# A stage, one copy of a for_each, and one round of a repeat all live by this table.
STAGE: Table = {
    ("pending", "start"): "running",
    ("pending", "skip"): "skipped",
    ("pending", "fail"): "failed",
    ("pending", "cancel"): "cancelled",
    ("running", "complete"): "completed",
    ("running", "fail"): "failed",
    ("running", "cancel"): "cancelled",
}

# A request as its coordinator knows it. "running" is not in it: who holds the lease is known to Redis alone.
REQUEST: Table = {
    ("new", "dispatch"): "queued",
    ("new", "park"): "waiting",
    ("new", "fail"): "failed",
    ("queued", "complete"): "completed",
    ("queued", "fail"): "failed",
    ("queued", "delay"): "delayed",
    ("queued", "evacuate"): "new",
    ("delayed", "wake"): "new",
    ("waiting", "wake"): "new",
} | {(phase, "cancel"): "cancelled" for phase in ("new", "queued", "delayed", "waiting")}

ENDED = frozenset({"completed", "skipped", "failed", "cancelled"})
"""Stage statuses, and phases of requests, after which nothing more happens."""


def move(table: Table, status: str, event: str) -> str:
    """The status after `event`. Raises IllegalTransition when the table has no such entry."""
    try:
        return table[status, event]
    except KeyError:
        raise IllegalTransition(f"{event!r} cannot happen in status {status!r}") from None
