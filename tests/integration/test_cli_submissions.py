"""`submit` and its kin against a real Redis where no coordinator is: what is sent, and what is said meanwhile."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import redis
from click.testing import CliRunner, Result

from common.store.cell import Cell
from common.store.embedded import EmbeddedServer
from common.store.records import PAGE
from hexgen_flow.cli import main

TYPED: dict[str, Any] = {
    "name": "typed",
    "inputs": {
        "text": {"type": "string", "default": ""},
        "number": {"type": "integer", "default": 0},
        "any": {"type": "any", "default": None},
    },
    "stages": {"only": {"prompt": "{{ inputs.text }}"}},
}


@pytest.fixture
def environment(server: EmbeddedServer, namespace: str) -> dict[str, str]:
    return {"HEXGEN_REDIS_URL": server.url, "HEXGEN_NAMESPACE": namespace}


def run(environment: dict[str, str], *words: str, stdin: bytes | None = None) -> Result:
    return CliRunner().invoke(main, list(words), env=environment, input=stdin, catch_exceptions=False)


def sent(environment: dict[str, str], server: EmbeddedServer) -> list[dict[str, Any]]:
    """The documents in the submission stream."""
    with redis.Redis.from_url(server.url) as connection:
        entries: Any = connection.xrange(f"{{hexgen:{environment['HEXGEN_NAMESPACE']}}}:submissions")
    return [json.loads(fields[b"json"]) for _, fields in entries]


def at_once(environment: dict[str, str], *words: str, stdin: bytes | None = None) -> Result:
    """Submit and do not wait for an answer; it must be sent."""
    done = run(environment, "submit", *words, "--accept-timeout-s", "0", stdin=stdin)
    assert (done.exit_code, done.stderr) == (0, "")
    return done


# -- answers


def test_the_id_is_printed_and_the_entry_beside_it(environment: dict[str, str]) -> None:
    assert at_once(environment, "one", "--id", "order-1").stdout == "order-1\n"
    told = json.loads(at_once(environment, "one", "--id", "order-1", "--json").stdout)
    assert told["workflow"] == "order-1"
    assert told["entry"].count("-") == 1
    entry = at_once(environment, "one").stdout.strip()
    told = json.loads(at_once(environment, "one", "--json").stdout)
    assert told["workflow"] == told["entry"] > entry


def test_without_a_coordinator_submit_says_so_and_leaves_with_3(environment: dict[str, str]) -> None:
    done = run(environment, "submit", "one", "--id", "order-1", "--accept-timeout-s", "0.2", "--json")
    assert done.exit_code == 3
    told = json.loads(done.stdout)
    assert done.stderr == f"Error: submission {told['entry']} is not accepted within 0.2 s: is a coordinator running?\n"
    done = run(environment, "submit", "one", "--id", "order-1", "--wait", "--timeout-s", "0.2")
    assert (done.exit_code, done.stdout) == (3, "")
    assert done.stderr == "order-1\nError: workflow order-1 has not ended within 0.2 s\n"


def command(environment: dict[str, str], *words: str) -> "subprocess.Popen[str]":
    """The command as a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "hexgen_flow", *words],
        env={**os.environ, **environment}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def test_who_waits_is_told_what_for_and_keeps_the_id(environment: dict[str, str]) -> None:
    waiting = command(environment, "submit", "one", "--id", "order-1", "--wait")
    try:
        assert waiting.stderr is not None
        assert waiting.stderr.readline() == "order-1\n"
        assert "is submitted, not accepted yet: is a coordinator running?" in waiting.stderr.readline()
        waiting.send_signal(signal.SIGINT)
        stdout, stderr = waiting.communicate(timeout=30)
    finally:
        waiting.kill()
    assert (waiting.returncode, stdout, stderr.strip()) == (1, "", "Aborted!")


