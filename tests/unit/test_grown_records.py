"""Records of a neighbouring version: what a later one added is left out, what an earlier one lacked has its default."""

from typing import Any

import pytest

from common import recorded, wire
from common.events import Completed, Failed, Lost, Outcome
from common.model import (
    Claim,
    Grounds,
    Head,
    InstanceLoad,
    InstanceProfile,
    LlmCall,
    Node,
    Push,
    Sampling,
    Slo,
    ToolCall,
    Usage,
)
from common.recorded import Recorded, RecordedCall

NEW = ["of a later version", 7]
HEAD = Head("acme", "w", "d", {"a": 1}, Slo(1, 2), "msgpack", True, on_deadline="cancel")
NODE = Node("running", 2, 1, "r1", "queued", 3, "no room", 40, 50, 60)
OUTCOME = Outcome("x", "a", 1, 2, Usage(3, 4, 5), 6)
SAMPLING = Sampling(9, 0.5, 0.9, ("end",), 7, {"type": "string"})
LLM = LlmCall("say it", None, "m", SAMPLING)
TOOL = ToolCall("sql.execute", {"sql": "SELECT 1"})
PROFILE = InstanceProfile("p", 1.0, 2.0, 3.0, 4.0, 5, 6, 7, 8)
LOAD = InstanceLoad(1.0, 2.0, 3.0, 4, 5, 6, 7, 8, 9.0, (), 10, 0.5, 11)
RECORD = Recorded("w", "acme", 1, 2, 3, "flow", {"harm": 2.0}, (RecordedCall("s", 1, 2, 0, (), 0.5, 0.25),))


def payload(call: LlmCall | ToolCall) -> list[Any]:
    push = Push("r1", "n", "a", 0, 1, 2, 3, 4, call, "w/n", 5.0, True)
    return list(wire.unpack(wire.pack_payload(push, "w1", "json")))


def claimed(fields: list[Any]) -> Claim:
    return wire.unpack_claim("r1", 1, wire.pack(fields), (1, 2, 3))


def grown(packed: bytes) -> bytes:
    """With fields at its end that nobody here knows."""
    return wire.pack([*wire.unpack(packed), *NEW])


def cut(packed: bytes, left: int) -> bytes:
    return wire.pack(wire.unpack(packed)[:left])


def test_of_a_later_version() -> None:
    assert wire.unpack_head(grown(wire.pack_head(HEAD))) == HEAD
    assert wire.unpack_node(grown(wire.pack_node(NODE))) == NODE
    assert wire.unpack_outcome(grown(wire.pack_outcome(OUTCOME))) == OUTCOME
    grounds = Grounds(1, 0.5, 2.0, 3.0, 4.0, 5.0, 6.0)
    assert wire.unpack_grounds(grown(wire.pack_grounds(grounds))) == grounds
    assert wire.unpack_grounds(wire.pack_grounds(Grounds(1, 0.5, 2.0, 3.0))) == Grounds(1, 0.5, 2.0, 3.0)
    assert recorded.unpack(grown(recorded.pack(RECORD))) == RECORD
    wants = Push("r1", "n", "a", 0, 1, 2, 3, 4, LLM, "w/n", 5.0, True, requires=frozenset({"fast"}))
    assert wire.unpack_wants(grown(wire.pack_wants(wants))) == wire.unpack_wants(wire.pack_wants(wants))


@pytest.mark.parametrize("call", [LLM, TOOL])
def test_a_call_of_a_later_version(call: LlmCall | ToolCall) -> None:
    fields = payload(call)
    expected = claimed(fields)
    assert expected.call == call
    body = [*fields[3], 7]
    if call is LLM:
        body[3] = [*body[3], *NEW]
    fields[3] = body
    assert claimed([*fields, *NEW]) == expected


def test_nested_parts_of_a_later_version() -> None:
    fields = wire.unpack(wire.pack_head(HEAD))
    fields[4] = [*fields[4], 99]  # its SLO
    assert wire.unpack_head(wire.pack(fields)) == HEAD
    fields = wire.unpack(wire.pack_outcome(OUTCOME))
    fields[4] = [*fields[4], 99]  # its tokens
    assert wire.unpack_outcome(wire.pack(fields)) == OUTCOME
    fields = wire.unpack(recorded.pack(RECORD))
    fields[8] = [[*call, *NEW] for call in fields[8]]
    assert recorded.unpack(wire.pack(fields)) == RECORD


def test_messages_of_a_later_version() -> None:
    done = b"completed r1 n and more"
    assert wire.read_message(done, wire.pack_outcome(OUTCOME)) == Completed("r1", "n", OUTCOME)
    failed = b"failed r1 n " + grown(wire.pack_failure("no", True, 3))
    assert wire.read_message(failed, None) == Failed("r1", "n", "no", True, 3)
    assert wire.read_message(b"lost r1 n 3 and more", None) == Lost("r1", "n", 3)


def test_of_an_earlier_version() -> None:
    assert wire.unpack_head(cut(wire.pack_head(HEAD), 5)) == Head("acme", "w", "d", {"a": 1}, Slo(1, 2))
    assert wire.unpack_node(cut(wire.pack_node(NODE), 5)) == Node("running", 2, 1, "r1", "queued")
    assert wire.unpack_outcome(cut(wire.pack_outcome(OUTCOME), 5)) == Outcome("x", "a", 1, 2, Usage(3, 4, 5))
    fields = payload(LLM)
    fields[3][3] = fields[3][3][:4]
    assert claimed(fields).call == LlmCall("say it", None, "m", Sampling(9, 0.5, 0.9, ("end",)))


def test_figures_of_an_earlier_version() -> None:
    profile = wire.unpack(wire.pack_profile(PROFILE))
    del profile["max_batch"], profile["chunk_tokens"]
    assert wire.unpack_profile(wire.pack(profile)) == InstanceProfile("p", 1.0, 2.0, 3.0, 4.0, 5, 6)
    load = wire.unpack(wire.pack_load(LOAD))
    del load["iterations"], load["idle_prefill"], load["cache_version"], load["running"]
    assert wire.unpack_load(wire.pack(load)) == InstanceLoad(1.0, 2.0, 3.0, 4, 5, 6, 7, 8, 9.0)


@pytest.mark.parametrize("number", ["many", None, float("nan"), float("inf"), [1], b"x", -1])
@pytest.mark.parametrize("at", [2, 3, 5])
def test_an_outcome_whose_figures_are_no_numbers_from_0_is_none(number: Any, at: int) -> None:
    fields = wire.unpack(wire.pack_outcome(OUTCOME))
    fields[at] = number
    with pytest.raises((ValueError, TypeError, OverflowError)):
        wire.unpack_outcome(wire.pack(fields))
    fields = wire.unpack(wire.pack_outcome(OUTCOME))
    fields[4][at % 3] = number
    with pytest.raises((ValueError, TypeError, OverflowError)):
        wire.unpack_outcome(wire.pack(fields))
