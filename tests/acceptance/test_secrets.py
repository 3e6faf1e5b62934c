"""Passwords stay where they were given: nothing that any process writes has them, however much it is asked to tell."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from click.testing import CliRunner
from deployment import Deployment

from common.store.embedded import EmbeddedServer
from hexgen_flow.cli import main
from hexgen_flow.client import Client, ClientError

SECRET = "hunter2-of-the-store"
DATABASE_SECRET = "hunter2-of-the-database"
LEVEL = "DEBUG,redis=DEBUG,rq=DEBUG,sqlalchemy=DEBUG,asyncio=DEBUG"
QUERY = {
    "name": "query",
    "stages": {
        "greet": {"prompt": "Ada"},
        "ask": {
            "needs": ["greet"],
            "tool": "sql.execute",
            "args": {"database": "shop", "sql": "SELECT 1"},
            "retries": 0,
        },
    },
}


@pytest.fixture
def url(server: EmbeddedServer, namespace: str) -> Iterator[str]:
    """Of a user of its own, with a password that is found nowhere by chance."""
    user = f"user-{namespace}"
    with redis.Redis.from_url(server.url) as admin:
        admin.acl_setuser(user, enabled=True, passwords=[f"+{SECRET}"], keys=["*"], channels=["*"], commands=["+@all"])
        yield f"redis://{user}:{SECRET}@127.0.0.1:{server.port}/0"
        admin.acl_deluser(user)


def told(url: str, namespace: str, *words: str) -> str:
    """All that a command writes; it runs in this process."""
    done = CliRunner().invoke(main, [*words, "--redis", url, "--namespace", namespace], catch_exceptions=False)
    return done.output


@pytest.mark.slow
def test_no_process_and_no_command_tells_a_password(
    server: EmbeddedServer, url: str, namespace: str, tmp_path: Path
) -> None:
    databases = {"shop": f"postgresql+psycopg://reader:{DATABASE_SECRET}@127.0.0.1:1/shop"}
    environment = {"HEXGEN_REDIS_URL": url, "HEXGEN_DATABASES": json.dumps(databases), "HEXGEN_LOG_LEVEL": LEVEL}
    with Deployment(server, namespace, tmp_path, **environment) as cell:
        cell.coordinator()
        cell.worker("only")
        cell.tools()
        workflow = cell.client.submit(QUERY, slo_s=60)
        (*_, end) = cell.events(workflow)
        assert (end.type, end.data["stage"]) == ("failed", "ask")  # the database cannot be reached, which is told
        commands = [["status"], ["status", workflow], ["result", workflow], ["events", workflow], ["instances"],
                    ["workflow", "list"], ["tune", "--history"]]  # fmt: skip
        written = {" ".join(words): told(url, namespace, *words, "--json") for words in commands}
        with redis.Redis.from_url(server.url) as admin:  # what was a good password is none any more
            admin.acl_setuser(f"user-{namespace}", reset_passwords=True)
            admin.client_kill_filter(user=f"user-{namespace}")
        while "Redis refuses" not in cell.log("coordinator"):
            time.sleep(0.05)
        cell.processes.stop()
    written |= {name: cell.log(name) for name in ("coordinator", "only", "tools")}
    assert "is ready" in written["coordinator"]
    assert [name for name, text in written.items() if SECRET in text or DATABASE_SECRET in text] == []
    assert SECRET not in json.dumps(end.data)
    assert DATABASE_SECRET not in json.dumps(end.data)


@pytest.mark.parametrize("words", [["coordinator"], ["worker", "--instance", "a"], ["tools"]])
def test_a_wrong_password_is_not_repeated(server: EmbeddedServer, namespace: str, words: list[str]) -> None:
    environment = os.environ | {
        "HEXGEN_REDIS_URL": f"redis://user:{SECRET}@127.0.0.1:{server.port}/0", "HEXGEN_LOG_LEVEL": LEVEL,
    }  # fmt: skip
    command = [sys.executable, "-m", "hexgen_flow", *words, "--namespace", namespace]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 3
    assert "Error: Redis refuses: " in done.stderr
    assert SECRET not in done.stderr + done.stdout


@pytest.mark.parametrize(
    "wrong",
    [
        "redis://user:SECRET@127.0.0.1:PORT/0",
        "redis://user:SECRET@127.0.0.1:1/0",
        "redis://user:SECRET@127.0.0.1:PORT/x",
        "redis://user:SECRET@127.0.0.1:PORT/0?no_such_option=1",
        "redis://user:SECRET/0@127.0.0.1:PORT/0",
        "rediss://user:SECRET@127.0.0.1:PORT/0?ssl_ca_certs=/no/such",
        "redis+sentinel://user:SECRET@127.0.0.1:PORT/main/x",
        "redis+sentinel://user:SECRET@127.0.0.1:PORT/main",
        "http://user:SECRET@127.0.0.1:PORT/0",
    ],
)
def test_a_url_that_does_not_do_is_not_repeated(server: EmbeddedServer, namespace: str, wrong: str) -> None:
    written = told(wrong.replace("SECRET", SECRET).replace("PORT", str(server.port)), namespace, "status", "--json")
    assert "Error: " in written
    assert SECRET not in written


@pytest.mark.parametrize("given", ["postgresql://me:SECRET@h/db", "postgresql://me:SECRET@h/db?sslmode=require"])
def test_a_database_without_a_name_is_not_repeated(server: EmbeddedServer, namespace: str, given: str) -> None:
    written = told(server.url, namespace, "tools", "--database", given.replace("SECRET", DATABASE_SECRET))
    assert "Error: --database: must be NAME=URL" in written
    assert DATABASE_SECRET not in written


def test_the_client_does_not_repeat_it(server: EmbeddedServer, namespace: str) -> None:
    with Client(f"redis://user:{SECRET}@127.0.0.1:{server.port}/0", namespace) as client:
        with pytest.raises(ClientError) as caught:
            client.submit("chain")
        assert SECRET not in str(caught.value) + repr(caught.value) + repr(client) + repr(client._redis)