@pytest.mark.parametrize("own_id", [True, False])
def test_what_is_not_accepted_yet_is_said_to_be(environment: dict[str, str], own_id: bool) -> None:
    for _ in range(PAGE + 1 if own_id else 0):  # more than are looked through at once
        at_once(environment, "one", "--id", "another")
    name = at_once(environment, "one", *(["--id", "order-1"] if own_id else [])).stdout.strip()
    words = f"Error: {name} is submitted, not accepted yet: is a coordinator running?\n"
    done = run(environment, "result", name)
    assert (done.exit_code, done.stderr) == (3, words)
    done = run(environment, "status", name)
    assert (done.exit_code, done.stdout) == (0, f"workflow: {name}\nstatus: submitted, not accepted yet\n")
    assert json.loads(run(environment, "status", name, "--json").stdout)["status"] == "submitted"


def test_events_of_what_is_not_known_say_so(environment: dict[str, str]) -> None:
    done = run(environment, "events", "none", "--timeout-s", "4")
    assert done.exit_code == 3
    assert done.stderr.splitlines() == [
        "nothing is known of none here (yet, or any more)",
        "Error: workflow none has not ended within 4 s",
    ]


def on_cell(environment: dict[str, str], work: Callable[[Cell], Awaitable[Any]]) -> Any:
    """What a coordinator would do."""

    async def run_it() -> Any:
        cell = Cell.open(environment["HEXGEN_REDIS_URL"], environment["HEXGEN_NAMESPACE"])
        await cell.inbox.prepare()
        try:
            return await work(cell)
        finally:
            await cell.close()

    return asyncio.run(run_it())


def test_what_was_rejected_is_said_to_be(environment: dict[str, str]) -> None:
    entry = at_once(environment, "one").stdout.strip()
    why = {"workflow": entry, "field": "workflow", "error": "nobody knows it"}
    on_cell(environment, lambda cell: cell.inbox.refuse(entry, "json", why, 60_000))
    for verb in ("result", "cancel"):
        done = run(environment, verb, entry)
        assert (done.exit_code, done.stdout) == (1, "")
        assert done.stderr == f"Error: submission {entry} rejected: workflow: nobody knows it\n"
    assert json.loads(run(environment, "result", entry, "--json").stdout)["status"] == "rejected"
    done = run(environment, "status", entry)
    assert done.stdout == f"workflow: {entry}\nstatus: rejected\nfield: workflow\nerror: nobody knows it\n"
    assert "rejected: 1" in run(environment, "status").stdout


def test_a_cancellation_is_submitted_behind_what_it_cancels(
    environment: dict[str, str], server: EmbeddedServer
) -> None:
    at_once(environment, "one", "--id", "order-1")
    done = run(environment, "cancel", "order-1", "--reason", "sold out", "--accept-timeout-s", "0.2", "--json")
    assert done.exit_code == 3
    assert "is not carried out within 0.2 s: is a coordinator running?" in done.stderr
    assert json.loads(done.stdout)["workflow"] == "order-1"
    assert sent(environment, server)[1:] == [{"cancel": "order-1", "reason": "sold out"}]


@pytest.mark.parametrize("what", ["continue", "cancel"])
def test_what_becomes_of_it_at_its_deadline_is_sent(
    environment: dict[str, str], server: EmbeddedServer, what: str
) -> None:
    at_once(environment, "one", "--slo-s", "5", "--on-deadline", what)
    assert sent(environment, server) == [{"slo_s": 5, "on_deadline": what, "workflow": "one", "inputs": {}}]


def test_an_amendment_is_submitted_too(environment: dict[str, str], server: EmbeddedServer) -> None:
    at_once(environment, "one", "--id", "order-1")
    done = run(environment, "amend", "order-1", "--slo-s", "2.5", "--accept-timeout-s", "0")
    assert (done.exit_code, done.stdout) == (0, "order-1 is to have an SLO of 2.5 s\n")
    assert sent(environment, server)[1:] == [{"amend": "order-1", "slo_s": 2.5}]


# -- inputs


def inputs(environment: dict[str, str], server: EmbeddedServer, *words: str, stdin: bytes | None = None) -> Any:
    at_once(environment, *words, stdin=stdin)
    return sent(environment, server)[-1]["inputs"]


