"""docker/users.acl on a real server: each role does all of its work, and nothing else."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import redis
from click.testing import CliRunner, Result
from deployment import LEASE_S
from plugins import tools
from redis.exceptions import AuthenticationError, NoPermissionError

from common.errors import AttemptFailed, StoreRefused
from common.events import Outcome
from common.lineup import Placement
from common.model import TOOLS, InstanceProfile
from common.settings import load as settings
from common.store import scripts
from common.store.cell import Cell
from common.store.client import connect_sync
from common.store.embedded import EmbeddedServer, EmbeddedServerError
from common.store.offers import Offer
from common.store.queues import Room, Seat
from coordinator.desk import Desk
from coordinator.loops.completions import completions
from coordinator.loops.intake import intake
from hexgen_flow.cli import main
from hexgen_flow.client import Client, Refused
from hexgen_flow.processes import Processes

ROOT = Path(__file__).resolve().parents[2]
ROLES = ("admin", "client", "coordinator", "worker", "tools", "dashboard")
PROFILE = InstanceProfile("test", 1000.0, 0.03, 0.005, 1e-7, 1000)
ROOM = Room(8, 10_000, 10_000)
BOTH = {
    "name": "both",
    "inputs": {"who": {"type": "string"}},
    "stages": {
        "greet": {"prompt": "Greet {{ inputs.who }}"},
        "say": {"needs": ["greet"], "tool": "test.say", "args": {"text": "{{ greet.output }}"}, "retries": 2},
    },
    "output": "say.output",
}
CODE = """
import os, pathlib
def say(args, context):
    tried = pathlib.Path("tried")
    if not tried.exists():
        tried.touch()
        os._exit(3)
    return args["text"]
