"""Our own commands as child processes of this one: started, watched, stopped. Knows nothing of workflows."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from common import clock
from common.errors import HexgenError
from common.lifeline import tied

STOP_S = 15.0


class Processes:
    """Children that end with this process. Each writes its log to a file of its own; leaving the context stops all."""

    def __init__(self, logs: Path, environment: Mapping[str, str]) -> None:
        self._logs = logs
        self._environment = {**os.environ, **environment}
        self._children: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self, name: str, arguments: Sequence[str], environment: Mapping[str, str] | None = None) -> int:
        """Run `hexgen-flow ARGUMENTS`; its process id. Call from the main thread."""
        self._logs.mkdir(parents=True, exist_ok=True)
        with (self._logs / f"{name}.log").open("ab") as log:
            child = subprocess.Popen(
                tied([sys.executable, "-m", "hexgen_flow", *arguments]),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environment | dict(environment or {}),
                start_new_session=True,  # Ctrl-C is for this process, which then stops its children in order
            )
        self._children[name] = child
        return child.pid

    def check(self) -> None:
        """Raise HexgenError with the end of its log if a child has ended by itself."""
        for name, child in self._children.items():
            if child.poll() is not None:
                tail = (self._logs / f"{name}.log").read_text("utf-8", "replace").strip().splitlines()[-5:]
                raise HexgenError(f"{name} ended with code {child.returncode}: " + " / ".join(tail))

    def stop_one(self, name: str, timeout_s: float = STOP_S) -> int:
        """SIGTERM to one child; its exit code when it has ended."""
        self._children[name].terminate()
        return self.ended(name, timeout_s)

    def ended(self, name: str, timeout_s: float) -> int:
        """Wait for one child to end and forget it; its exit code."""
        return self._children.pop(name).wait(timeout_s)

    def stop(self) -> None:
        """SIGTERM to all in reverse order of starting, SIGKILL to those that do not end in time."""
        children = list(reversed(self._children.values()))
        for child in children:
            if child.poll() is None:
                child.terminate()
        until = clock.monotonic_s() + STOP_S
        for child in children:
            try:
                child.wait(max(0.1, until - clock.monotonic_s()))
            except subprocess.TimeoutExpired:
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()
        self._children.clear()
