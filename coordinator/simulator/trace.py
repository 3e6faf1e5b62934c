"""Recorded workflows: what was called, after what, how long prompts and answers were. Reads and writes them.

Draws no arrivals. Four forms are read. Ours: a list of {"calls": [{"stage", "prompt_tokens", "output_tokens", "needs":
[position, ...], "tool_s", "prefix": [[key, tokens], ...]}], "tenant", "slo_scale", "weight", "arrival_s"}, where all
but the calls and their first three fields may be left out. That of the HexGen-Flow paper's traces: a list of {NAME:
[{"step", "input_length", "output_length"}]}, where one call follows the other, but for the groups of candidates and of
evaluations, whose calls run side by side. Mooncake's: an entry for each call with {"timestamp", "input_length",
"output_length", "hash_ids"}, times in ms and hashes of blocks of 512 tokens. And OpenTelemetry's, which is told in ours
elsewhere. Entries are in a list, or stand one after the other, as in a file of lines.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from pathlib import Path

from common.errors import InvalidDocument
from common.model import Json
from coordinator.simulator import otel
from coordinator.simulator.tracefields import LONGEST_TOOL_S, factor, mapping, prefix, text, time, tokens

SIDE_BY_SIDE = ("generate_candidate", "evaluate")
"""Steps of the published traces whose calls run in parallel."""
BLOCK_TOKENS = 512


@dataclass(frozen=True, slots=True)
class TracedCall:
    """One call of a workflow. `needs`: positions of calls before it; a tool call has `tool_s` seconds and no tokens.

    prefix: what it shares with others, as (key, tokens from the start of the prompt), the shortest first. Keys are
    those of any workflow; one that begins with "." is this workflow's own. A key stands for the same text everywhere.
    """

    stage: str
    prompt_tokens: int
    output_tokens: int
    needs: tuple[int, ...] = ()
    tool_s: float = 0.0
    prefix: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class TracedWorkflow:
    """Calls in an order in which they may run, and whose they were.

    slo_scale multiplies the SLO asked of a run; weight is the tenant's part where orders are fair; arrival_s: when it
    came, in s from any beginning, None if that was not recorded.
    """

    calls: tuple[TracedCall, ...]
    tenant: str = "default"
    slo_scale: float = 1.0
    weight: float = 1.0
    arrival_s: float | None = None


Trace = tuple[TracedWorkflow, ...]


def read_trace(path: Path) -> Trace:
    """The workflows of a file in any of the forms. Raises InvalidDocument naming the place and the fault."""
    try:
        entries = _entries(path.read_text("utf-8"))
    except OSError as error:
        raise InvalidDocument(str(path), f"cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise InvalidDocument(str(path), f"is not JSON: {error}") from None
    if not entries:
        raise InvalidDocument(str(path), "must be a list of workflows with at least one")
    if any(isinstance(entry, dict) and otel.SPANS in entry for entry in entries):
        entries = otel.told_as_ours(path.name, entries)
    trace = tuple(_workflow(f"{path.name}[{at}]", entry) for at, entry in enumerate(entries))
    check_trace(path.name, trace)
    return trace


def write_trace(path: Path, trace: Trace) -> None:
    """Write workflows in our form, one a line; fields at their defaults are left out."""
    path.write_text("[\n" + ",\n".join(json.dumps(_written(workflow)) for workflow in trace) + "\n]\n", "utf-8")


def check_trace(name: str, trace: Trace) -> None:
    """What holds between workflows: arrivals in order, for all or for none; a prefix key is the same text everywhere.

    Raises InvalidDocument.
    """
    known = [workflow.arrival_s is not None for workflow in trace]
    if any(known) and not all(known):
        raise InvalidDocument(
            f"{name}[{known.index(False)}].arrival_s", "is missing: give it for all workflows or none"
        )
    for at, (before, after) in enumerate(pairwise(trace), 1):
        if before.arrival_s is not None and after.arrival_s is not None and after.arrival_s < before.arrival_s:
            fault = f"{after.arrival_s:g} is before {before.arrival_s:g} of the workflow before it: sort by arrival"
            raise InvalidDocument(f"{name}[{at}].arrival_s", fault)
    seen: dict[str, tuple[int, str]] = {}
    for at, workflow in enumerate(trace):
        for call in workflow.calls:
            parent = ""
            for key, length in call.prefix:
                own = f"{at}{key}" if key.startswith(".") else f"/{key}"
                if seen.setdefault(own, (length, parent)) != (length, parent):
                    fault = (
                        f"key {key!r} must be as long, after the same keys, as in the calls before: take another key"
                    )
                    raise InvalidDocument(f"{name}[{at}].prefix", fault)
                parent = own


def _entries(content: str) -> list[Json]:
    """Those of one list, or one after the other; a fault is then told with its line in the file."""
    found: list[Json] = []
    decoder = json.JSONDecoder()
    at = 0
    while at < len(content):
        if content[at].isspace():
            at += 1
            continue
        entry, at = decoder.raw_decode(content, at)
        found.append(entry)
    return found[0] if len(found) == 1 and isinstance(found[0], list) else found


def _workflow(where: str, entry: Json) -> TracedWorkflow:
    if not isinstance(entry, dict):
        raise InvalidDocument(where, 'must be a mapping such as {"calls": [...]}')
    if "hash_ids" in entry or "timestamp" in entry:
        return _mooncake(where, entry)
    ours = "calls" in entry
    if not ours and len(entry) != 1:
        raise InvalidDocument(where, 'must be {"calls": [...]}, a list of calls under one name')
    calls = entry["calls"] if ours else next(iter(entry.values()))
    if not isinstance(calls, list) or not calls:
        raise InvalidDocument(where, "has no calls: it must be a list of calls with at least one")
    if not ours:
        return TracedWorkflow(_in_line([_published(f"{where}.{at}", call) for at, call in enumerate(calls)]))
    mapping(where, entry, {"calls", "tenant", "slo_scale", "weight", "arrival_s"})
    arrival = entry.get("arrival_s")
    return TracedWorkflow(
        calls=tuple(_ours(f"{where}.calls[{at}]", call, at) for at, call in enumerate(calls)),
        tenant=text(f"{where}.tenant", entry.get("tenant", "default")),
        slo_scale=factor(f"{where}.slo_scale", entry.get("slo_scale", 1.0)),
        weight=factor(f"{where}.weight", entry.get("weight", 1.0)),
        arrival_s=None if arrival is None else time(f"{where}.arrival_s", arrival),
    )


def _ours(where: str, call: Json, at: int) -> TracedCall:
    fields = mapping(where, call, {"stage", "prompt_tokens", "output_tokens", "needs", "tool_s", "prefix"})
    tool_s = time(f"{where}.tool_s", fields.get("tool_s", 0.0), LONGEST_TOOL_S)
    least = 0 if tool_s else 1
    prompt = tokens(f"{where}.prompt_tokens", fields.get("prompt_tokens"), least)
    needs = fields.get("needs", [at - 1] if at else [])
    if not isinstance(needs, list) or not all(type(n) is int and 0 <= n < at for n in needs):
        raise InvalidDocument(f"{where}.needs", f"must be positions of calls before this one, which is {at}")
    output = tokens(f"{where}.output_tokens", fields.get("output_tokens"), least)
    shared = prefix(f"{where}.prefix", fields.get("prefix", []), prompt)
    return TracedCall(text(f"{where}.stage", fields.get("stage")), prompt, output, tuple(needs), tool_s, shared)


def _published(where: str, call: Json) -> TracedCall:
    fields = mapping(where, call, {"step", "input_length", "output_length"})
    prompt, output = _lengths(where, fields)
    return TracedCall(text(f"{where}.step", fields.get("step")), prompt, output)


def _lengths(where: str, fields: dict[str, Json]) -> tuple[int, int]:
    prompt = tokens(f"{where}.input_length", fields.get("input_length"), 1)
    # An empty answer is one token too: the one that ends it.
    return prompt, max(1, tokens(f"{where}.output_length", fields.get("output_length"), 0))


def _mooncake(where: str, entry: dict[str, Json]) -> TracedWorkflow:
    """A workflow of one call. A hash stands for its block and all before it; only full blocks are shared."""
    fields = mapping(where, entry, {"timestamp", "input_length", "output_length", "hash_ids"})
    arrival_s = time(f"{where}.timestamp", fields.get("timestamp"), unit="milliseconds") / 1000
    prompt, output = _lengths(where, fields)
    hashes = fields.get("hash_ids")
    blocks = -(-prompt // BLOCK_TOKENS)
    if not isinstance(hashes, list) or len(hashes) != blocks or not all(type(one) is int for one in hashes):
        raise InvalidDocument(
            f"{where}.hash_ids", f"must be {blocks} whole numbers, one for each {BLOCK_TOKENS} tokens"
        )
    full = enumerate(hashes[: prompt // BLOCK_TOKENS], 1)
    shared = tuple((str(block), BLOCK_TOKENS * count) for count, block in full)
    return TracedWorkflow((TracedCall("call", prompt, output, prefix=shared),), arrival_s=arrival_s)


def _in_line(calls: Sequence[TracedCall]) -> tuple[TracedCall, ...]:
    """The calls with what each needs: all of the group before it."""
    found: list[TracedCall] = []
    before: list[int] = []
    for group in _groups(calls):
        first = len(found)
        found += [TracedCall(call.stage, call.prompt_tokens, call.output_tokens, tuple(before)) for call in group]
        before = list(range(first, len(found)))
    return tuple(found)


def _groups(calls: Sequence[TracedCall]) -> Iterator[list[TracedCall]]:
    """Runs of calls that are side by side; every other call is a group of its own."""

    def kind(numbered: tuple[int, TracedCall]) -> str | int:
        at, call = numbered
        return next((kind for kind in SIDE_BY_SIDE if call.stage.startswith(kind)), at)

    for _, group in groupby(enumerate(calls), kind):
        yield [call for _, call in group]


def _written(workflow: TracedWorkflow) -> dict[str, Json]:
    written: dict[str, Json] = {"calls": [_written_call(at, call) for at, call in enumerate(workflow.calls)]}
    for name, default in (("tenant", "default"), ("slo_scale", 1.0), ("weight", 1.0), ("arrival_s", None)):
        if getattr(workflow, name) != default:
            written[name] = getattr(workflow, name)
    return written


def _written_call(at: int, call: TracedCall) -> dict[str, Json]:
    written: dict[str, Json] = {
        "stage": call.stage,
        "prompt_tokens": call.prompt_tokens,
        "output_tokens": call.output_tokens,
    }
    if call.needs != ((at - 1,) if at else ()):
        written["needs"] = list(call.needs)
    if call.tool_s:
        written["tool_s"] = call.tool_s
    if call.prefix:
        written["prefix"] = [list(pair) for pair in call.prefix]
    return written
