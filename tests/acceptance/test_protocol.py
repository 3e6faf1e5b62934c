"""docs/protocol.md and docs/schemas, kept true: their programs, tables and schemas against real processes."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgpack
import plugins
import pytest
import redis
from deployment import Deployment, chain
from jsonschema import Draft202012Validator
from referencing import Registry, Resource

from common.clock import monotonic_s
from common.store.embedded import EmbeddedServer
from common.store.keys import Keys
from hexgen_flow.client import ENDS, Event

ROOT = Path(__file__).resolve().parents[2]
PROTOCOL = (ROOT / "docs" / "protocol.md").read_text("utf-8")
NAMESPACE = "default"
"""What the programs in the documents say."""
PREFIX = f"{{hexgen:{NAMESPACE}}}:"
WORDY = {
    "name": "wordy",
    "inputs": {"who": {"type": "string"}},
    "stages": {
        "greet": {"prompt": "Greet {{ inputs.who }}"},
        "never": {"when": "false", "prompt": "x"},
        "copies": {"for_each": "[1, 2]", "needs": ["greet"], "prompt": "{{ greet.output }} {{ item }}"},
    },
    "output": "copies.output",
}


@pytest.fixture(scope="module")
def deployed(server: EmbeddedServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    folder = tmp_path_factory.mktemp("protocol")
    own = plugins.install(folder / "own")
    with Deployment(server, NAMESPACE, folder, PYTHONPATH=str(own), HEXGEN_LEASE_S="30") as deployment:
        deployment.define(WORDY)
        deployment.worker("only", "--engine", "simulated", "--time-scale", "1000", "--responder", "obedient")
        deployment.client.wait(deployment.client.submit("wordy", {"who": "you"}), timeout_s=30)  # all are up
        yield deployment
        deployment.processes.check()


@pytest.fixture(scope="module")
def connection(server: EmbeddedServer) -> Iterator[Any]:
    with redis.Redis.from_url(server.url) as connected:
        yield connected


def needed(program: str) -> str:
    """Where a program is. Missing, the test is skipped, but not in CI."""
    found = shutil.which(program)
    if found is None:
        missing(f"{program} is not on PATH")
    return str(found)


def missing(reason: str) -> None:
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


def marked(file: str, marker: str) -> str | None:
    """The fenced block after `<!-- test: marker -->`, if the file has one."""
    path = ROOT / file
    text = path.read_text("utf-8") if path.exists() else ""
    found = re.search(rf"^<!-- test: {marker} -->\n+```\w+\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return found[1] if found else None


def test_the_protocol_shows_both_programs() -> None:
    assert marked("docs/protocol.md", "redis-cli")
    assert marked("docs/protocol.md", "node")


@pytest.mark.parametrize("file", ["docs/protocol.md", "README.md"])
def test_the_redis_cli_session(deployed: Deployment, server: EmbeddedServer, tmp_path: Path, file: str) -> None:
    block = marked(file, "redis-cli")
    if block is None:
        pytest.skip(f"{file} shows no session")
    program = needed("redis-cli")
    # `redis-cli` alone speaks to this machine's Redis; here that is the test's server.
    shim = tmp_path / "bin" / "redis-cli"
    shim.parent.mkdir()
    shim.write_text(f'#!/bin/sh\nexec {program} --no-auth-warning -u "$HEXGEN_REDIS_URL" "$@"\n')
    shim.chmod(0o755)
    environment = {**os.environ, "HEXGEN_REDIS_URL": server.url, "PATH": f"{shim.parent}:{os.environ['PATH']}"}

    def run(script: str, **more: str) -> str:
        done = subprocess.run(["sh", "-euc", script], env=environment | more, capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    submit, rest = block[: block.index("\nredis-cli XREAD")], block[block.index("\nredis-cli XREAD") :]
    workflow = run(submit + '\necho "$id"').strip()
    assert re.fullmatch(r"\d+-\d+", workflow)
    expected = deployed.client.wait(workflow, timeout_s=20)  # as long as a person takes to type the next line
    told = run(rest, id=workflow).splitlines()
    for kind in ("accepted", "stage_started", "stage_completed", "completed"):
        assert kind in told
    assert json.loads(told[-1]) == expected


def test_the_node_program(deployed: Deployment, server: EmbeddedServer, tmp_path: Path) -> None:
    node, npm = needed("node"), needed("npm")
    install = re.search(r"`npm (install redis)`", PROTOCOL)
    assert install
    quiet = ("--no-audit", "--no-fund", "--no-update-notifier", "--fetch-retries=0")
    done = subprocess.run([npm, *install[1].split(), *quiet], cwd=tmp_path, capture_output=True, text=True)
    if done.returncode:
        missing(f"npm could not install redis: {done.stderr[-300:]}")
    (tmp_path / "program.mjs").write_text(marked("docs/protocol.md", "node") or "")
    environment = {**os.environ, "HEXGEN_REDIS_URL": server.url}
    done = subprocess.run(
        [node, "program.mjs"], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=30
    )
    assert (done.returncode, done.stderr) == (0, "")
    *events, result = done.stdout.splitlines()
    kinds = [line.split(" ", 1)[0] for line in events]
    assert list(dict.fromkeys(kinds)) == ["accepted", "stage_started", "token", "stage_completed", "completed"]
    assert json.loads(result) == json.loads(events[-1].split(" ", 1)[1])
    assert json.loads(result)["output"] == {"greet": "Greet Ada"}


# -- events and results


def send(connection: Any, encoding: str, document: dict[str, Any]) -> str:
    data = json.dumps(document).encode() if encoding == "json" else msgpack.packb(document)
    entry: bytes = connection.xadd(PREFIX + "submissions", {encoding: data})
    return entry.decode()


def decoded(data: bytes, encoding: str) -> Any:
    return json.loads(data) if encoding == "json" else msgpack.unpackb(data)


def followed(connection: Any, workflow: str, encoding: str, until: tuple[str, ...] = ENDS) -> list[Event]:
    """The events as they are in the stream, each in the encoding asked for, until one of these types is there."""
    found: list[Event] = []
    give_up_at = monotonic_s() + 20
    while not any(event.type in until for event in found):
        assert monotonic_s() < give_up_at
        after = found[-1].id if found else "0"
        for _, entries in connection.xread({f"{PREFIX}workflow:{workflow}:events": after}, block=1000) or []:
            for entry, fields in entries:
                assert set(fields) == {b"type", encoding.encode()}
                found.append(
                    Event(entry.decode(), fields[b"type"].decode(), decoded(fields[encoding.encode()], encoding))
                )
    return found


def schemas() -> dict[str, Any]:
    return {path.name: json.loads(path.read_text("utf-8")) for path in (ROOT / "docs" / "schemas").iterdir()}


def validator(name: str) -> Draft202012Validator:
    found = schemas()
    registry: Registry[Any] = Registry().with_resources(
        [(file, Resource.from_contents(schema)) for file, schema in found.items()]
    )
    Draft202012Validator.check_schema(found[name])
    return Draft202012Validator(found[name], registry=registry)


def declared(kind: str) -> set[str]:
    """The keys that the schemas know in the data of an event of this type."""
    found = schemas()
    own = found["event.json"]["$defs"].get(kind) or found["result.json"]["$defs"][kind]
    shared = found["result.json"]["$defs"]["ended"]["properties"] if kind in found["result.json"]["$defs"] else {}
    return set(own["properties"]) | set(shared)


@pytest.mark.parametrize("encoding", ["json", "msgpack"])
def test_every_event_and_result_fits_its_schema(deployed: Deployment, connection: Any, encoding: str) -> None:
    """All types there are, as real runs tell them."""
    happy = send(connection, encoding, {"workflow": "wordy", "inputs": {"who": "Ada"}, "stream": True, "slo_s": 20})
    refused = send(connection, encoding, {"workflow": "wordy"})
    order = {"prompt": "{{ inputs.order }}", "retries": 0, "max_tokens": 1_000_000}
    ordered = {"name": "ordered", "inputs": {"order": {"type": "string"}}, "stages": {"only": order}}
    broken = send(connection, encoding, {"workflow": ordered, "inputs": {"order": "refuse"}})
    connection.hset(PREFIX + "limits", "workflows:stopped", 0)
    full = send(connection, encoding, {"workflow": "wordy", "inputs": {"who": "Ada"}, "tenant": "stopped"})
    failing = {"prompt": "{{ 1 / 0 }}", "optional": True}
    lonely = {"name": "lonely", "stages": {"bad": failing, "only": {"prompt": "x", "model": "nobody"}}}
    waiting = send(connection, encoding, {"workflow": lonely, "slo_s": 60, "tenant": "acme"})
    followed(connection, waiting, encoding, ("waiting",))
    send(connection, encoding, {"amend": waiting, "slo_s": 90})
    followed(connection, waiting, encoding, ("amended",))
    cancel = send(connection, encoding, {"cancel": waiting, "reason": "sold out"})
    ends = dict.fromkeys((happy, refused, full, broken, waiting), "")
    seen: dict[str, set[str]] = {}
    for workflow in ends:
        events = followed(connection, workflow, encoding)
        ends[workflow] = events[-1].type
        for event in events:
            validator("event.json").validate({"type": event.type, "data": event.data})
            assert set(event.data) <= declared(event.type)
            seen.setdefault(event.type, set()).update(event.data)
        result = connection.get(f"{PREFIX}workflow:{workflow}:result")
        if events[-1].type == "rejected":
            assert result is None
        else:
            validator("result.json").validate(decoded(result, encoding))
            assert decoded(result, encoding) == events[-1].data
    assert list(ends.values()) == ["completed", "rejected", "rejected", "failed", "cancelled"]
    assert not connection.exists(f"{PREFIX}workflow:{cancel}:events")
    assert seen == {kind: declared(kind) for kind in seen}
    assert seen == tabled()


def tabled() -> dict[str, set[str]]:
    """Each event's fields, as the table in docs/protocol.md says."""
    rows = section("## Events").splitlines()
    found = (re.match(r"\| `(\w+)` \| ([^|]*) \|", row) for row in rows)
    return {row[1]: set(re.findall(r"`(\w+)`", row[2])) for row in found if row}


