"""OpenTelemetry's traces, as OTLP/JSON exporters write them, told in the form of our own traces.

Knows the GenAI semantic conventions, reads no file, and knows of a trace only its form: mappings in, mappings out. Each
trace id with any is a workflow, each innermost span of a model a call: agents and wrappers around it repeat its tokens.
A call waited for all that had ended when it began; the time between, of tools or of the client, is a tool's.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from common.errors import InvalidDocument
from common.model import Json
from coordinator.simulator.tracefields import LONGEST_TOOL_S, text, time, tokens

SPANS = "resourceSpans"
"""What a document of OTLP/JSON is known by."""
STAGE, TENANT, SERVICE, OPERATION = "hexgen.stage", "hexgen.tenant", "service.name", "gen_ai.operation.name"
INPUT = ("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens")
OUTPUT = ("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens")
"""Attributes with lengths: today's, and those of before."""
CALLS = ("chat", "text_completion", "generate_content")
NO_CALLS = ("invoke_agent", "create_agent", "invoke_workflow", "execute_tool", "embeddings")
"""Operations that are calls even where tokens are missing, and those that are none even if they tell tokens."""
LEAST_WAIT_NS = 10_000_000
"""Shorter waits are left out: a step of its own for what the client does between two calls says nothing."""


@dataclass(frozen=True, slots=True)
class _Span:
    """fields: as exported; attributes: its own, over those of its resource. Times are in ns since 1970."""

    where: str
    trace: str
    id: str
    start_ns: int
    end_ns: int
    fields: Mapping[str, Json]
    attributes: Mapping[str, Json]


def told_as_ours(name: str, documents: Sequence[Json]) -> list[Json]:
    """The workflows of documents of OTLP/JSON in our form, by arrival, the first at 0 s. Raises InvalidDocument."""
    traces: dict[str, dict[str, _Span]] = {}
    for span in _spans(name, documents):
        known = traces.setdefault(span.trace, {})
        if span.id in known and span.fields != known[span.id].fields:  # the same again is a delivery that was repeated
            raise InvalidDocument(f"{span.where}.spanId", f"stands for two spans of trace {span.trace}: leave one out")
        known[span.id] = span
    if not traces:
        raise InvalidDocument(name, "has no spans: record some calls first")
    found = [(spans, calls) for spans in sorted(traces.values(), key=_start_ns) if (calls := _calls(spans))]
    if not found:
        raise InvalidDocument(name, f"has no span that is a call, which has {INPUT[0]}")
    first_ns = _start_ns(found[0][0])
    return [_workflow(spans, calls, first_ns) for spans, calls in found]


def _spans(name: str, documents: Sequence[Json]) -> Iterator[_Span]:
    for at, document in enumerate(documents):
        here = f"{name}[{at}]"
        if not isinstance(document, dict) or SPANS not in document:
            raise InvalidDocument(here, f'must be {{"{SPANS}": [...]}}, as others of the file are')
        for where, resource in _each([(here, document)], SPANS):
            shared = _attributes(f"{where}.resource", resource.get("resource") or {})
            for place, span in _each(_each([(where, resource)], "scopeSpans"), "spans"):
                yield _span(here, place, span, shared)


def _each(parents: Iterable[tuple[str, Json]], field: str) -> Iterator[tuple[str, dict[str, Json]]]:
    """The mappings in a list of each parent, with their places; a list that is left out is empty."""
    for where, parent in parents:
        children = parent.get(field) or [] if isinstance(parent, dict) else None
        if not isinstance(children, list) or not all(isinstance(child, dict) for child in children):
            raise InvalidDocument(f"{where}.{field}", "must be a list of mappings")
        yield from ((f"{where}.{field}[{at}]", child) for at, child in enumerate(children))


def _attributes(where: str, owner: Json) -> dict[str, Json]:
    pairs = _each([(where, owner)], "attributes")
    return {text(f"{place}.key", pair.get("key")): _plain(pair.get("value")) for place, pair in pairs}


def _plain(value: Json) -> Json:
    """What {"intValue": "12"} and such stand for; None for lists and all else that is not read here."""
    if not isinstance(value, dict):
        return None
    found = value.get("stringValue", value.get("doubleValue"))
    if isinstance(found, float) and found.is_integer():
        return int(found)
    return _whole(value["intValue"]) if "intValue" in value else found


def _whole(value: Json) -> Json:
    """Whole numbers of 64 bits are written as texts, by some exporters as numbers."""
    return int(value) if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 20 else value


def _span(here: str, place: str, fields: dict[str, Json], shared: dict[str, Json]) -> _Span:
    span_id = text(f"{place}.spanId", fields.get("spanId"))
    where = f"{here} span {span_id}"
    start_ns, end_ns = (_nanos(where, fields, name) for name in ("startTimeUnixNano", "endTimeUnixNano"))
    if end_ns < start_ns:
        raise InvalidDocument(f"{where}.endTimeUnixNano", f"{end_ns} is before its start, {start_ns}")
    trace = text(f"{where}.traceId", fields.get("traceId"))
    return _Span(where, trace, span_id, start_ns, end_ns, fields, {**shared, **_attributes(where, fields)})