@pytest.mark.parametrize("registered", [True, False])
def test_a_declared_string_keeps_its_text(
    environment: dict[str, str], server: EmbeddedServer, tmp_path: Path, registered: bool
) -> None:
    file = tmp_path / "typed"
    file.write_text(json.dumps(TYPED))
    if registered:
        run(environment, "workflow", "register", str(file))
    words = (
        "typed" if registered else str(file),
        "--input",
        "text=2024",
        "--input",
        "number=2024",
        "--input",
        "any=07",
    )
    assert inputs(environment, server, *words) == {"text": "2024", "number": 2024, "any": "07"}
    assert inputs(environment, server, *words[:1], "--input", "text={}") == {"text": "{}"}


def test_without_a_declaration_a_value_is_json_if_it_parses(
    environment: dict[str, str], server: EmbeddedServer
) -> None:
    words = [f"--input={pair}" for pair in ("a=1.5", "b=[1, null]", "c=no JSON", "d=", "e=x=y", "f=NaN", 'g="2024"')]
    assert inputs(environment, server, "unheard-of", *words) == {
        "a": 1.5, "b": [1, None], "c": "no JSON", "d": "", "e": "x=y", "f": "NaN", "g": "2024"
    }  # fmt: skip


def test_inputs_from_a_file_and_from_standard_input(
    environment: dict[str, str], server: EmbeddedServer, tmp_path: Path
) -> None:
    file = tmp_path / "inputs.yaml"
    file.write_text("text: ä\nlist: [1, {deep: true}]\n", "utf-8")
    given = {"text": "ä", "list": [1, {"deep": True}]}
    assert inputs(environment, server, "one", "--inputs", str(file)) == given
    assert inputs(environment, server, "one", "--inputs", str(file), "--input", "n=3") == given | {"n": 3}
    assert inputs(environment, server, "one", "--inputs", "-", stdin=json.dumps(given).encode()) == given


@pytest.mark.parametrize(
    ("words", "stdin", "said"),
    [
        (["--input", "a=1", "--input", "a=2"], b"", "--input: 'a' is given twice"),
        (["--input", "a=1", "--inputs", "-"], b"a: 2", "--input: 'a' is given twice, also by --inputs"),
        (["--inputs", "-"], b'{"a": 1, "a": 2}', "--inputs: -: document: the key 'a' is given twice in one mapping"),
        (["--inputs", "-"], b"\xff", "--inputs: - is not UTF-8 text"),
        (["--inputs", "-"], b"[1]", "--inputs: -: document: must be a mapping of inputs"),
        (["--inputs", "-"], b"a: {", "--inputs: -: document: is not valid YAML"),
        (["--inputs", "missing.json"], b"", "--inputs: missing.json cannot be read: No such file"),
        (["--input", f"a={1 << 64}"], b"", "inputs.a: is an integer beyond 64 bits"),
        (["--input", "a=1e999"], b"", "inputs.a: is inf, not a number"),
        (["--input", "a=\udcff"], b"", "--input: 'a' is not UTF-8 text"),
        (["--tenant", "\udcff"], b"", "tenant: holds half a surrogate pair"),
        (["--slo-s", "nan"], b"", "--slo-s"),
        (["--slo-s", "-1"], b"", "--slo-s"),
        (["--slo-s", "0"], b"", "--slo-s"),
        (["--timeout-s", "inf", "--wait"], b"", "--timeout-s"),
    ],
)
def test_what_cannot_be_sent_is_refused_and_not_sent(
    environment: dict[str, str], server: EmbeddedServer, words: list[str], stdin: bytes, said: str
) -> None:
    done = run(environment, "submit", "one", *words, stdin=stdin)
    assert done.exit_code == 2
    assert said in done.stderr
    assert sent(environment, server) == []


@pytest.mark.parametrize("name", ["answer", "answer.txt", "answer.yaml", "answer.json"])
def test_any_file_there_is_a_definition(
    environment: dict[str, str], server: EmbeddedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    (tmp_path / name).write_text("name: mine\nstages: {a: {prompt: x}}\n")
    monkeypatch.chdir(tmp_path)
    at_once(environment, name)
    at_once(environment, "other")
    assert [document["workflow"] for document in sent(environment, server)] == [
        {"name": "mine", "stages": {"a": {"prompt": "x"}}},
        "other",
    ]
    for missing in ("./other", "other.yml"):
        assert run(environment, "submit", missing).exit_code == 2