def section(heading: str) -> str:
    begin = PROTOCOL.index(heading)
    end = PROTOCOL.find("\n## ", begin)
    return PROTOCOL[begin : end if end > 0 else None]


def test_a_schema_is_not_fond_of_everything() -> None:
    fits = validator("event.json").is_valid
    assert not fits({"type": "accepted", "data": {"workflow": "1-0"}})
    assert not fits({"type": "unheard", "data": {}})
    assert not fits({"type": "completed", "data": {"workflow": "1-0", "status": "failed", "output": None,
                                                   "elapsed_s": 1.0, "slo_s": 1.0, "slo_met": True}})  # fmt: skip
    assert not validator("result.json").is_valid({"workflow": "1-0", "status": "completed"})


def test_the_examples_in_the_text_fit_the_schema() -> None:
    examples = [*re.findall(r"^```json\n(.*?)^```", PROTOCOL, re.MULTILINE | re.DOTALL)]
    examples += re.findall(r"`(\{\"(?:cancel|amend)\".*?\})`", PROTOCOL)
    assert len(examples) >= 3
    for example in examples:
        validator("submission.json").validate(json.loads(example))


def test_the_table_of_the_document_names_its_keys() -> None:
    rows = (re.match(r"\| ((?:`\w+`(?:, )?)+) \|", row) for row in section("## Submission").splitlines())
    names = {name for row in rows if row for name in re.findall(r"`(\w+)`", row[1])}
    assert names == set(schemas()["submission.json"]["properties"])


