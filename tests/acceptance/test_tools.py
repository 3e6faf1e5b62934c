"""Tool stages over RQ, with real tool workers: nothing lost, nothing done twice, nothing foreign run."""

import asyncio
import os
import pickle
import signal
import sqlite3
import zlib
from datetime import UTC, datetime
from pathlib import Path

import plugins
import pytest
import redis
from deployment import Deployment

from common import settings
from common.store.cell import Cell
from common.store.client import connect_sync
from common.store.embedded import EmbeddedServer
from common.store.keys import Keys
from common.store.offers import Offer
from coordinator.desk import Desk
from coordinator.language.grammar import LONGEST_ATTEMPT_S
from coordinator.loops.completions import completions
from coordinator.loops.intake import intake
from coordinator.loops.relay import Relay
from hexgen_flow.client import WorkflowFailed

QUERY = {
    "name": "query",
    "inputs": {"sql": {"type": "string"}},
    "stages": {
        "run": {
            "tool": "sql.execute",
            "args": {"database": "shop", "sql": "{{ inputs.sql }}"},
            "timeout_s": 20,
            "retries": 0,
        }
    },
    "output": "run.output",
}


@pytest.fixture
def shop(tmp_path: Path) -> str:
    path = tmp_path / "shop.sqlite"
    with sqlite3.connect(path) as connection:
        connection.executescript(
            "CREATE TABLE item (name TEXT, price INT); INSERT INTO item VALUES ('pen', 2), ('ink', 7)"
        )
    connection.close()
    return f"shop=sqlite:///{path}"


def test_a_tool_runs_and_its_trouble_is_told(server: EmbeddedServer, namespace: str, shop: str, tmp_path: Path) -> None:
    hanging = {
        **QUERY,
        "name": "hanging",
        "stages": {"run": {**QUERY["stages"]["run"], "tool": "test.hang", "timeout_s": 1}},
    }
    raising = {**QUERY, "name": "raising", "stages": {"run": {"tool": "test.fail", "args": {}, "retries": 1}}}
    home = plugins.tools(tmp_path / "own", ODD, "hang", "fail")
    with Deployment(server, namespace, tmp_path, PYTHONPATH=str(home)) as cell:
        cell.define(QUERY, hanging, raising)
        cell.tools("tools", "--database", shop)
        good = {"sql": "SELECT sum(price) AS total FROM item"}
        found = cell.client.wait(cell.client.submit("query", good), timeout_s=30)
        assert found["output"]["rows"] == [[9]]
        told = cell.client.wait(cell.client.submit("query", {"sql": "DROP TABLE item"}), timeout_s=30)
        assert "SELECT" in told["output"]["error"]
        for name, reason in (("hanging", "timeout_s = 1"), ("raising", "attempt 2 of 2")):
            with pytest.raises(WorkflowFailed, match=reason):
                cell.client.wait(cell.client.submit(name, good), timeout_s=30)
        # After all that the tool worker still works.
        assert cell.client.wait(cell.client.submit("query", good), timeout_s=30)["output"]["rows"] == [[9]]


async def test_rq_would_let_the_longest_attempt_there_may_be_end_by_itself(server: EmbeddedServer, namespace: str,
                                                                           tmp_path: Path) -> None:  # fmt: skip
    longest = {"name": "longest", "stages": {"run": {"tool": "test.left", "timeout_s": LONGEST_ATTEMPT_S}}}
    beyond = {"name": "beyond", "stages": {"run": {"tool": "test.left", "timeout_s": LONGEST_ATTEMPT_S + 1}}}
    home = plugins.tools(tmp_path / "own", LEFT, "left")
    with Deployment(server, namespace, tmp_path, PYTHONPATH=str(home)) as cell:
        cell.define()
        cell.tools()
        left_s = cell.client.wait(cell.client.submit(longest), timeout_s=30)["output"]["run"]
        with pytest.raises(WorkflowFailed, match="rejected: workflow"):
            cell.client.wait(cell.client.submit(beyond), timeout_s=30)
    assert left_s > LONGEST_ATTEMPT_S


