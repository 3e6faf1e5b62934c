"""Bad input, through real processes: the submitter is told what is wrong and where; nothing crashes, others go on."""

import json
import secrets
from collections.abc import Iterator
from typing import Any

import msgpack
import plugins
import pytest
import redis
from deployment import Deployment, chain

from common.store.embedded import EmbeddedServer
from hexgen_flow.client import Event, WorkflowFailed

Document = dict[str, Any]
GOOD = chain(1)


def one_stage(**stage: Any) -> Document:
    """A workflow `one` of a single stage; inputs `text` and `data` may be given."""
    inputs = {"text": {"type": "string", "default": ""}, "data": {"type": "object", "default": {}}}
    return {"name": "one", "inputs": inputs, "stages": {"only": {"retries": 0, **stage}}}


class Bench:
    """The deployment, and raw entries into its submission stream."""

    def __init__(self, deployment: Deployment, connection: "redis.Redis", namespace: str) -> None:
        self.deployment = deployment
        self.client = deployment.client
        self.redis: Any = connection
        self.prefix = f"{{hexgen:{namespace}}}:"

    def add(self, fields: dict[bytes, bytes]) -> str:
        """Append a raw entry; its id."""
        entry: bytes = self.redis.xadd(self.prefix + "submissions", fields)
        return entry.decode()

    def first(self, entry: str) -> Event:
        return next(self.client.events(entry, timeout_s=20))

    def good(self) -> None:
        """A workflow like any other's completes, and every process is alive."""
        found = self.client.wait(self.client.submit("chain1", {"text": "fine"}), timeout_s=20)
        assert found["output"] == {"s0": "fine"}
        self.deployment.processes.check()