# -- idempotency, retention, keys


def test_an_id_lives_on_another_stream_than_the_answer(deployed: Deployment, connection: Any) -> None:
    document = {"workflow": "wordy", "inputs": {"who": "Ada"}, "id": "order-17"}
    entries = [send(connection, "json", document), send(connection, "msgpack", dict(reversed(document.items())))]
    followed(connection, "order-17", "json")
    for entry, encoding in zip(entries, ("json", "msgpack"), strict=True):
        (answer,) = followed(connection, entry, encoding, ("accepted", "rejected"))
        assert (answer.type, answer.data["workflow"]) == ("accepted", "order-17")
    other = send(connection, "json", document | {"slo_s": 5})
    (answer,) = followed(connection, other, "json")
    assert (answer.type, answer.data["workflow"], answer.data["field"]) == ("rejected", other, "id")
    events = followed(connection, "order-17", "json")
    assert [event.type for event in events].count("accepted") == 1
    for workflow, hours in (("order-17", 1), (entries[0], 24), (other, 24)):
        left_ms = connection.pttl(f"{PREFIX}workflow:{workflow}:events")
        assert 0 <= hours * 3_600_000 - left_ms < 60_000


def test_a_cancelled_workflow_aborts_what_runs(deployed: Deployment, connection: Any) -> None:
    endless = {"name": "endless", "stages": {"only": {"prompt": "linger", "max_tokens": 1_000_000}}}
    workflow = send(connection, "json", {"workflow": endless})
    followed(connection, workflow, "json", ("stage_started",))
    send(connection, "json", {"cancel": workflow})
    (*_, end) = followed(connection, workflow, "json")
    assert (end.type, end.data["error"]) == ("cancelled", "cancelled by request")
    again = send(connection, "json", {"cancel": workflow})
    assert [event.type for event in followed(connection, again, "json")] == ["rejected"]
    left_ms = connection.pttl(f"{PREFIX}workflow:{workflow}:result")
    assert 0 <= 24 * 3_600_000 - left_ms < 60_000