LEFT = """
import signal
def left(args, context): return signal.getitimer(signal.ITIMER_REAL)[0]
"""
"""Says in how many seconds the alarm goes off that ends the process the tool runs in, be it RQ's or our own."""

ODD = """
import threading
def hang(args, context): threading.Event().wait()
def fail(args, context): raise KeyError('something else')
"""


def test_a_killed_tool_worker_loses_nothing(server: EmbeddedServer, namespace: str, shop: str, tmp_path: Path) -> None:
    slow = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3000000) SELECT count(*) FROM n"
    with Deployment(server, namespace, tmp_path) as cell:
        cell.define(QUERY)
        cell.tools("doomed", "--database", shop)
        workflows = [cell.client.submit("query", {"sql": slow}) for _ in range(4)]
        cell.until(workflows[0], "stage_completed", stage="run")
        cell.kill("doomed")
        cell.tools("heir", "--database", shop)
        for workflow in workflows:
            kinds = [event.type for event in cell.events(workflow)]
            assert kinds.count("completed") == 1
            assert kinds.count("stage_completed") == 1


async def _queued(cell: Cell, inputs: dict[str, str]) -> tuple[Desk, str]:
    """A coordinator's desk, and the workflow whose tool request it has queued for a tool worker that is to start."""
    desk = Desk(cell, settings.load(redis_url=cell.url, namespace=cell.keys.namespace))
    Offer(connect_sync(cell.url), cell.keys, "soon", ["sql.execute"], 60_000).renew()
    await cell.inbox.prepare()
    workflow = await cell.records.submit({"workflow": QUERY, "inputs": inputs})
    await intake(desk)
    await completions(desk)
    return desk, workflow


def test_a_tool_worker_waits_for_redis_and_outlives_it(namespace: str, shop: str, tmp_path: Path) -> None:
    def start(port: int = 0) -> EmbeddedServer:
        return EmbeddedServer.start(tmp_path / "redis", port=port, extra_args=("--appendfsync", "always"))

    def kill(server: EmbeddedServer) -> None:
        os.kill(server.pid, signal.SIGKILL)
        server.stop()

    redis_server = start()
    try:
        with Deployment(redis_server, namespace, tmp_path) as cell:
            kill(redis_server)
            cell.tools("tools", "--database", shop)
            while "trying again" not in cell.log("tools"):
                cell.processes.check()
            redis_server = start(redis_server.port)
            cell.define(QUERY)
            for number in range(3):
                query = {"sql": f"SELECT {number} AS number"}
                found = cell.client.wait(cell.client.submit("query", query), timeout_s=30)
                assert found["output"]["rows"] == [[number]]
                if number < 2:
                    kill(redis_server)
                    redis_server = start(redis_server.port)
            cell.processes.check()
            assert cell.processes.stop_one("tools") == 0
    finally:
        redis_server.stop()


async def test_a_kill_between_commit_and_relay_and_a_relay_twice(server: EmbeddedServer, namespace: str, shop: str,
                                                                  tmp_path: Path) -> None:  # fmt: skip
    cell = Cell.open(server.url, namespace)
    desk, workflow = await _queued(cell, {"sql": "SELECT 1 AS one"})
    # Here a coordinator dies: its ticket counts as written, and RQ knows nothing. Another one relays it, even twice.
    assert len(await cell.queues.to_relay(0, 60_000)) == 1
    await Relay(desk, lost_ms=0).relay()
    await Relay(desk).relay()
    assert redis.Redis.from_url(server.url).llen(f"rq:queue:{Keys(namespace).tickets}") == 1
    with Deployment(server, namespace, tmp_path) as deployment:
        deployment.tools("tools", "--database", shop)
        deployment.coordinator()
        kinds = [event.type for event in deployment.events(workflow)]
    assert kinds == ["accepted", "stage_started", "stage_completed", "completed"]
    await cell.close()


