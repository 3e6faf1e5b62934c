"""Bytes <-> records: the only module that knows how anything is written in Redis. No Redis commands here.

What comes from outside is read with suspicion; what our own processes tell each other is packed tightly. Such a record
grows at its end only: what a later version has added is left out, what an earlier one lacked has its default (see
docs/upgrade.md).
"""

import json
import math
from collections.abc import Sequence
from typing import Any

import msgpack

from common.errors import InvalidDocument
from common.events import AmendAsked, CancelAsked, Completed, Due, Evacuated, Event, Failed, Lost, Outcome, Submitted
from common.model import (
    Claim,
    Grounds,
    Head,
    InstanceLoad,
    InstanceProfile,
    Json,
    LlmCall,
    Node,
    Push,
    RunningCall,
    Sampling,
    Slo,
    ToolCall,
    Usage,
)

MAX_DEPTH = 32


def pack(value: Any) -> bytes:
    """Any JSON-like value as msgpack."""
    return msgpack.packb(value)  # type: ignore[no-any-return]


def pack_for_lua(value: Any) -> bytes:
    """A value for `cmsgpack` in a script, which knows only the older format (text and bytes are one there)."""
    return msgpack.packb(value, use_bin_type=False)  # type: ignore[no-any-return]


def unpack(data: bytes) -> Any:
    """The value of `pack`."""
    return msgpack.unpackb(data, strict_map_key=False)


def dump(value: Json, encoding: str) -> bytes:
    """A value for users, in the encoding they wrote in ("json" or "msgpack"). Half characters are told as `?`."""
    if encoding == "msgpack":
        return msgpack.packb(value, unicode_errors="replace")  # type: ignore[no-any-return]
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, default=str).encode("utf-8", "replace")


def load(data: bytes, encoding: str) -> Json:
    """The value of `dump`; also reads what strangers wrote (see `check_json`). Raises InvalidDocument."""
    try:
        return msgpack.unpackb(data) if encoding == "msgpack" else json.loads(data)
    except (ValueError, RecursionError, msgpack.exceptions.UnpackException) as error:
        reason = str(error) or type(error).__name__
        raise InvalidDocument("", f"the document is not {encoding}: {reason}") from None


def check_json(value: Any, path: str = "", depth: int = MAX_DEPTH) -> None:
    """Refuse what JSON cannot carry, or we not: deep nesting, bytes, NaN, keys that are no text, half characters.

    Raises InvalidDocument naming the place.
    """
    if isinstance(value, dict | list | tuple) and depth == 0:
        raise InvalidDocument(path, f"is nested deeper than {MAX_DEPTH} levels")
    if isinstance(value, dict):
        for key, inner in value.items():
            if not isinstance(key, str):
                raise InvalidDocument(path, f"has the key {key!r}; keys must be text")
            check_json(key, path, depth)
            check_json(inner, f"{path}.{key}" if path else key, depth - 1)
    elif isinstance(value, list | tuple):
        for index, inner in enumerate(value):
            check_json(inner, f"{path}.{index}" if path else str(index), depth - 1)
    elif (fault := _leaf_fault(value)) is not None:
        raise InvalidDocument(path, fault)


def _leaf_fault(value: Any) -> str | None:
    if value is None or isinstance(value, bool):
        return None
    if isinstance(value, str):
        return None if value.isascii() or _is_text(value) else "holds half a surrogate pair, which is no text"
    if isinstance(value, int):
        return None if -(1 << 63) <= value < 1 << 64 else "is an integer beyond 64 bits"
    if isinstance(value, float):
        return None if math.isfinite(value) else f"is {value}, not a number"
    return f"is of type {type(value).__name__}, which JSON cannot carry"


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def pack_head(head: Head) -> bytes:
    """See `Head`."""
    slo = (head.slo.arrival_at, head.slo.deadline_at)
    fields = (head.tenant, head.name, head.definition, head.inputs, slo, head.encoding, head.stream)
    return pack(fields if head.on_deadline == "continue" else (*fields, head.on_deadline))


