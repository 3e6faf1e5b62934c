"""Who writes the answers of a simulated engine: entry points of group `hexgen_flow.responders` (name -> factory).

Knows no time: how long an answer takes is the engine's part.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Protocol

from workers.engines.protocol import EngineCall, EngineError
from workers.engines.schema_sample import sample

GROUP = "hexgen_flow.responders"
CHARS_PER_TOKEN = 4


@dataclass(frozen=True, slots=True)
class Answer:
    """What a call is answered, and its length in tokens. `prompt_tokens` None: a quarter of the prompt's characters."""

    text: str
    output_tokens: int
    prompt_tokens: int | None = None


class Responder(Protocol):
    """Answers calls. The same call may be answered again after a failure, and should then get the same answer."""

    def respond(self, call: EngineCall) -> Answer:
        """The answer, before max_tokens and stop are applied. Raises EngineError."""


def tokens_in(text: str) -> int:
    """About how many tokens a text has: a quarter of its characters, rounded up, at least 1."""
    return max(1, -(-len(text) // CHARS_PER_TOKEN))


def load_responder(spec: str) -> Responder:
    """The responder called `name` or `name:option`. Raises EngineError when there is none, or it refuses the option."""
    name, _, option = spec.partition(":")
    for point in entry_points(group=GROUP, name=name):
        create: Callable[[str], Responder] = point.load()
        return create(option)
    known = ", ".join(sorted({point.name for point in entry_points(group=GROUP)})) or "none"
    raise EngineError(f"no responder is named {name!r}; known are {known}", retryable=False)


@dataclass(frozen=True, slots=True)
class Echo:
    """Says the last line of the prompt again; a call with a JSON schema gets the least document that fits it."""

    output_tokens: int | None = None

    def respond(self, call: EngineCall) -> Answer:
        schema = call.call.sampling.json_schema
        if schema is not None:
            text = json.dumps(sample(schema))
        else:
            lines = call.call.text().strip().splitlines()
            text = lines[-1] if lines else ""
        return Answer(text, self.output_tokens or tokens_in(text))


def echo(option: str) -> Responder:
    """`echo`, or `echo:N` for answers that take N tokens whatever they say. Raises EngineError for another option."""
    if not option:
        return Echo()
    if not (option.isascii() and option.isdigit() and int(option)):
        raise EngineError(f"responder echo takes a number of tokens, such as echo:40, not {option!r}", retryable=False)
    return Echo(int(option))
