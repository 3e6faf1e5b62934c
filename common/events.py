"""What happened to a workflow: the messages of its mailbox, in the order they were posted."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from common.model import Grounds, Json, Usage

NO_USAGE = Usage()
DEADLINE = "@deadline"
"""Delayed like a node until the workflow's deadline, if that is to end it; no stage has such a name."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a request gave: its output, where and how long (ms) it waited and ran, its tokens."""

    output: Json
    instance: str = ""
    queued_ms: int = 0
    run_ms: int = 0
    usage: Usage = NO_USAGE
    prompt_chars: int = 0


@dataclass(frozen=True, slots=True)
class Submitted:
    """The workflow was accepted; nothing of it has started."""


@dataclass(frozen=True, slots=True)
class Completed:
    """A request finished first under its current token. `request` and `node` say which."""

    request: str
    node: str
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Failed:
    """An attempt failed. With `retryable` False another attempt must fail the same way.

    `prompt_tokens`: the prompt's length as that engine counted it, where it was too long for it; else 0.
    """

    request: str
    node: str
    error: str
    retryable: bool
    prompt_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Lost:
    """It was lost too often: whatever it does, it takes its worker or its engine with it."""

    request: str
    node: str
    losses: int


@dataclass(frozen=True, slots=True)
class Evacuated:
    """Its instance was lost or is draining: it must be routed anew."""

    request: str
    node: str


@dataclass(frozen=True, slots=True)
class Due:
    """A delayed node's time has come: a retry, another look for an instance, or the deadline, which stands for one."""

    node: str


@dataclass(frozen=True, slots=True)
class CancelAsked:
    """Somebody asked to end the workflow."""

    reason: str


@dataclass(frozen=True, slots=True)
class AmendAsked:
    """Somebody gave the workflow another deadline, in ms of Redis time.

    `grounds`: those of its requests that have been queued and have not ended; whoever reads the mail adds them.
    """

    deadline_at: int
    grounds: Mapping[str, Grounds] = field(default_factory=dict)


Event = Submitted | Completed | Failed | Lost | Evacuated | Due | CancelAsked | AmendAsked