def _nanos(where: str, fields: dict[str, Json], name: str) -> int:
    found = _whole(fields.get(name))
    if not isinstance(found, int) or not 0 < found < 2**64:
        raise InvalidDocument(f"{where}.{name}", f"must be nanoseconds since 1970, not {found!r}")
    return found


def _start_ns(spans: Mapping[str, _Span]) -> int:
    return min(span.start_ns for span in spans.values())


def _workflow(spans: Mapping[str, _Span], calls: Sequence[_Span], first_ns: int) -> dict[str, Json]:
    begun = sorted(spans.values(), key=lambda span: span.start_ns)
    tenant = _told(begun, TENANT) or _told(begun, SERVICE) or "default"
    return {"calls": _steps(calls, spans), "tenant": tenant, "arrival_s": (begun[0].start_ns - first_ns) / 1e9}


def _calls(spans: Mapping[str, _Span]) -> list[_Span]:
    """The innermost spans of models, as they began."""
    found = [span for span in spans.values() if _is_call(span)]
    outer = {around.id for span in found for around in _outwards(span, spans) if around is not span}
    return sorted((span for span in found if span.id not in outer), key=lambda span: (span.start_ns, span.end_ns))


def _is_call(span: _Span) -> bool:
    """One that failed is a call only if it tells all of its tokens: else no model need have run."""
    operation = span.attributes.get(OPERATION)
    told = [any(name in span.attributes for name in names) for names in (INPUT, OUTPUT)]
    status = span.fields.get("status")
    failed = isinstance(status, dict) and status.get("code") in (2, "STATUS_CODE_ERROR")
    return operation not in NO_CALLS and (all(told) or (operation in CALLS and not failed))


def _outwards(span: _Span, spans: Mapping[str, _Span]) -> Iterator[_Span]:
    """A span, the one around it, and so on; each once, even if the file has them go around in circles."""
    seen: set[str] = set()
    at: _Span | None = span
    while at is not None and at.id not in seen:
        yield at
        seen.add(at.id)
        at = spans.get(str(at.fields.get("parentSpanId")))


def _told(spans: Iterable[_Span], name: str) -> str | None:
    """An attribute of the first of some spans that has it."""
    return next((text(f"{one.where}.{name}", one.attributes[name]) for one in spans if one.attributes.get(name)), None)


def _stage(call: _Span, spans: Mapping[str, _Span]) -> str:
    """The nearest hexgen.stage: where libraries make the call's span, one can tell it only around that."""
    name = call.fields.get("name") or call.attributes.get(OPERATION)
    return _told(_outwards(call, spans), STAGE) or text(f"{call.where}.name", name)


def _steps(calls: Sequence[_Span], spans: Mapping[str, _Span]) -> list[Json]:
    """Calls, waits before each and after all, and what they need. An empty answer still has the token that ends it."""
    found: list[Json] = []
    places: list[int] = []
    begin_ns, end_ns = _start_ns(spans), max(span.end_ns for span in spans.values())
    for call, front in zip([*calls, None], _fronts(calls, end_ns), strict=True):
        stage, where = (_stage(call, spans), call.where) if call else ("", calls[-1].where)
        needs = [places[before] for before in front]
        wait_ns = (call.start_ns if call else end_ns) - max((calls[one].end_ns for one in front), default=begin_ns)
        if wait_ns >= LEAST_WAIT_NS:
            wait_s = time(f"{where}: the wait {'before' if call else 'after'} it", wait_ns / 1e9, LONGEST_TOOL_S)
            found.append(_step(f"before {stage}" if call else "after all", 0, 0, needs, wait_s))
            needs = [len(found) - 1]
        if call:
            places.append(len(found))
            found.append(_step(stage, _tokens(call, INPUT, 1), max(1, _tokens(call, OUTPUT, 0)), needs))
    return found


def _step(stage: str, prompt: int, output: int, needs: list[int], tool_s: float = 0.0) -> dict[str, Json]:
    return {"stage": stage, "prompt_tokens": prompt, "output_tokens": output, "needs": needs, "tool_s": tool_s}


def _fronts(calls: Sequence[_Span], end_ns: int) -> Iterator[list[int]]:
    """For each call, and for the end, those that had ended before, without those which one of them waited for."""
    running: list[int] = []
    front: list[int] = []
    for at, now_ns in enumerate([*(call.start_ns for call in calls), end_ns]):
        before = front + [one for one in running if calls[one].end_ns <= now_ns]
        running = [one for one in running if calls[one].end_ns > now_ns] + [at]
        # Calls are numbered as they began: what ended before the last of these began, that one waited for.
        last = max(before, default=0)
        front = [one for one in before if one == last or calls[one].end_ns > calls[last].start_ns]
        yield front


def _tokens(call: _Span, names: Sequence[str], least: int) -> int:
    name = next((name for name in names if name in call.attributes), names[0])
    return tokens(f"{call.where}.{name}", call.attributes.get(name), least)