def test_a_purged_id_is_free_again(server: EmbeddedServer, namespace: str, connection: Any, tmp_path: Path) -> None:
    with Deployment(server, namespace, tmp_path, HEXGEN_KEEP_DONE_S="0.5") as cell:
        cell.define(chain(1))
        cell.worker("only", "--engine", "noop")
        submitted = [cell.client.submit("chain1", {"text": "x"}, id="again")]
        first = cell.events("again")
        submitted.append(cell.client.submit("chain1", {"text": "x"}, id="again"))
        assert cell.events("again") == first
        give_up_at = monotonic_s() + 10
        while connection.exists(Keys(namespace).workflow("again")):
            assert monotonic_s() < give_up_at
        cell.client.submit("chain1", {"text": "another document"}, id="again")
        second = cell.events("again")
        assert (second[0].type, second[-1].type) == (first[0].type, first[-1].type) == ("accepted", "completed")
        assert {event.id for event in second}.isdisjoint(event.id for event in first)


def test_the_table_of_keys_is_whole(deployed: Deployment, connection: Any) -> None:
    """Each key there is has a row of its type; each row is a key that `common.store.keys` or an operation makes."""
    rows = re.findall(r"^\| `([\w:<>]+)` \| ([\w ]+) \|", section("## Keys"), re.MULTILINE)
    patterns = {re.sub(r"<\w+>", "[^:]+", name): kind.replace("sorted set", "zset") for name, kind in rows}
    retried = {"name": "retried", "stages": {"only": {"prompt": "crash"}, "tool": {"tool": "no.such"}}}
    workflow = send(connection, "json", {"workflow": retried})
    followed(connection, workflow, "json", ("stage_started",))
    for key in connection.scan_iter(match=PREFIX.replace("[", r"\[") + "*"):
        name = key.decode().removeprefix(PREFIX)
        kinds = {kind for pattern, kind in patterns.items() if re.fullmatch(pattern, name)}
        assert connection.type(key).decode() in {*kinds, "none"}, f"{name} is not in the table of keys"
    source = "\n".join(path.read_text("utf-8") for path in (ROOT / "common" / "store" / "lua").rglob("*.lua"))
    made = {
        value.removeprefix(PREFIX)
        for name, value in vars(Keys(NAMESPACE)).items()
        if name not in ("prefix", "namespace")
    }
    for name, _ in rows:
        head = name.partition("<")[0]
        assert name in made or f"'{head}" in source, f"nothing makes the key {name}"
    assert made <= {name for name, _ in rows}
    followed(connection, workflow, "json", ("failed",))
