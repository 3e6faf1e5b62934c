"""A deployment whose every effect is counted while something is done to it. Not a test itself.

Workflows with fan-out, loop and tool; afterwards each has ended once, rightly, nothing was done twice, nothing is left.
"""

import re
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import redis
from chaos_checks import Findings, judge, residue
from chaos_load import WORKFLOWS, answer, databases
from deployment import Deployment
from ledger import Ledger

from common.store.embedded import EmbeddedServer
from common.store.keys import Keys

SERVER_OPTIONS = ("--appendfsync", "always", "--auto-aof-rewrite-percentage", "0")
"""What was answered is on disk; and the file tells all that ever took effect."""
READY_S = 60.0
SETTLE_S = 120.0
LONG: dict[str, Any] = {
    "name": "long",
    "inputs": {"texts": {"type": "array"}},
    "stages": {"each": {"for_each": "inputs.texts", "prompt": "{{ item }}", "max_tokens": 100_000, "timeout_s": 600}},
    "output": "each.output",
}
"""A request for each text, which takes as long as the text is."""
AGAIN = re.compile(r"[A-Z]+ hexgen\.\w+: (.+?): .*; trying again")
BACK = re.compile(r"INFO hexgen\.\w+: (.+?): back after \d+ failed")
LEASES_AGAIN = re.compile(r"WARNING hexgen\.lease: (leases) cannot be renewed: .*; trying again, nothing is aborted")
LEASES_BACK = re.compile(r"INFO hexgen\.lease: (leases) are renewed again, after \d+ tries")


def launch(folder: Path, **options: Any) -> EmbeddedServer:
    """A server of one's own, whose file tells all."""
    extra = (*SERVER_OPTIONS, *options.pop("extra_args", ()))
    return EmbeddedServer.start(folder / "redis", extra_args=extra, **options)


class Counted(Deployment):
    """One coordinator, two workers, a tool worker; `server` is what they are on now."""

    def __init__(self, server: EmbeddedServer, namespace: str, folder: Path, **environment: str) -> None:
        losses = {"HEXGEN_LEASE_LOSSES": "100"}  # trouble is no fault of a request
        super().__init__(server, namespace, folder, **losses, **environment)
        self.server = server
        self.keys = Keys(namespace)
        self.store: Any = redis.Redis.from_url(server.url)
        self.answers: dict[str, Any] = {}
        self.names: list[str] = []

    def __exit__(self, *_: object) -> None:
        super().__exit__(*_)
        self.store.close()

    def begin(self, *options: str) -> None:
        """Start all and wait until all are there. options: of the workers."""
        self.define(*WORKFLOWS, LONG)
        for name in ("one", "two"):
            self.worker(name, *options)
        (url,) = databases(self.folder).values()
        self.tools("tools", "--database", f"shop={url}")
        self.names = list(self.pids)
        self.until_true(lambda: [self.count("zcard", key) for key in (self.keys.instances, self.keys.offers)] == [2, 1])

    def count(self, command: str, key: str) -> int:
        return int(self.store.execute_command(command, key))

    def until_true(self, holds: Callable[[], bool], timeout_s: float = READY_S) -> None:
        """Until it holds; none of the processes may end meanwhile."""
        until = time.monotonic() + timeout_s
        while not holds():
            self.processes.check()
            assert time.monotonic() < until, "it has not come to that in time"
            time.sleep(0.02)

    def submit(self, count: int, slo_s: float = 3600) -> None:
        """So many workflows of all kinds, straight to the server."""
        for _ in range(count):
            number = len(self.answers)
            name, text = WORKFLOWS[number % len(WORKFLOWS)]["name"], f"question {number}"
            self.client.submit(name, {"text": text}, id=f"w{number}", slo_s=slo_s)
            self.answers[f"w{number}"] = answer(name, text)

    def submit_long(self, *lengths: int, stream: bool = False) -> str:
        """One workflow with a request for each length, in tokens."""
        texts, name = ["word" * length for length in lengths], f"w{len(self.answers)}"
        self.client.submit("long", {"texts": texts}, id=name, slo_s=3600, stream=stream)
        self.answers[name] = texts
        return name

    def ended(self) -> int:
        return sum(self.client.result(name) is not None for name in self.answers)

    def settle(self) -> None:
        """Wait until all have ended and nothing is left of them."""
        self.until_true(lambda: self.ended() == len(self.answers), SETTLE_S)
        self.until_true(lambda: not residue(self.store, self.keys), SETTLE_S)

    def faults(self) -> list[str]:
        """A line for each workflow that has not ended, once and rightly, and each thing that was done twice."""
        found, ledger = Findings(), self.ledger()
        judge(self.client, self.answers, set(), found)
        seen, ends = len(ledger.ended), len(self.answers)
        unseen = [] if seen == ends else [f"the append-only file tells of {seen} ends of {ends}"]
        twice = found.double_effects + ledger.double_effects()
        return found.lost + found.wrong + twice + unseen + residue(self.store, self.keys)

    def ledger(self) -> Ledger:
        """What the server has done so far."""
        ledger = Ledger(self.keys.prefix)
        ledger.read(self.folder / "redis")
        return ledger

    def run_twice(self) -> dict[str, int]:
        """Requests that were given to an engine or a tool more often than once."""
        return {request: count for request, count in self.ledger().claimed.items() if count > 1}

    def marks(self) -> dict[str, int]:
        """How much each process has logged so far."""
        return {name: len(self.log(name)) for name in self.names}

    def since(self, marks: dict[str, int]) -> dict[str, list[str]]:
        """The lines of each process since then."""
        return {name: self.log(name)[mark:].splitlines() for name, mark in marks.items()}

    def outages(self, marks: dict[str, int]) -> dict[str, Counter[str]]:
        """How often each loop of each process has told that the store was away since then; waits until all are back.

        Once for one outage, and once more where a loop then meets a connection from before.
        """
        until = time.monotonic() + READY_S
        while found := [(name, wrong) for name, lines in self.since(marks).items() for wrong in changes(lines)[1]]:
            assert time.monotonic() < until, found
            time.sleep(0.05)
        return {name: changes(lines)[0] for name, lines in self.since(marks).items()}


def changes(lines: list[str]) -> tuple[Counter[str], list[str]]:
    """How often each loop has told that the store is away; and what is wrong with what was told.

    Of each loop one line tells that the store is away, the next one that it is back; no traceback, no error.
    """
    away: Counter[str] = Counter()
    now_away: set[str] = set()
    wrong = [line for line in lines if line.startswith("Traceback") or " ERROR hexgen" in line]
    for line in lines:
        if told := LEASES_AGAIN.search(line) or AGAIN.search(line):
            wrong += [f"again: {line}"] if told[1] in now_away else []
            now_away.add(told[1])
            away[told[1]] += 1
        elif told := BACK.search(line) or LEASES_BACK.search(line):
            wrong += [] if told[1] in now_away else [f"never away: {line}"]
            now_away.discard(told[1])
    return away, wrong + [f"{name} is not back" for name in sorted(now_away)]
