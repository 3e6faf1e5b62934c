"""A running workflow in memory, as the core takes it and gives it back."""

from dataclasses import dataclass, field
from typing import NamedTuple

from common.events import Outcome
from common.model import Head, Json, Node, Push, Rescore
from coordinator.language.definition import Definition, StageSpec

PENDING = Node()


@dataclass(slots=True)
class Workflow:
    """`nodes` holds what has started or ended; `outputs` what leaves have given.

    `memo` caches what follows from ended stages (elements, outputs of groups); it can be thrown away at any time.
    """

    id: str
    head: Head
    definition: Definition
    version: int = 0
    nodes: dict[str, Node] = field(default_factory=dict)
    outputs: dict[str, Outcome] = field(default_factory=dict)
    memo: dict[str, Json] = field(default_factory=dict)


class Choice(NamedTuple):
    """A `when` was evaluated, or the `while` after a round (from 0), and whether it held."""

    spec: StageSpec
    held: bool
    round: int | None = None


@dataclass(slots=True)
class Step:
    """What must take effect, all of it or nothing. `workflow` is the state after it.

    `drops`: requests that nobody waits for any longer; `recalls`: delayed nodes that need no waking any more.
    `rescores`: requests that were queued before and get another key; `head`: the workflow's, where it has changed.
    `status` is "running" or how it ended; `outcomes` and `choices` are what there is to learn from it.
    """

    workflow: Workflow
    nodes: dict[str, Node] = field(default_factory=dict)
    pushes: list[Push] = field(default_factory=list)
    delays: list[tuple[str, int]] = field(default_factory=list)
    drops: list[str] = field(default_factory=list)
    recalls: list[str] = field(default_factory=list)
    rescores: list[Rescore] = field(default_factory=list)
    head: Head | None = None
    events: list[tuple[str, Json]] = field(default_factory=list)
    status: str = "running"
    result: Json = None
    outcomes: list[tuple[StageSpec, Outcome]] = field(default_factory=list)
    choices: list[Choice] = field(default_factory=list)