async def test_a_ticket_whose_process_is_killed_before_it_claims_is_replaced(
    server: EmbeddedServer, namespace: str, shop: str, tmp_path: Path
) -> None:
    cell = Cell.open(server.url, namespace)
    desk, workflow = await _queued(cell, {"sql": "SELECT 1 AS one"})
    home, mark = plugins.tools(tmp_path / "own", DEADLY, "fatal"), tmp_path / "mark"
    with Deployment(server, namespace, tmp_path, PYTHONPATH=str(home), MARK=str(mark)) as deployment:
        deployment.tools("tools", "--database", shop)
        relay = Relay(desk, lost_ms=500)
        async with asyncio.timeout(40):
            while not await cell.instances.served():
                await relay.relay()
        deployment.processes.check()
    assert mark.exists()
    await completions(desk)
    assert (await cell.records.result(workflow))["output"]["rows"] == [[1]]
    await cell.close()


DEADLY = """
import os, pathlib, signal
MARK = pathlib.Path(os.environ["MARK"])
def fatal(args, context): pass
def die_once():
    if not MARK.exists():
        MARK.touch()
        os.kill(os.getpid(), signal.SIGKILL)
os.register_at_fork(after_in_child=die_once)
"""
"""Preloaded by the tool worker: the first process that it forks for a ticket is killed before it does anything."""


def test_two_namespaces_on_one_server_stay_apart(
    server: EmbeddedServer, namespace: str, shop: str, tmp_path: Path
) -> None:
    with (
        Deployment(server, namespace, tmp_path / "a") as one,
        Deployment(server, f"{namespace}-b", tmp_path / "b") as two,
    ):
        one.define(QUERY)
        two.define(QUERY)
        one.tools("tools", "--database", shop)
        lonely = two.client.submit("query", {"sql": "SELECT 1 AS one"})
        assert one.client.wait(one.client.submit("query", {"sql": "SELECT 2 AS two"}), timeout_s=30)["output"][
            "rows"
        ] == [[2]]
        assert two.client.result(lonely) is None
        two.tools("tools", "--database", shop)
        assert two.client.wait(lonely, timeout_s=30)["output"]["rows"] == [[1]]


@pytest.mark.parametrize("forgery", ["pickle", "function", "callback"])
def test_a_forged_job_is_refused(
    server: EmbeddedServer, namespace: str, shop: str, tmp_path: Path, forgery: str
) -> None:
    marker = tmp_path / "marker"
    connection = redis.Redis.from_url(server.url)
    name = Keys(namespace).tickets
    command = f"touch {marker}"
    data = {
        "pickle": pickle.dumps(("os.system", None, (command,), {})),
        "function": f'["os.system", null, ["{command}"], {{}}]'.encode(),
        "callback": b'["workers.tools.rq_worker.run_ticket", null, ["x"], {}]',
    }[forgery]
    job = {
        "data": zlib.compress(data), "created_at": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"), "origin": name,
        "status": "queued", "timeout": "60",
    }  # fmt: skip
    if forgery == "callback":
        job |= {"success_callback_name": "antigravity.webbrowser", "failure_callback_name": "os.abort"}
    connection.hset("rq:job:forged", mapping=job)
    connection.sadd("rq:queues", f"rq:queue:{name}")
    connection.rpush(f"rq:queue:{name}", "forged")
    with Deployment(server, namespace, tmp_path) as cell:
        cell.define(QUERY)
        cell.tools("tools", "--database", shop)
        after = cell.client.submit("query", {"sql": "SELECT 3 AS three"})
        assert cell.client.wait(after, timeout_s=30)["output"]["rows"] == [[3]]
        while connection.llen(f"rq:queue:{name}"):  # its own ticket may come after: the forged one let it start
            connection.ping()
        log = (tmp_path / "logs" / "tools.log").read_text()
    assert not marker.exists()
    assert "antigravity" not in log
