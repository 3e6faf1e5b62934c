"""A compiled workflow definition: what the core walks. Built by `compiler`, never by hand; holds no state of a run."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from common.model import Json

MOST_ELEMENTS = 1000
"""Elements, and so copies, of one for_each."""
Context = Mapping[str, Any]
Join = Literal["all", "first_success"] | int
"""Which copies of a for_each must complete: all, the first one that does, or so many (a quorum)."""


def needed(join: Join, copies: int) -> int:
    """How many of so many copies must complete. More than there are is a fault of the one who joins them."""
    if join == "all":
        return copies
    return 1 if join == "first_success" else join


class TemplateError(Exception):
    """A template or expression failed at run time; the message names the cause in one sentence."""


@dataclass(frozen=True, slots=True)
class Template:
    """Renders a value in a context (name -> value). `names` are the context names it reads. Raises TemplateError.

    `render` gives a str for prompts, any JSON value for expressions and native arguments.
    """

    source: str
    names: frozenset[str]
    render: Callable[[Context], Any]


@dataclass(frozen=True, slots=True)
class LlmBody:
    """An llm stage. Either `prompt` or `messages` (pairs of role and template) is set."""

    prompt: Template | None
    messages: tuple[tuple[str, Template], ...]
    model: str | None
    requires: frozenset[str]
    max_tokens: int
    temperature: float
    top_p: float
    stop: tuple[str, ...]
    seed: int | None
    json_schema: dict[str, Json] | None
    expected_output_tokens: int | None


@dataclass(frozen=True, slots=True)
class ToolBody:
    """A tool stage. `args` renders the whole mapping."""

    tool: str
    args: Template
    expected_s: float | None


@dataclass(frozen=True, slots=True)
class GroupBody:
    """Stages with a scope of their own, each after those it needs, and the group's output."""

    stages: tuple["StageSpec", ...]
    output: Template | None
    sinks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """Run again while `condition` holds, at most `most` rounds in all."""

    condition: Template
    most: int


@dataclass(frozen=True, slots=True, eq=False)
class StageSpec:
    """One stage, equal only to itself. `path` is its dotted place in the definition ("mend.rewrite"), unique in it."""

    name: str
    path: str
    needs: tuple[str, ...]
    when: Template | None
    for_each: Template | None
    element: str
    join: Join
    repeat: Repeat | None
    body: LlmBody | ToolBody | GroupBody
    timeout_s: float
    retries: int
    optional: bool


@dataclass(frozen=True, slots=True)
class InputSpec:
    """One input: its JSON type ("any" for all) and whether it must be given."""

    name: str
    type: str
    required: bool
    default: Json


@dataclass(frozen=True, slots=True)
class Definition:
    """A whole workflow. `digest`: hex SHA-256 of the canonical JSON of `document`, which compiles to this again."""

    name: str
    digest: str
    document: dict[str, Json]
    inputs: tuple[InputSpec, ...]
    root: GroupBody
    stages: Mapping[str, StageSpec]
    """Every stage at every depth by its path."""
