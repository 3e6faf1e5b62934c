"""A small deployment of real processes for acceptance tests. Not a test itself."""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, Self

from hexgen_flow.client import Client, Event
from hexgen_flow.processes import Processes

LEASE_S = "2"


class Server(Protocol):
    """What is reached under a URL."""

    @property
    def url(self) -> str: ...


class Deployment:
    """Coordinators, workers and tools on one namespace, each a process."""

    def __init__(self, server: Server, namespace: str, folder: Path, **environment: str) -> None:
        self.folder = folder
        settings = {"HEXGEN_REDIS_URL": server.url, "HEXGEN_NAMESPACE": namespace, "HEXGEN_LEASE_S": LEASE_S}
        self.environment = settings | environment
        self.processes = Processes(folder / "logs", self.environment)
        self.client = Client(server.url, namespace)
        self.pids: dict[str, int] = {}
        self.own: dict[str, dict[str, str]] = {}
        """The environment of single processes, over that of all, by name."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.processes.stop()
        self.client.close()

    def coordinator(self, name: str = "coordinator", *options: str) -> None:
        self._start(name, "coordinator", *options)

    def define(self, *documents: Mapping[str, Any]) -> None:
        """Start a coordinator that registers these definitions."""
        folder = self.folder / "workflows"
        folder.mkdir(parents=True, exist_ok=True)
        for document in documents:
            (folder / f"{document['name']}.json").write_text(json.dumps(document))
        self.coordinator("coordinator", "--workflows", str(folder))

    def worker(self, name: str, *options: str) -> None:
        self._start(name, "worker", "--instance", name, *options)

    def tools(self, name: str = "tools", *options: str) -> None:
        self._start(name, "tools", *options)

    def _start(self, name: str, *arguments: str) -> None:
        self.pids[name] = self.processes.start(name, arguments, self.own.get(name))

    def kill(self, name: str) -> None:
        """SIGKILL, and wait until it is gone."""
        os.kill(self.pids[name], signal.SIGKILL)
        self.processes.ended(name, 10)

    def log(self, name: str) -> str:
        """What a process has written so far."""
        return (self.folder / "logs" / f"{name}.log").read_text()

    def instances(self) -> dict[str, dict[str, Any]]:
        """The instances and tool workers as the command shows them, by id."""
        command = [sys.executable, "-m", "hexgen_flow", "instances", "--json"]
        shown = subprocess.run(command, env=os.environ | self.environment, capture_output=True, check=True).stdout
        return {one["instance"]: one for one in json.loads(shown)}

    def events(self, workflow: str, timeout_s: float = 60) -> list[Event]:
        return list(self.client.events(workflow, timeout_s=timeout_s))

    def until(self, workflow: str, kind: str, timeout_s: float = 30, **data: Any) -> Event:
        """The first event of that type with these data."""
        for event in self.client.events(workflow, timeout_s=timeout_s):
            if event.type == kind and data.items() <= event.data.items():
                return event
        raise AssertionError(f"workflow {workflow} ended without {kind} {data}")


def chain(length: int, **stage: Any) -> dict[str, Any]:
    """A workflow of so many llm stages, each after the one before."""
    stages: dict[str, Any] = {}
    for number in range(length):
        stages[f"s{number}"] = {"prompt": "{{ inputs.text }}", **stage}
        if number:
            stages[f"s{number}"]["needs"] = [f"s{number - 1}"]
    return {"name": f"chain{length}", "inputs": {"text": {"type": "string"}}, "stages": stages}


def check_once(events: list[Event], stages: int) -> None:
    """Each stage of such a chain started and completed once, in order, and the workflow completed once."""
    counts = Counter((event.type, event.data.get("stage")) for event in events)
    assert counts["completed", None] == 1
    for number in range(stages):
        assert counts["stage_started", f"s{number}"] == 1
        assert counts["stage_completed", f"s{number}"] == 1
