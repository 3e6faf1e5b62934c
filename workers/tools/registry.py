"""Which tools exist: the entry-point group `hexgen_flow.tools` (name -> function). No queue here."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points

from common.model import Json

GROUP = "hexgen_flow.tools"
log = logging.getLogger("hexgen.tools")


class ToolError(Exception):
    """A tool refuses or fails; the message is told to the submitter. Not retried."""


@dataclass(frozen=True, slots=True)
class ToolContext:
    """What a tool may use: databases by name (SQLAlchemy URLs; secrets stay here) and its time limit in s."""

    databases: Mapping[str, str]
    timeout_s: float = 60.0


Tool = Callable[[Mapping[str, Json], ToolContext], Json]
"""A tool: arguments by name and a context in, a JSON value out. Raises ToolError with one plain sentence."""


@cache
def names() -> tuple[str, ...]:
    """The registered tools, sorted."""
    return tuple(sorted(point.name for point in entry_points(group=GROUP)))


@cache
def load(name: str) -> Tool:
    """The tool of that name. Raises ToolError when none is registered."""
    for point in entry_points(group=GROUP, name=name):
        tool: Tool = point.load()
        return tool
    raise ToolError(f"no tool is named {name!r}; registered are {', '.join(names()) or 'none'}")


def preload() -> None:
    """Import every tool now, so that processes forked later need not; one that cannot be imported is logged."""
    for name in names():
        try:
            load(name)
        except Exception:
            log.exception("tool %s cannot be imported", name)
