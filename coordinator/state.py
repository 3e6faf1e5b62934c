"""A running workflow in memory, as the core takes it and gives it back."""

from dataclasses import dataclass, field

from common.events import Outcome
from common.model import Head, Json, Node
from coordinator.language.definition import Definition

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
