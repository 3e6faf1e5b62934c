"""Redis is away for many leases under load: engines and tools go on, nothing is aborted or run a second time for it."""

import os
import re
import signal
import threading
import time
from pathlib import Path
from typing import Any

import plugins
import pytest
import redis
from counted import Counted, launch
from redis.backoff import NoBackoff
from redis.retry import Retry

TOKEN_S = 0.036
"""Of the simulated a100, with some calls beside."""
SHARES = (0.3, 0.6, 0.9, 1.1, 1.25)
"""When requests are done, in times of the outage: some while it lasts, some after. Of a workflow that tells more, not
all events are kept."""
FILLERS = 4000
LOADS_SLOWLY = ("--key-load-delay", "500")
"""us for each key: 2 s for all FILLERS."""
TOOL = """
import time
def nap(args, context):
    time.sleep(args["seconds"])
    return args["seconds"]
"""


class Watch(threading.Thread):
    """Asks the server all the time, and remembers whether it was loading."""

    def __init__(self, url: str) -> None:
        super().__init__(name="watch", daemon=True)
        self._url, self._over, self.loading = url, threading.Event(), False

    def run(self) -> None:
        with redis.Redis.from_url(self._url, socket_timeout=5, retry=Retry(NoBackoff(), 0)) as client:
            while not self._over.wait(0.02):
                try:
                    client.ping()
                except redis.BusyLoadingError:
                    self.loading = True
                except redis.RedisError:
                    pass

    def end(self) -> None:
        self._over.set()
        self.join()


def restart(cell: Counted, away_s: float, *extra: str) -> None:
    os.kill(cell.server.pid, signal.SIGKILL)
    cell.server.stop()
    threading.Event().wait(away_s)
    cell.server = launch(cell.folder, port=cell.server.port, program=cell.server.program, extra_args=extra)


def restart_and_load(cell: Counted, away_s: float) -> None:
    """Once there again, it says for a while that it is loading."""
    with cell.store.pipeline(transaction=False) as pipeline:
        for number in range(FILLERS):
            pipeline.set(f"filler:{number}", number)
        pipeline.execute()
    watch = Watch(cell.server.url)
    watch.start()
    restart(cell, away_s, *LOADS_SLOWLY)
    watch.end()
    assert watch.loading


def stand_still(cell: Counted, away_s: float) -> None:
    """The same run of the server, which takes connections all the time and answers none."""
    os.kill(cell.server.pid, signal.SIGSTOP)
    threading.Event().wait(away_s)
    os.kill(cell.server.pid, signal.SIGCONT)


def long_requests(cell: Counted, away_s: float) -> str:
    """A workflow whose requests, and another one whose tool, run now and end during the outage or after it."""
    seconds = 1.2 * away_s + 8  # its process is to live to renew its lease again, and say so
    nap = {"tool": "test.nap", "args": {"seconds": seconds}, "timeout_s": 600}
    cell.client.submit({"name": "nap", "stages": {"nap": nap}, "output": "nap.output"}, id="nap", slo_s=3600)
    cell.answers["nap"] = seconds
    workflow = cell.submit_long(*(round(share * away_s / TOKEN_S) for share in SHARES), stream=True)
    cell.until_true(lambda: cell.count("zcard", cell.keys.leases) == len(SHARES) + 1)
    return workflow


def engine_runs(cell: Counted) -> int:
    """How many requests the engines have run, by what their workers say at their end."""
    for name in ("one", "two"):
        assert cell.processes.stop_one(name, 30) == 0
    told = [re.findall(r"has run (\d+) requests", cell.log(name)) for name in ("one", "two")]
    return sum(int(count) for counts in told for count in counts)


def check(cell: Counted, workflow: str, away_s: float, marks: dict[str, int]) -> None:
    assert cell.run_twice() == {}
    assert cell.faults() == []
    events: list[Any] = cell.events(workflow)
    attempts = {(event.data["stage"], event.data["attempt"]) for event in events if event.type == "token"}
    assert 0 < len(attempts) == len({stage for stage, _ in attempts})
    served = {name.decode(): int(count) for name, count in cell.store.hgetall(cell.keys.served).items()}
    told = cell.outages(marks)
    assert all(loops and max(loops.values()) <= 2 for loops in told.values()), told
    assert engine_runs(cell) == served["one"] + served["two"]
    for lines in cell.since(marks).values():
        text = "\n".join(lines)
        # Not "no longer ours": so is told who hands in again what the server had taken before it stood still.
        assert not re.search("its lease was lost|ran out|is lost", text), text
        # Longer than what is left unsaid of a process that is not well.
        assert text.count("unhealthy: ") == text.count("healthy again") == (away_s > 40), text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("outage", "lease_s", "away_s"),
    [(restart, 3.0, 7.0), (restart_and_load, 3.0, 5.0), (restart, 5.0, 60.0), (stand_still, 5.0, 20.0)],
)
def test_nothing_is_aborted_or_run_again(
    namespace: str, tmp_path: Path, program: Path | None, outage: Any, lease_s: float, away_s: float
) -> None:
    home = os.pathsep.join([str(plugins.tools(tmp_path / "own", TOOL, "nap")), os.environ.get("PYTHONPATH", "")])
    server = launch(tmp_path, program=program)
    with Counted(server, namespace, tmp_path, HEXGEN_LEASE_S=str(lease_s), PYTHONPATH=home) as cell:
        try:
            files = {name: tmp_path / f"{name}.healthy" for name in ("coordinator", "one", "two", "tools")}
            cell.own = {name: {"HEXGEN_HEALTH_FILE": str(file)} for name, file in files.items()}
            cell.begin("--engine", "simulated", "--responder", "echo")
            cell.submit(3)
            cell.until_true(lambda: all(file.exists() for file in files.values()))
            marks, workflow = cell.marks(), long_requests(cell, away_s)
            outage(cell, away_s)
            back_at = time.time()
            cell.settle()
            check(cell, workflow, away_s, marks)
            assert all(file.stat().st_mtime > back_at for name, file in files.items() if name not in ("one", "two"))
        finally:
            cell.processes.stop()
            cell.server.stop()
