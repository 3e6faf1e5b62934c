"""Real processes, really killed: every workflow still ends, once."""

import os
import signal
import time
from pathlib import Path

import pytest
from deployment import Deployment, chain, check_once
from redis import Redis

from common.store.embedded import EmbeddedServer
from common.store.keys import Keys

SIMULATED = ("--engine", "simulated", "--time-scale", "20", "--responder", "echo:40", "--profile")


def test_a_killed_worker_and_a_killed_coordinator(server: EmbeddedServer, namespace: str, tmp_path: Path) -> None:
    with Deployment(server, namespace, tmp_path) as cell:
        cell.define(chain(6))
        cell.worker("fast", *SIMULATED, "a100")
        cell.worker("doomed", *SIMULATED, "a100")
        workflows = [cell.client.submit(chain(6), {"text": f"question {n}"}, slo_s=60) for n in range(16)]
        cell.until(workflows[0], "stage_completed", stage="s0")
        cell.kill("doomed")  # 16 workflows share two instances: it holds leases, and is not started again
        cell.until(workflows[-1], "stage_completed", stage="s0")
        cell.kill("coordinator")
        cell.coordinator("successor")
        for workflow in workflows:
            check_once(cell.events(workflow), 6)


@pytest.mark.slow
def test_an_engine_that_lives_and_makes_no_progress(server: EmbeddedServer, namespace: str, tmp_path: Path) -> None:
    with Deployment(server, namespace, tmp_path) as cell:
        cell.define(chain(2, retries=0))
        cell.worker("stuck", "--time-scale", "1e-6", "--stall-s", "0.5")  # an iteration takes hours
        workflow = cell.client.submit("chain2", {"text": "a question"}, slo_s=60)
        ends = time.monotonic() + 30
        while "made no progress" not in cell.log("stuck"):
            assert time.monotonic() < ends
            time.sleep(0.05)
        cell.worker("sound", *SIMULATED, "a100")
        check_once(cell.events(workflow), 2)
        assert {name: one["status"] for name, one in cell.instances().items()} == {"stuck": "stalled", "sound": "ready"}
        assert cell.log("stuck").count("made no progress") == 1
        assert cell.log("coordinator").count("instance stuck is stalled") == 1


def test_one_of_two_coordinators_is_killed(server: EmbeddedServer, namespace: str, tmp_path: Path) -> None:
    with Deployment(server, namespace, tmp_path) as cell:
        cell.define(chain(8))
        cell.coordinator("second")
        cell.worker("only", *SIMULATED, "a100")
        workflows = [cell.client.submit(chain(8), {"text": f"{n}"}) for n in range(10)]
        cell.until(workflows[0], "stage_completed", stage="s1")
        cell.kill("second")
        for workflow in workflows:
            check_once(cell.events(workflow), 8)


def test_an_urgent_request_overtakes_twenty_queued_ones(server: EmbeddedServer, namespace: str, tmp_path: Path) -> None:
    with Deployment(server, namespace, tmp_path) as cell:
        cell.define(chain(1))
        cell.worker("only", *SIMULATED, "a100")
        text = (
            "word " * 6000
        )  # 7,500 tokens, 2.4 s of prefill: they queue, since one chunk at a time may be unprefilled
        patient = [cell.client.submit("chain1", {"text": f"{n} {text}"}, slo_s=3600) for n in range(20)]
        cell.until(patient[0], "stage_started")
        urgent = cell.client.submit("chain1", {"text": f"urgent {text}"}, slo_s=3)
        ends = {workflow: cell.events(workflow)[-1] for workflow in [*patient, urgent]}
        order = sorted(ends, key=lambda workflow: [int(part) for part in ends[workflow].id.split("-")])
        assert all(event.type == "completed" for event in ends.values())
        assert order.index(urgent) <= 10  # the last, if it had to wait for its turn; some start before it is there


def test_a_draining_worker_hands_its_queue_over(server: EmbeddedServer, namespace: str, tmp_path: Path) -> None:
    with Deployment(server, namespace, tmp_path) as cell:
        cell.define(chain(2))
        cell.worker("leaving", *SIMULATED, "a100", "--grace-s", "0")
        text = "word " * 6000
        workflows = [cell.client.submit("chain2", {"text": f"{n} {text}"}) for n in range(6)]
        cell.until(workflows[0], "stage_started")
        cell.worker("staying", *SIMULATED, "a100")
        cell.processes.stop_one("leaving")
        for workflow in workflows:
            check_once(cell.events(workflow), 2)