@pytest.fixture(scope="module")
def deployed(server: EmbeddedServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    namespace = f"bad-{secrets.token_hex(4)}"
    folder = tmp_path_factory.mktemp("bad-input")
    own = plugins.install(folder / "own")
    with (
        Deployment(server, namespace, folder, PYTHONPATH=str(own), HEXGEN_LEASE_S="8") as deployment,
        redis.Redis.from_url(server.url) as connection,
    ):
        deployment.define(GOOD)
        deployment.worker("only", "--engine", "simulated", "--time-scale", "1000", "--responder", "obedient")
        deployment.tools()
        yield Bench(deployment, connection, namespace)


@pytest.fixture
def bench(deployed: Bench) -> Iterator[Bench]:
    """The deployment, which must be well after each test."""
    yield deployed
    deployed.good()


def nested(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels - 1):
        value = [value]
    return value


CYCLE = {"name": "cycle", "stages": {name: {"prompt": "x", "needs": [other]} for name, other in ("ab", "ba")}}
UNKNOWN_KEY = {"name": "typo", "stages": {"a": {"prompt": "x", "max_token": 5}}}
UNKNOWN_NAME = {"name": "name", "stages": {"a": {"prompt": "{{ b.output }}"}}}
BROKEN_TEMPLATE = {"name": "broken", "stages": {"a": {"prompt": "{{ inputs. }}"}}}

# What is sent as a document, the field that is named, words of the cause.
DOCUMENTS: dict[str, tuple[Document, str, str]] = {
    "nothing": ({}, "workflow", "give either"),
    "two things": ({"workflow": "chain1", "cancel": "x"}, "workflow", "not both"),
    "workflow of a wrong type": ({"workflow": 7}, "workflow", "name of a workflow or a definition"),
    "unknown workflow": ({"workflow": "chain11"}, "workflow", "did you mean 'chain1'"),
    "unknown key": ({"workflow": "chain1", "inptus": {}}, "inptus", "did you mean 'inputs'"),
    "other version": ({"workflow": "chain1", "v": 2}, "v", "write 1"),
    "id with a colon": ({"workflow": "chain1", "id": "a:events"}, "id", "letters, digits"),
    "id of an entry": ({"workflow": "chain1", "id": "1700000000000-0"}, "id", "stream entry"),
    "tenant of a wrong type": ({"workflow": "chain1", "tenant": 5}, "tenant", "must be text"),
    "missing input": ({"workflow": "chain1"}, "inputs.text", "is missing"),
    "input of a wrong type": ({"workflow": "chain1", "inputs": {"text": 5}}, "inputs.text", "must be a string"),
    "unknown input": ({"workflow": "chain1", "inputs": {"txt": ""}}, "inputs.txt", "did you mean 'text'"),
    "inputs of a wrong type": ({"workflow": "chain1", "inputs": []}, "inputs", "must be a mapping"),
    "negative SLO": ({"workflow": "chain1", "slo_s": -1}, "slo_s", "above 0"),
    "SLO of zero": ({"workflow": "chain1", "slo_s": 0}, "slo_s", "above 0"),
    "SLO beyond a week": ({"workflow": "chain1", "slo_s": 604801}, "slo_s", "at most 604800"),
    "SLO of a wrong type": ({"workflow": "chain1", "slo_s": "5"}, "slo_s", "must be a number"),
    "SLO NaN": ({"workflow": "chain1", "slo_s": float("nan")}, "slo_s", "nan, not a number"),
    "SLO infinite": ({"workflow": "chain1", "slo_s": float("inf")}, "slo_s", "inf, not a number"),
    "deadline in the past": (
        {"workflow": "chain1", "inputs": {"text": ""}, "deadline_at": 1_600_000_000_000}, "deadline_at", "later than"
    ),
    "deadline far away": (
        {"workflow": "chain1", "inputs": {"text": ""}, "deadline_at": 1 << 63}, "deadline_at", "at most a week"
    ),
    "SLO and deadline": ({"workflow": "chain1", "slo_s": 5, "deadline_at": 5}, "deadline_at", "not both"),
    "nested too deep": ({"workflow": "chain1", "inputs": {"text": nested(40)}}, "inputs.text" + ".0" * 30, "32 levels"),
    "unknown key in a definition": ({"workflow": UNKNOWN_KEY}, "workflow.stages.a.max_token", "'max_tokens'"),
    "unknown name in a template": ({"workflow": UNKNOWN_NAME}, "workflow.stages.a.prompt", "'b'"),
    "broken template": ({"workflow": BROKEN_TEMPLATE}, "workflow.stages.a.prompt", ""),
    "cyclic definition": ({"workflow": CYCLE}, "workflow.stages.a.needs", "a"),
    "empty definition": ({"workflow": {}}, "workflow.name", "is missing"),
    "cancel of nothing": ({"cancel": "nobody"}, "cancel", "no workflow 'nobody' is running"),
    "amendment of nothing": ({"amend": "nobody", "slo_s": 5}, "amend", "no workflow 'nobody' is running"),
    "amendment without a deadline": ({"amend": "nobody"}, "amend", "give slo_s or deadline_at"),
    "endless text": ({"workflow": "x" * 900_000}, "workflow", "no workflow is registered"),
    "endless key": ({"workflow": "chain1", "y" * 900_000: 1}, "y" * 297 + "...", "is not a key here"),
}  # fmt: skip


def rejected(bench: Bench, fields: dict[bytes, bytes], field: str, words: str) -> None:
    entry = bench.add(fields)
    event = bench.first(entry)
    assert (event.type, event.data["workflow"], event.data["field"]) == ("rejected", entry, field)
    assert words in event.data["error"]
    assert 10 <= len(event.data["error"]) <= 1000


@pytest.mark.parametrize("case", DOCUMENTS)
def test_a_document_is_refused_with_field_and_cause(bench: Bench, case: str) -> None:
    document, field, words = DOCUMENTS[case]
    rejected(bench, {b"json": json.dumps(document).encode()}, field, words)
    rejected(bench, {b"msgpack": msgpack.packb(document)}, field, words)


# Entries as they are sent, the field that is named, words of the cause.
ENTRIES: dict[str, tuple[dict[bytes, bytes], str, str]] = {
    "malformed json": ({b"json": b'{"workflow": '}, "", "not json"),
    "json that is no text": ({b"json": b"\xff\xfe\xfd"}, "", "not json"),
    "empty json": ({b"json": b""}, "", "not json"),
    "json that is no mapping": ({b"json": b"[1, 2]"}, "", "must be a mapping"),
    "json nested without end": ({b"json": b"[" * 100_000}, "", "not json"),
    "a number beyond floats": ({b"json": b'{"workflow": "chain1", "slo_s": 1e999}'}, "slo_s", "not a number"),
    "a number of 5000 digits": ({b"json": b'{"workflow": "chain1", "slo_s": %s}' % (b"9" * 5000)}, "", "digits"),
    "a number of 65 bits": ({b"json": b'{"workflow": "x", "inputs": {"a": 36893488147419103232}}'}, "inputs.a", "64"),
    "half a character": ({b"json": b'{"workflow": "x", "inputs": {"a": "\\ud800"}}'}, "inputs.a", "surrogate"),
    "half a character in a key": ({b"json": b'{"workflow": "x", "inputs": {"\\ud800": 1}}'}, "inputs", "surrogate"),
    "malformed msgpack": ({b"msgpack": b"\xc1"}, "", "not msgpack"),
    "truncated msgpack": ({b"msgpack": msgpack.packb({"workflow": "chain1"})[:-2]}, "", "not msgpack"),
    "msgpack with a tail": ({b"msgpack": msgpack.packb({"workflow": "chain1"}) + b"\x00"}, "", "not msgpack"),
    "msgpack nested without end": ({b"msgpack": b"\x91" * 100_000}, "", "not msgpack"),
    "bytes in msgpack": ({b"msgpack": msgpack.packb({"workflow": "x", "inputs": {"a": b"\xff"}})}, "inputs.a", "bytes"),
    "a key of bytes": ({b"msgpack": msgpack.packb({"workflow": "x", "inputs": {b"a": 1}})}, "inputs", "must be text"),
    "a time in msgpack": (
        {b"msgpack": msgpack.packb({"workflow": "x", "inputs": {"a": msgpack.Timestamp(1)}})}, "inputs.a", "Timestamp"
    ),
    "oversized json": ({b"json": json.dumps({"workflow": "x" * (1 << 20)}).encode()}, "", "at most 1048576"),
    "oversized msgpack": ({b"msgpack": msgpack.packb({"workflow": "x" * (1 << 20)})}, "", "at most 1048576"),
    "both fields": ({b"json": b"{}", b"msgpack": b"\x80"}, "", "one document"),
    "garbage alone": ({b"\x00\xff": b"\xde\xad\xbe\xef"}, "", "field named json or msgpack"),
}  # fmt: skip


@pytest.mark.parametrize("case", ENTRIES)
def test_an_entry_that_holds_no_document_is_refused(bench: Bench, case: str) -> None:
    rejected(bench, *ENTRIES[case])


def test_a_thousand_bad_entries_hold_nobody_up(bench: Bench) -> None:
    pipeline = bench.redis.pipeline(transaction=False)
    for number in range(1000):
        pipeline.xadd(bench.prefix + "submissions", {b"json": b"{" * (number % 50)})
    last = pipeline.execute()[-1].decode()
    bench.good()
    assert bench.first(last).type == "rejected"


def test_garbage_beside_a_good_document_is_ignored(bench: Bench) -> None:
    document = {"workflow": "chain1", "inputs": {"text": "fine"}}
    entry = bench.add({b"json": json.dumps(document).encode(), b"\xff\x00": b"\xde\xad", b"traceparent": b"00-1-2-3"})
    assert bench.client.wait(entry, timeout_s=10)["output"] == {"s0": "fine"}


def test_an_id_stands_for_one_document(bench: Bench) -> None:
    first = bench.client.submit("chain1", {"text": "first"}, id="order-17")
    assert bench.client.wait(first, timeout_s=10)["output"] == {"s0": "first"}
    other = bench.client.submit("chain1", {"text": "second"}, id="order-17")
    with pytest.raises(WorkflowFailed, match="rejected: id: 'order-17' is taken by another document"):
        bench.client.wait(other, timeout_s=10)
    again = bench.client.submit("chain1", {"text": "first"}, id="order-17")
    assert bench.client.wait(again, timeout_s=10)["output"] == {"s0": "first"}
    assert [event.type for event in bench.client.events("order-17", timeout_s=10)].count("accepted") == 1


def test_a_refused_id_is_free_for_the_mended_document(bench: Bench) -> None:
    refused = bench.client.submit("chain1", {"txt": "first"}, id="order-18")
    with pytest.raises(WorkflowFailed, match=r"rejected: inputs\.txt"):
        bench.client.wait(refused, timeout_s=10)
    mended = bench.client.submit("chain1", {"text": "first"}, id="order-18")
    assert bench.client.wait(mended, timeout_s=10)["output"] == {"s0": "first"}


INTEGER = {"json_schema": {"type": "integer"}}
ANYTHING = {"json_schema": {}}
LONG = "word " * 40_000

# The workflow's only stage, the order it gives the engine, words of the cause.
FAILURES: dict[str, tuple[Document, str, str]] = {
    "missing key": ({"prompt": "{{ inputs.data.missing }}"}, "", "missing"),
    "division by zero": ({"prompt": "{{ 1 / (inputs.text | length) }}"}, "", "zero"),
    "for_each over text": ({"prompt": "x", "for_each": "inputs.text"}, "hello", "list"),
    "for_each too long": ({"prompt": "x", "for_each": "range(1000) | list + [1, 2]"}, "", "1000"),
    "engine refuses": ({"prompt": "{{ inputs.text }}"}, "refuse", "the GPU fell off the bus"),
    "engine refuses, with retries": ({"prompt": "{{ inputs.text }}", "retries": 1}, "crash", "attempt 2 of 2"),
    "engine crashes": ({"prompt": "{{ inputs.text }}"}, "crash", "ZeroDivisionError: a bug in the engine"),
    "engine too slow": ({"prompt": "{{ inputs.text }}", "timeout_s": 0.2, "max_tokens": 1_000_000}, "linger", "0.2"),
    "output is not JSON": ({"prompt": "{{ inputs.text }}", **INTEGER}, "say five", "not JSON"),
    "output does not fit": ({"prompt": "{{ inputs.text }}", **INTEGER}, 'say "five"', "does not fit json_schema"),
    "output beyond 64 bits": ({"prompt": "{{ inputs.text }}", **INTEGER}, f"say {10**30}", "beyond 64 bits"),
    "output of half a character": ({"prompt": "{{ inputs.text }}", **ANYTHING}, 'say ["\\ud800"]', "surrogate"),
    "output that is NaN": ({"prompt": "{{ inputs.text }}", **ANYTHING}, 'say {"a": NaN}', "a: is nan"),
    "output nested without end": ({"prompt": "{{ inputs.text }}", **ANYTHING}, "say " + "[" * 9000, "not JSON"),
    "output nested too deep": (
        {"prompt": "{{ inputs.text }}", **ANYTHING}, "say " + "[" * 99 + "]" * 99, "deeper than 32"
    ),
    "prompt too long": ({"prompt": "{{ inputs.text }}"}, LONG, "no instance takes more than"),
    "tool that stops": ({"tool": "test.stop"}, "", "StopIteration"),
    "tool that leaves": ({"tool": "test.leave"}, "", "SystemExit: goodbye"),
    "tool with a strange value": ({"tool": "test.strange"}, "", "rows.0: is of type set"),
    "tool with a big value": ({"tool": "test.big"}, "", "at most 8388608"),
}  # fmt: skip


@pytest.mark.parametrize("case", FAILURES)
def test_what_goes_wrong_at_run_time_fails_its_workflow(bench: Bench, case: str) -> None:
    stage, text, words = FAILURES[case]
    events = list(bench.client.events(bench.client.submit(one_stage(**stage), {"text": text}), timeout_s=20))
    failed = events[-1]
    assert (failed.type, failed.data["status"], failed.data["slo_met"]) == ("failed", "failed", False)
    assert failed.data["stage"] == "only"
    assert words in failed.data["error"]
    assert bench.client.result(failed.data["workflow"]) == failed.data


def test_an_output_that_cannot_be_made_fails_the_workflow(bench: Bench) -> None:
    definition = one_stage(prompt="x") | {"output": "only.output.missing"}
    events = list(bench.client.events(bench.client.submit(definition), timeout_s=20))
    assert (events[-1].type, events[-1].data["stage"]) == ("failed", "output")
    assert "missing" in events[-1].data["error"]


def test_a_model_nobody_serves_is_waited_for_until_the_deadline(bench: Bench) -> None:
    """And for a lease at least: an instance that is started again must not cost a late workflow its life."""
    workflow = bench.client.submit(one_stage(prompt="x", model="llama-900b", requires=["moon"]), slo_s=1.5)
    accepted, started, waiting, failed = bench.client.events(workflow, timeout_s=60)
    assert (accepted.type, started.type, waiting.type, failed.type) == (
        "accepted", "stage_started", "waiting", "failed"
    )  # fmt: skip
    assert waiting.data["stage"] == failed.data["stage"] == "only"
    for event in (waiting.data["reason"], failed.data["error"]):
        assert "llama-900b" in event
        assert "moon" in event
    assert "deadline" in failed.data["error"]
    assert failed.data["elapsed_s"] >= 8
