"""Recorded workflows: what was called, after what, how long prompts and answers were. Reads them; draws no arrivals.

Two formats. Ours: a list of {"calls": [{"stage", "prompt_tokens", "output_tokens", "needs": [position, ...], "tool_s",
"prefix": [[key, tokens], ...]}]}, where all but the first three may be left out. And that of the HexGen-Flow paper's
traces: a list of {NAME: [{"step", "input_length", "output_length"}]}, where one call follows the other, but for the
groups of candidates and of evaluations, whose calls run side by side.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from common.errors import InvalidDocument
from common.model import Json

SIDE_BY_SIDE = ("generate_candidate", "evaluate")
"""Steps of the published traces whose calls run in parallel."""
MOST_TOKENS = 10_000_000
Key = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TracedCall:
    """One call of a workflow. `needs`: positions of calls before it; a tool call has `tool_s` seconds and no tokens.

    prefix: what it shares with others, as (key, tokens from the start of the prompt), the shortest first. Keys are
    those of any workflow; one that begins with "." is this workflow's own.
    """

    stage: str
    prompt_tokens: int
    output_tokens: int
    needs: tuple[int, ...] = ()
    tool_s: float = 0.0
    prefix: tuple[tuple[str, int], ...] = ()


Trace = tuple[tuple[TracedCall, ...], ...]
"""Workflows, each a list of calls in an order in which they may run."""


def read_trace(path: Path) -> Trace:
    """The workflows of a file in either format. Raises InvalidDocument naming the place and the fault."""
    try:
        document = json.loads(path.read_bytes())
    except OSError as error:
        raise InvalidDocument(str(path), f"cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise InvalidDocument(str(path), f"is not JSON: {error}") from None
    if not isinstance(document, list) or not document:
        raise InvalidDocument(str(path), "must be a list of workflows with at least one")
    return tuple(_workflow(f"{path.name}[{at}]", entry) for at, entry in enumerate(document))


def _workflow(where: str, entry: Json) -> tuple[TracedCall, ...]:
    if not isinstance(entry, dict) or len(entry) != 1 or not isinstance(calls := next(iter(entry.values())), list):
        raise InvalidDocument(where, 'must be {"calls": [...]}, a list of calls under one name')
    if not calls:
        raise InvalidDocument(where, "has no calls")
    ours = "calls" in entry
    if ours:
        return tuple(_ours(f"{where}.{at}", call, at) for at, call in enumerate(calls))
    return _in_line([_published(f"{where}.{at}", call) for at, call in enumerate(calls)])


def _ours(where: str, call: Json, at: int) -> TracedCall:
    fields = _mapping(where, call, {"stage", "prompt_tokens", "output_tokens", "needs", "tool_s", "prefix"})
    tool_s = _seconds(f"{where}.tool_s", fields.get("tool_s", 0.0))
    least = 0 if tool_s else 1
    prompt = _tokens(f"{where}.prompt_tokens", fields.get("prompt_tokens"), least)
    needs = fields.get("needs", [at - 1] if at else [])
    if not isinstance(needs, list) or not all(isinstance(n, int) and 0 <= n < at for n in needs):
        raise InvalidDocument(f"{where}.needs", f"must be positions of calls before this one (0 to {at - 1})")
    output = _tokens(f"{where}.output_tokens", fields.get("output_tokens"), least)
    prefix = _prefix(f"{where}.prefix", fields.get("prefix", []), prompt)
    return TracedCall(_text(f"{where}.stage", fields.get("stage")), prompt, output, tuple(needs), tool_s, prefix)


def _published(where: str, call: Json) -> TracedCall:
    fields = _mapping(where, call, {"step", "input_length", "output_length"})
    prompt = _tokens(f"{where}.input_length", fields.get("input_length"), 1)
    # An empty answer is one token too: the one that ends it.
    output = max(1, _tokens(f"{where}.output_length", fields.get("output_length"), 0))
    return TracedCall(_text(f"{where}.step", fields.get("step")), prompt, output)


def _in_line(calls: Sequence[TracedCall]) -> tuple[TracedCall, ...]:
    """The calls with what each needs: all of the group before it."""
    found: list[TracedCall] = []
    group, before = [], []  # type: list[int], list[int]
    for at, call in enumerate(calls):
        kind = next((kind for kind in SIDE_BY_SIDE if call.stage.startswith(kind)), None)
        if not (group and kind and found[group[0]].stage.startswith(kind)):
            group, before = [], group
        group.append(at)
        found.append(TracedCall(call.stage, call.prompt_tokens, call.output_tokens, tuple(before)))
    return tuple(found)


def _mapping(where: str, call: Json, known: set[str]) -> dict[str, Json]:
    if not isinstance(call, dict):
        raise InvalidDocument(where, "must be a mapping")
    for name in call:
        if name not in known:
            raise InvalidDocument(f"{where}.{name}", f"is not one of {', '.join(sorted(known))}")
    return call


def _text(where: str, value: Json) -> str:
    if not isinstance(value, str) or not value:
        raise InvalidDocument(where, "must be a text")
    return value


def _tokens(where: str, value: Json, least: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= MOST_TOKENS:
        raise InvalidDocument(where, f"must be a whole number of tokens from {least} to {MOST_TOKENS}, not {value!r}")
    return value


def _seconds(where: str, value: Json) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= 86400:
        raise InvalidDocument(where, f"must be seconds from 0 to 86400, not {value!r}")
    return float(value)


def _prefix(where: str, value: Json, prompt: int) -> tuple[tuple[str, int], ...]:
    if not isinstance(value, list):
        raise InvalidDocument(where, "must be a list of [key, tokens]")
    found: list[tuple[str, int]] = []
    for pair in value:
        if not isinstance(pair, list) or len(pair) != 2 or not isinstance(pair[0], str):
            raise InvalidDocument(where, f"{pair!r} must be [key, tokens]")
        tokens = _tokens(where, pair[1], 1)
        if tokens > prompt or (found and tokens <= found[-1][1]):
            raise InvalidDocument(where, f"{tokens} tokens must be more than those before it, and within the prompt")
        found.append((pair[0], tokens))
    return tuple(found)