def unpack_head(data: bytes) -> Head:
    """See `Head`. Raises ValueError where a part is of another type."""
    tenant, name, definition, inputs, slo, *rest = unpack(data)
    _check_types((tenant, name, definition, inputs, *slo[:2], *rest[:3]), _HEAD_TYPES)
    return Head(tenant, name, definition, inputs, Slo(*slo[:2]), *rest[:3])


def pack_node(node: Node) -> bytes:
    """See `Node`."""
    fields = (node.status, node.left, node.round, node.request, node.phase, node.attempt, node.error)
    rare = (node.prompt_tokens, node.waiting_since, node.completed_at)
    return pack((*fields, *rare) if any(rare) else fields)


def unpack_node(data: bytes) -> Node:
    """See `Node`. Raises ValueError where a part is of another type."""
    parts = unpack(data)[: len(Node.__slots__)]
    _check_types(parts, _NODE_TYPES)
    return Node(*parts)


_HEAD_TYPES = (str, str, str, dict, int, int, str, bool, str)
_NODE_TYPES = (str, int, int, str, str, int, str, int, int, int)


def _check_types(parts: Sequence[Any], types: tuple[type, ...]) -> None:
    """What is written by a stranger's hand must not be taken for a record, or it is found where nobody expects it."""
    found = tuple(map(type, parts))
    if found != types[: len(found)]:
        raise ValueError(f"its parts are {', '.join(one.__name__ for one in found)}")


def pack_wants(push: Push) -> bytes:
    """What a request wants of an instance, and its prompt's length in characters, for `unpack_wants`."""
    model = push.call.model if isinstance(push.call, LlmCall) else None
    return pack((model, sorted(push.requires), sorted(push.features), push.call.characters()))


def unpack_wants(data: bytes) -> tuple[str | None, frozenset[str], frozenset[str], int]:
    """Model, labels, features, characters."""
    model, requires, features, characters = unpack(data)[:4]
    return model, frozenset(requires), frozenset(features), int(characters)


def pack_grounds(grounds: Grounds) -> bytes:
    """See `Grounds`."""
    return pack(grounds if any(grounds[4:]) else grounds[:4])


def unpack_grounds(data: bytes) -> Grounds:
    """See `Grounds`. Raises ValueError, also for numbers that are none."""
    at, *others = map(float, unpack(data)[: len(Grounds._fields)])
    if not all(map(math.isfinite, others)):
        raise ValueError("its grounds have a number that is none")
    return Grounds(int(at), *others)


def pack_payload(push: Push, workflow: str, encoding: str) -> bytes:
    """What a worker needs of a request, opaque to Redis."""
    call = push.call
    if isinstance(call, ToolCall):
        body: Any = (call.tool, call.args)
    else:
        s = call.sampling
        sampling = (s.max_tokens, s.temperature, s.top_p, s.stop, s.seed, s.json_schema)
        body = (call.prompt, call.messages, call.model, sampling)
    return pack((workflow, push.node, push.stage, body, push.timeout_s, push.stream, encoding))


def unpack_claim(
    request: str,
    token: int,
    payload: bytes,
    times: tuple[int, int, int],
    prefix: bytes = b"",
    figures: tuple[int, int, int, int] = (0, 0, 0, 0),
    alone: bool = False,
) -> Claim:
    """A claimed request from its record's fields.

    times: enqueued_at, deadline_at, claimed_at; figures: prompt_tokens, expected_tokens, slo_ms, key_ms.
    """
    workflow, node, stage, body, timeout_s, stream, encoding = unpack(payload)[:7]
    call: LlmCall | ToolCall
    if len(body) < 4:
        call = ToolCall(*body[:2])
    else:
        prompt, messages, model, (max_tokens, temperature, top_p, stop, *rare) = body[:4]
        sampling = Sampling(max_tokens, temperature, top_p, tuple(stop), *rare[:2])
        call = LlmCall(prompt, tuple(messages) if messages is not None else None, model, sampling)
    where = (workflow, node, stage)
    return Claim(request, token, *times, *where, call, timeout_s, stream, encoding, prefix, *figures, alone)


