"""Where a node stands in a running workflow: its key, its stage, the copies and rounds around it. Holds no state.

A key is a path of segments `name[index]@round`, joined by dots; the index is there inside a for_each, the round inside
a repeat: `candidates[2].mend@1.rewrite`.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import count

from common.model import Node
from common.states import ENDED
from coordinator.language.definition import Definition, GroupBody, StageSpec

_SEGMENT = re.compile(r"^(\w+)(?:\[(\d+)\])?(?:@(\d+))?$")


Segment = tuple[str, int | None, int | None]
"""One part of a key: name, index, round."""


@dataclass(frozen=True, slots=True, eq=False)
class Place:
    """One round of one copy of a stage. For a stage without for_each and repeat all three keys are the same."""

    parent: "Place | None"
    spec: StageSpec
    index: int | None
    round: int | None
    stage_key: str
    copy_key: str
    key: str

    @property
    def scope(self) -> str:
        """What the keys of its inner stages begin with."""
        return self.key + "."


def scope_of(parent: Place | None) -> str:
    """What the keys of the stages in this scope begin with; the workflow itself has no parent."""
    return "" if parent is None else parent.scope


def place(parent: Place | None, spec: StageSpec, index: int | None = None, round: int | None = None) -> Place:
    """The place of a copy (None without for_each) and round (0 by default where there is a repeat)."""
    stage_key = scope_of(parent) + spec.name
    copy_key = stage_key if index is None else f"{stage_key}[{index}]"
    if spec.repeat is None:
        return Place(parent, spec, index, None, stage_key, copy_key, copy_key)
    number = round or 0
    return Place(parent, spec, index, number, stage_key, copy_key, f"{copy_key}@{number}")


def stage_place(parent: Place | None, spec: StageSpec) -> Place:
    """The place of a stage as a whole, outside of its own copies and rounds: there its `when` and `for_each` stand."""
    key = scope_of(parent) + spec.name
    return Place(parent, spec, None, None, key, key, key)


def live_copies(nodes: Mapping[str, Node], stage_key: str) -> Iterator[int]:
    """Which copies of a for_each that has started have not ended."""
    for index in count():
        node = nodes.get(f"{stage_key}[{index}]")
        if node is None:
            return
        if node.status not in ENDED:
            yield index


@lru_cache(maxsize=65536)
def segments(key: str) -> tuple[Segment, ...]:
    """The parts of a key."""
    found = []
    for part in key.split("."):
        match = _SEGMENT.match(part)
        if match is None:
            raise ValueError(f"{key!r} is no node key")
        name, index, round = match.groups()
        found.append((name, None if index is None else int(index), None if round is None else int(round)))
    return tuple(found)


def find(definition: Definition, key: str) -> Place:
    """The place of a leaf's or round's key. Raises KeyError where the definition has no such stage."""
    found: Place | None = None
    path = ""
    for name, index, round in segments(key):
        path = f"{path}.{name}" if path else name
        found = place(found, definition.stages[path], index, round)
    assert found is not None
    return found


def group_of(definition: Definition, parent: Place | None) -> GroupBody:
    """The stages of a scope."""
    if parent is None:
        return definition.root
    assert isinstance(parent.spec.body, GroupBody)
    return parent.spec.body