"""
"""Ends its process once, so that RQ buries a job, and a retry is delayed and promoted."""


@dataclass(frozen=True)
class Guarded:
    """A server with the users of the file, and their passwords."""

    server: EmbeddedServer
    passwords: dict[str, str]

    def url(self, role: str) -> str:
        return f"redis://{role}:{self.passwords[role]}@127.0.0.1:{self.server.port}/0"


def shown_commands() -> str:
    """What docs/security.md says to make the file with."""
    found = re.search(r"<!-- test: users -->\n+```sh\n(.*?)^```", (ROOT / "docs/security.md").read_text(), re.M | re.S)
    assert found
    return found[1]


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory, program: Path | None) -> Iterator[Guarded]:
    folder, state = Path(tmp_path_factory.mktemp("users")), Path(tmp_path_factory.mktemp("guarded"))
    (folder / "docker").mkdir()
    shutil.copy(ROOT / "docker" / "users.acl", folder / "docker")
    subprocess.run(["sh", "-ec", shown_commands()], cwd=folder, check=True)
    told = {role: (folder / f"{role}.env").read_text() for role in ROLES}
    found = {role: re.fullmatch(rf"HEXGEN_REDIS_URL=redis://{role}:(\w+)@\S+\n", text) for role, text in told.items()}
    passwords = {role: match[1] for role, match in found.items() if match}
    file = folder / "users.acl"
    users = file.read_text()
    (state / "password").write_text("until-it-is-up")
    file.write_text("user default on >until-it-is-up ~* &* +@all\n")
    with EmbeddedServer.start(state, program=program, extra_args=("--aclfile", str(file))) as server:
        file.write_text(users)
        with redis.Redis.from_url(server.url) as connection:
            connection.acl_load()
        yield Guarded(server, passwords)


@pytest.fixture
def admin(guarded: Guarded) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(guarded.url("admin")) as connection:
        connection.acl_log_reset()
        yield connection


def refused(admin: redis.Redis) -> list[tuple[str, str, str]]:
    """Who was refused what since the test began; not what the library says of itself."""
    entries: Any = admin.acl_log()
    said = ((entry["username"], entry["context"], entry["object"]) for entry in entries)
    return [entry for entry in said if not entry[2].lower().startswith("client")]


class Run:
    """A command in this process, on one namespace, under one role."""

    def __init__(self, guarded: Guarded, namespace: str) -> None:
        self._guarded, self._namespace = guarded, namespace

    def __call__(self, role: str, *words: str) -> Result:
        where = ["--redis", self._guarded.url(role), "--namespace", self._namespace]
        return CliRunner().invoke(main, [*words, *where, "--json"])


def test_a_file_without_passwords_starts_no_server(tmp_path: Path, program: Path | None) -> None:
    with pytest.raises(EmbeddedServerError, match="ended with code 1"):
        EmbeddedServer.start(tmp_path, program=program, extra_args=("--aclfile", str(ROOT / "docker" / "users.acl")))


@pytest.mark.slow
def test_each_role_does_its_work(
    guarded: Guarded, admin: redis.Redis, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    own = tools(tmp_path / "own", CODE, "say")
    environment = {
        "HEXGEN_NAMESPACE": namespace, "HEXGEN_LEASE_S": LEASE_S, "HEXGEN_LOG_LEVEL": "DEBUG",
        "PYTHONPATH": os.pathsep.join([str(own), *filter(None, [os.environ.get("PYTHONPATH")])]),
    }  # fmt: skip
    roles = {"coordinator": ["coordinator"], "worker": ["worker", "--instance", "a"], "tools": ["tools"]}
    run = Run(guarded, namespace)
    with Processes(tmp_path / "logs", environment) as processes, Client(guarded.url("client"), namespace) as client:
        for role, words in roles.items():
            processes.start(role, words, {"HEXGEN_REDIS_URL": guarded.url(role)})
        workflow = client.submit(BOTH, {"who": "Ada"}, slo_s=60, stream=True)
        assert "Ada" in client.wait(workflow, timeout_s=60)["output"]
        assert client.result(workflow)
        assert {"token", "completed"} <= {event.type for event in client.events(workflow)}
        for words in (["status"], ["status", workflow], ["result", workflow], ["events", workflow], ["instances"],
                      ["workflow", "list"], ["workflow", "show", "text2sql"], ["tune", "--history"]):  # fmt: skip
            assert run("dashboard", *words).exit_code == 0, words
        assert json.loads(run("coordinator", "submit", "text2sql", "--accept-timeout-s", "0").stdout)["workflow"]
        assert json.loads(run("coordinator", "tune", "--reset").stdout)
        assert json.loads(run("dashboard", "limits").stdout)
        processes.check()
        for role in reversed(roles):
            assert processes.stop_one(role) == 0
    assert refused(admin) == []
    checks = json.loads(run("coordinator", "doctor").stdout)["checks"]
    assert [one["found"] for one in checks if one["check"] == "rights" and one["state"] == "fault"] == []
    assert "docs/security.md" not in "".join(log.read_text() for log in (tmp_path / "logs").iterdir())


async def test_what_is_rare_is_allowed_too(guarded: Guarded, admin: redis.Redis, namespace: str) -> None:
    """Cancellation, leases that run out, dead letters, failures, what goes back into the line, tenants, draining."""
    async with (
        Cell.opened(guarded.url("coordinator"), namespace) as cell,
        Cell.opened(guarded.url("worker"), namespace) as worker,
    ):
        desk = Desk(cell, settings(policy="flow"))
        await cell.inbox.prepare()
        seat = Seat("a", await worker.instances.register("a", PROFILE, ["default"], [], []), "a/1")
        one = {"workflow": {"name": "one", "stages": {"s": {"prompt": "say it", "retries": 0}}}, "tenant": "acme"}
        await cell.limits.set("tokens_per_s", 1_000_000, "acme")
        for name in ("lost", "given", "failed", "cancelled", "done"):
            await cell.records.submit(one | {"id": name})
        await intake(desk)
        await completions(desk)
        line = await cell.line.survey(64)
        placements = [Placement(request, "a", seat.epoch or 0, 10) for request in line.line]
        assert await cell.line.place(line.plans, placements) == [True] * 5
        claims = {claim.workflow: claim for claim in await worker.queues.claim(seat, "c1", 60_000, ROOM)}
        await worker.queues.release([(claims["given"].request, claims["given"].token)])
        ended: dict[str, Outcome | AttemptFailed] = {"failed": AttemptFailed("no"), "done": Outcome("it", "a")}
        triples = [(claims[name].request, claims[name].token, came) for name, came in ended.items()]
        assert await worker.queues.finish(triples) == [True, True]
        assert await cell.inbox.cancel("cancelled", "enough")
        await cell.client.zadd(cell.keys.leases, {claims["lost"].request: 1})
        lost = await cell.queues.reap(0, 1) or []
        assert [loss.workflow for loss in lost] == ["lost"]
        await completions(desk)
        assert await cell.records.live(10) == ["given"]
        await cell.line.give_back((await cell.line.survey(64)).line)
        await cell.instances.forget_tenants()
        await worker.instances.evacuate("a", "draining", seat.epoch)
        assert await worker.instances.remove("a", seat.epoch)
    assert refused(admin) == []


async def test_a_tool_worker_hands_in_gives_back_and_offers(
    guarded: Guarded, admin: redis.Redis, namespace: str
) -> None:
    seat = Seat(TOOLS, None, "tools/1")
    stages = {name: {"tool": "test.say", "args": {}, "retries": 0} for name in ("a", "b", "c")}
    async with (
        Cell.opened(guarded.url("coordinator"), namespace) as cell,
        Cell.opened(guarded.url("tools"), namespace) as worker,
    ):
        with connect_sync(guarded.url("tools")) as connection:
            offer = Offer(connection, cell.keys, "t", ["test.say"], 60_000)
            offer.renew()
            await cell.inbox.prepare()
            desk = Desk(cell, settings(policy="hexgen"))
            await cell.records.submit({"workflow": {"name": "w", "stages": stages}, "id": "w"})
            await intake(desk)
            await completions(desk)
            (ticket, *_) = await cell.queues.to_relay(0, 1000)
            claims = await worker.queues.claim(seat, ticket, 60_000, ROOM)
            assert len(claims) == 3
            held = [(claim.request, claim.token) for claim in claims]
            assert await worker.queues.renew(seat, 60_000, held) == ("", [])
            assert await worker.queues.finish([(*held[0], Outcome("it", TOOLS))]) == [True]
            assert await worker.queues.finish([(*held[1], AttemptFailed("no"))]) == [True]
            await worker.queues.release(held[2:])
            offer.withdraw()
    assert refused(admin) == []


P = "{hexgen:NS}:"
KEYLESS = [
    ("KEYS", "*"), ("SCAN", 0), ("RANDOMKEY",), ("DBSIZE",), ("FLUSHALL",), ("FLUSHDB",), ("SWAPDB", 0, 1),
    ("CONFIG", "GET", "*"), ("ACL", "LIST"), ("CLIENT", "LIST"), ("CLIENT", "KILL", "ID", 999), ("SCRIPT", "FLUSH"),
    ("MONITOR",), ("PUBLISH", "rq:pubsub:x", "x"), ("REPLICAOF", "NO", "ONE"), ("SAVE",),
]  # fmt: skip
FOREIGN = [("GET", "other"), ("SET", "other", 1), ("DEL", "other"), ("HSET", "other:{hexgen:NS}:x", "a", 1)]
RQ = [("LPUSH", "rq:queue:hexgen-NS-tools", "x"), ("HSET", "rq:job:x", "data", "x"), ("SMEMBERS", "rq:workers"),
      ("GET", "rq:x")]  # fmt: skip
SUBMIT = [("XADD", P + "submissions", "*", "json", "{}")]
DECIDE = [
    ("HSET", P + "parameters", "a", 1), ("XADD", P + "tuning", "*", "a", 1), ("SET", P + "definition:x", 1),
    ("HSET", P + "workflows", "a", 1), ("DEL", P + "learned"), ("XADD", P + "dead", "*", "a", 1),
    ("ZREM", P + "live", "w"), ("ZADD", P + "coordinators", 1, "x"), ("SET", P + "plans", 1), ("DEL", P + "traces"),
    ("XREADGROUP", "GROUP", "coordinators", "x", "STREAMS", P + "completions", ">"), ("HSET", P + "server", "a", 1),
    ("ZADD", P + "delayed", 1, "w n"), ("HSET", P + "ended", "completed", 0),
    ("HSET", P + "limits", "workflows", 9), ("DEL", P + "running"),
]  # fmt: skip
FORBIDDEN: dict[str, list[tuple[Any, ...]]] = {
    "client": [
        *KEYLESS, *FOREIGN, *RQ, *DECIDE, ("HGETALL", P + "workflow:w"), ("LRANGE", P + "workflow:w:mailbox", 0, -1),
        ("GET", P + "definition:x"), ("SET", P + "workflow:w:result", 1), ("DEL", P + "workflow:w:events"),
        ("XDEL", P + "submissions", "1-1"), ("XRANGE", P + "submissions", "-", "+"),
        ("XADD", P + "completions", "*", "a", 1),
        ("EVAL", "return 1", 0), ("SCRIPT", "LOAD", "return 1"), ("INFO",), ("ZADD", P + "leases", 1, "r"),
        ("HGETALL", P + "request:r"), ("RPUSH", P + "workflow:w:mailbox", "cancel - - x"),
    ],
    "coordinator": [*KEYLESS, *FOREIGN, ("SUBSCRIBE", "rq:pubsub:x"), ("RENAME", P + "a", P + "b")],
    "worker": [
        *KEYLESS, *FOREIGN, *RQ, *SUBMIT, *DECIDE, ("ZADD", P + "offers", 1, "t"), ("GET", P + "workflow:w:result"),
        ("SET", P + "workflow:w:result", 1), ("XREAD", "STREAMS", P + "workflow:w:events", 0), ("INFO",),
        ("HGETALL", P + "workflow:w"), ("ZADD", P + "relayed", 1, "t"), ("EVAL", "return 1", 0),
    ],
    "tools": [
        *KEYLESS, *FOREIGN, *SUBMIT, *DECIDE, ("ZREM", P + "queue:a", "r"),
        ("HSET", P + "instance:a", "status", "lost"), ("ZADD", P + "instances", 1, "a"),
        ("SREM", P + "claimed:a", "r"), ("LRANGE", P + "claim:a/1", 0, -1),
        ("GET", P + "definition:x"), ("SUBSCRIBE", "rq:pubsub:x"), ("XREAD", "STREAMS", P + "workflow:w:events", 0),
    ],
    "dashboard": [
        *KEYLESS, *FOREIGN, *RQ, *SUBMIT, *DECIDE, ("DEL", P + "submissions"), ("SET", P + "workflow:w:result", 1),
        ("HSET", P + "workflow:w", "status", "x"), ("EVAL", "return 1", 0), ("SCRIPT", "LOAD", "return 1"),
        ("EVALSHA", "0" * 40, 1, P), ("ZREM", P + "leases", "r"), ("XACK", P + "completions", "coordinators", "1-1"),
        ("BZPOPMIN", P + "wake:a", 1),
    ],
}  # fmt: skip


@pytest.mark.parametrize("role", FORBIDDEN)
def test_a_role_does_nothing_else(guarded: Guarded, namespace: str, role: str) -> None:
    done = []
    with redis.Redis.from_url(guarded.url(role)) as connection:
        for words in FORBIDDEN[role]:
            command = [str(word).replace("NS", namespace) for word in words]
            try:
                connection.execute_command(*command)
            except NoPermissionError:
                continue
            except redis.RedisError as error:
                done.append((command, str(error)))
                continue
            done.append((command, "was done"))
    assert done == []


def test_the_default_user_is_off(guarded: Guarded) -> None:
    for url in (f"redis://127.0.0.1:{guarded.server.port}/0", guarded.server.url):
        with redis.Redis.from_url(url) as connection, pytest.raises(AuthenticationError):
            connection.ping()


@pytest.mark.parametrize("role", ["worker", "tools"])
async def test_an_operation_of_another_role_is_refused_before_it_writes(
    guarded: Guarded, admin: redis.Redis, namespace: str, role: str
) -> None:
    async with Cell.opened(guarded.url(role), namespace) as cell:
        for act in (lambda: cell.records.register("x", "d", {}, 1000), lambda: cell.queues.promote()):
            with pytest.raises(
                StoreRefused, match=r"^Redis refuses: [^@]*docs/security\.md has the rights of each role"
            ):
                await act()
    assert list(admin.scan_iter(f"*{namespace}*")) == []


ONLY_CHARGE = {"hexists"}
"""What `charge` uses, which is included with `discharge` and called by `commit_step` alone."""
ALLOWED_TO = {
    "worker": ("register", "evacuate", "leave", "publish", "claim", "renew", "complete", "fail", "release", "forfeit"),
    "tools": ("offer", "claim", "renew", "complete", "fail", "release"),
}
OPERATIONS = {path.stem for path in (ROOT / "common" / "store" / "lua").glob("*.lua")}


def commands_of(name: str) -> set[str]:
    """The commands of an operation."""
    return {word.lower() for word in re.findall(r"(?:redis\.p?call|try)\('([A-Z]+)'", scripts.load(name).source)}


@pytest.mark.parametrize("role", ["coordinator", "worker", "tools"])
def test_every_operation_may_be_run_by_those_who_run_it(admin: redis.Redis, role: str) -> None:
    """So that a command that an operation begins to use is not missed by whom it was not tried with."""
    others = {name for names in ALLOWED_TO.values() for name in names}
    may, unused = allowed(admin, role), set() if role == "coordinator" else ONLY_CHARGE
    for name in ALLOWED_TO.get(role, OPERATIONS - others - {"rights"}):  # which runs none
        assert commands_of(name)
        assert commands_of(name) - unused <= may, name


def test_a_worker_has_what_its_operations_use_and_no_more(admin: redis.Redis) -> None:
    used, keys = set(), set()
    for name in ALLOWED_TO["worker"]:
        used |= commands_of(name)
        keys |= set(re.findall(r"\bp \.\. '([a-z]+:?)", scripts.load(name).source))
    itself = {"bzpopmin", "select", "ping", "evalsha", "script|load"}
    assert allowed(admin, "worker") == used - ONLY_CHARGE | itself
    patterns = {"~{hexgen:*}:"} | {
        f"~{{hexgen:*}}:{key}{'*' if key[-1] == ':' else ''}" for key in keys - {"relayed"} | {"schema"}
    }
    assert {word for word in line_of("worker").split() if word[0] == "~"} == patterns


def line_of(role: str) -> str:
    lines = (ROOT / "docker" / "users.acl").read_text().splitlines()
    return next(line for line in lines if line.startswith(f"user {role} "))


def allowed(admin: redis.Redis, role: str) -> set[str]:
    """The commands of a line of the file, those of its categories too."""
    found: set[str] = set()
    for word in line_of(role).split():
        given: Callable[[set[str]], None] = found.update if word[0] == "+" else found.difference_update
        if word[0] in "+-":
            listed: Any = admin.acl_cat(word[2:]) if word[1] == "@" else [word[1:]]
            given({name.decode() if isinstance(name, bytes) else name for name in listed})
    return found


SENTENCE = r"Error: Redis refuses: .* \(docs/security\.md has the rights of each role\)"


@pytest.mark.parametrize(
    ("role", "words"),
    [("worker", ["coordinator"]), ("client", ["worker", "--instance", "a"]), ("client", ["tools"])],
)
def test_a_process_with_the_user_of_another_role_says_so_in_one_sentence(
    guarded: Guarded, namespace: str, role: str, words: list[str]
) -> None:
    environment = os.environ | {"HEXGEN_REDIS_URL": guarded.url(role), "HEXGEN_NAMESPACE": namespace}
    done = subprocess.run(
        [sys.executable, "-m", "hexgen_flow", *words], env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 3
    assert re.fullmatch(SENTENCE, done.stderr.strip().splitlines()[-1])
    assert "Traceback" not in done.stderr
    assert guarded.passwords[role] not in done.stderr + done.stdout


@pytest.mark.parametrize(("role", "words"), [("client", ["status"]), ("dashboard", ["tune", "--reset"])])
def test_a_command_with_the_user_of_another_role_says_so_in_one_sentence(
    guarded: Guarded, namespace: str, role: str, words: list[str]
) -> None:
    done = Run(guarded, namespace)(role, *words)
    assert done.exit_code == 3
    assert re.fullmatch(SENTENCE, done.stderr.strip())


def test_a_client_is_told_what_it_may_not(guarded: Guarded, namespace: str) -> None:
    with Client(guarded.url("dashboard"), namespace) as client, pytest.raises(Refused, match="Redis refuses"):
        client.submit("text2sql", {})