def test_a_second_signal_ends_the_grace_of_a_draining_worker(
    server: EmbeddedServer, namespace: str, tmp_path: Path
) -> None:
    with Deployment(server, namespace, tmp_path) as cell:
        cell.define(chain(1))
        cell.worker("leaving", *SIMULATED[:3], "0.01", *SIMULATED[4:], "a100", "--grace-s", "3600")
        workflow = cell.client.submit("chain1", {"text": "a question that takes minutes"})
        cell.until(workflow, "stage_started")
        while not (cell.instances()["leaving"]["load"] or {}).get("running"):
            time.sleep(0.05)
        os.kill(cell.pids["leaving"], signal.SIGTERM)
        while cell.instances()["leaving"]["status"] != "draining":
            time.sleep(0.05)
        cell.worker("staying", *SIMULATED, "a100")
        assert cell.processes.stop_one("leaving") == 0  # the second
        assert "leaving" not in cell.instances()
        check_once(cell.events(workflow), 1)


def test_redis_is_killed_and_comes_back(namespace: str, tmp_path: Path, program: Path | None) -> None:
    first = EmbeddedServer.start(tmp_path / "redis", program=program, extra_args=("--appendfsync", "always"))
    try:
        with Deployment(first, namespace, tmp_path) as cell:
            cell.define(chain(6))
            cell.worker("fast", *SIMULATED, "a100")
            cell.worker("slow", *SIMULATED, "l40s")
            workflows = [cell.client.submit("chain6", {"text": f"{n}"}) for n in range(8)]
            cell.until(workflows[0], "stage_completed", stage="s0")
            os.kill(first.pid, signal.SIGKILL)
            first.stop()
            second = EmbeddedServer.start(tmp_path / "redis", port=first.port, program=program)
            try:
                for workflow in workflows:
                    check_once(cell.events(workflow), 6)
                cell.processes.check()
            finally:
                cell.processes.stop()
                second.stop()
    finally:
        first.stop()


def test_a_worker_stops_when_told_though_redis_is_away(namespace: str, tmp_path: Path) -> None:
    redis = EmbeddedServer.start(tmp_path / "redis")
    with Deployment(redis, namespace, tmp_path) as cell:
        try:
            cell.define(chain(1))
            cell.worker("busy", "--engine", "simulated", "--profile", "a100", "--grace-s", "0.5")
            cell.client.submit("chain1", {"text": "word " * 24_000})
            while "busy" not in (shown := cell.instances()) or not (shown["busy"]["load"] or {}).get("running"):
                cell.processes.check()
        finally:
            os.kill(redis.pid, signal.SIGKILL)
            redis.stop()
        cell.worker("late", *SIMULATED, "a100")
        assert cell.processes.stop_one("busy", 30) == 0
        assert "what instance busy holds is taken over when its leases end" in cell.log("busy")
        while "register: " not in cell.log("late"):
            time.sleep(0.05)
        assert cell.processes.stop_one("late", 30) == 3
        assert "error: " in cell.log("late").splitlines()[-1].lower()


def test_a_worker_is_killed_with_requests_placed_on_it(server: EmbeddedServer, namespace: str, tmp_path: Path) -> None:
    keys = Keys(namespace)
    with Deployment(server, namespace, tmp_path, HEXGEN_LEASE_S="4") as cell:
        cell.define(chain(2))
        cell.worker("doomed", *SIMULATED, "a100")
        check_once(cell.events(cell.client.submit("chain2", {"text": "first"})), 2)
        os.kill(cell.pids["doomed"], signal.SIGSTOP)  # it takes nothing more, and nobody knows yet
        workflows = [cell.client.submit("chain2", {"text": f"{n}"}) for n in range(4)]
        with Redis.from_url(server.url) as store:
            while not store.zcard(keys.queue("doomed")) and store.hget(keys.instance("doomed"), "status") == b"ready":
                time.sleep(0.01)
        cell.kill("doomed")
        cell.worker("staying", *SIMULATED, "a100")
        for workflow in workflows:
            check_once(cell.events(workflow), 2)