def pack_outcome(outcome: Outcome) -> bytes:
    """See `Outcome`."""
    u = outcome.usage
    tokens = (u.prompt_tokens, u.output_tokens, u.cached_tokens)
    return pack((outcome.output, outcome.instance, outcome.queued_ms, outcome.run_ms, tokens, outcome.prompt_chars))


def unpack_outcome(data: bytes) -> Outcome:
    """See `Outcome`. Its figures are learned from: where they are no numbers from 0 it raises an error of any class."""
    output, instance, queued_ms, run_ms, tokens, *rest = unpack(data)
    usage = Usage(*map(_figure, tokens[:3]))
    return Outcome(output, str(instance), _figure(queued_ms), _figure(run_ms), usage, *map(_figure, rest[:1]))


def _figure(value: Any) -> int:
    found = int(value)
    if found < 0:
        raise ValueError(f"{found} is below 0")
    return found


def pack_failure(error: str, retryable: bool, prompt_tokens: int) -> bytes:
    """Why an attempt failed, bounded to 2,000 characters. See `Failed`."""
    return pack((error[:2000].encode("utf-8", "replace").decode(), retryable, prompt_tokens))


def read_message(message: bytes, output: bytes | None) -> Event:
    """A mailbox message ("kind request node rest") as the event it tells of; an error of any class if it is none."""
    kind, *rest = message.split(b" ", 3)
    request, node = (part.decode() for part in rest[:2]) if len(rest) >= 2 else ("", "")
    match kind:
        case b"submitted":
            return Submitted()
        case b"completed":
            return Completed(request, node, unpack_outcome(output or b""))
        case b"failed":
            return Failed(request, node, *unpack(rest[2])[:3])
        case b"lost":
            return Lost(request, node, int(rest[2].split()[0]))
        case b"evacuated":
            return Evacuated(request, node)
        case b"due":
            return Due(node)
        case b"cancel":
            return CancelAsked(rest[2].decode("utf-8", "replace"))
        case b"amend":
            return AmendAsked(int(rest[2]))
        case b"damaged":
            raise ValueError(f"the record of request {rest[0].decode()} is damaged")
        case _:
            raise ValueError(f"no message begins with {kind!r}")


def unpack_sums(data: bytes) -> tuple[float, ...]:
    """What `learn.lua` keeps under a name; empty if it is something else."""
    try:
        return tuple(map(float, unpack(data)))
    except (ValueError, TypeError, msgpack.exceptions.UnpackException):
        return ()


def pack_profile(profile: InstanceProfile) -> bytes:
    """See `InstanceProfile`."""
    return pack({name: getattr(profile, name) for name in InstanceProfile.__slots__})


def unpack_profile(data: bytes) -> InstanceProfile:
    """See `InstanceProfile`. What a later version has added is left out."""
    found = unpack(data)
    return InstanceProfile(**{name: found[name] for name in InstanceProfile.__slots__ if name in found})


def pack_load(load: InstanceLoad) -> bytes:
    """See `InstanceLoad`."""
    running = [[getattr(call, name) for name in RunningCall.__slots__] for call in load.running]
    return pack({name: getattr(load, name) for name in InstanceLoad.__slots__} | {"running": running})


def _running_call(call: Any) -> RunningCall:
    request, *figures = call[: len(RunningCall.__slots__)]
    return RunningCall(str(request), *map(int, figures))


def unpack_load(data: bytes) -> InstanceLoad:
    """See `InstanceLoad`. What a later version has added is left out.

    Raises ValueError for speeds that no engine has, too: everybody's estimates divide by them.
    """
    found = unpack(data)
    running = tuple(_running_call(call) for call in found.pop("running", ()))
    load = InstanceLoad(running=running, **{name: found[name] for name in InstanceLoad.__slots__ if name in found})
    positive = 0 < load.prefill_tokens_per_s < math.inf and 0 < load.step_s < math.inf
    if not (positive and 0 <= load.kv_s_per_token < math.inf and 0 <= load.token_s < math.inf):
        raise ValueError("its speeds are no numbers from 0")
    return load
