"""Child processes of a benchmark: started tied to this one, watched, and ended by their own process ids."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from chains import BenchmarkError

from common import clock
from common.lifeline import tied

LOOK_EVERY_S = 0.5
STOP_S = 15.0
LOG_TAIL_LINES = 15
Process = subprocess.Popen[bytes]


def end_in_order() -> None:
    """SIGTERM is to end this process as an exception does: with its children, and without what it keeps on disk."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))


@contextmanager
def running(
    command: Sequence[str], environment: Mapping[str, str], folder: Path, log: Path, on_parent_death: signal.Signals
) -> Iterator[Process]:
    """A process that runs meanwhile, what it prints going to `log`."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            tied(command, on_parent_death),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            cwd=folder,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        _stop(process)


def _stop(process: Process) -> None:
    process.terminate()
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # its session is its own, so this group holds it and its children only
        process.wait()


def answer(
    command: Sequence[str],
    environment: Mapping[str, str],
    folder: Path,
    others: Mapping[Path, Process],
    timeout_s: float,
    on_parent_death: signal.Signals = signal.SIGKILL,
) -> Any:
    """What a command prints as JSON. Raises BenchmarkError if it fails or is late, or one of `others` (by log) ends."""
    driver = subprocess.Popen(
        tied(command, on_parent_death),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        cwd=folder,
        start_new_session=True,
    )
    give_up_at = clock.monotonic_s() + timeout_s
    try:
        while True:
            try:
                told, complaint = driver.communicate(timeout=LOOK_EVERY_S)
                break
            except subprocess.TimeoutExpired:
                check(others, give_up_at, timeout_s)
    finally:
        _stop(driver)
    if driver.returncode:
        raise BenchmarkError(f"the driver failed: {_tail(complaint)}")
    return json.loads(told)


def check(others: Mapping[Path, Process], give_up_at: float, timeout_s: float) -> None:
    """Raises BenchmarkError if one of these has ended, or it is later than that."""
    for log, process in others.items():
        if process.poll() is not None:
            raise BenchmarkError(f"a worker ended with code {process.returncode}: {_tail(log.read_bytes())}")
    if clock.monotonic_s() > give_up_at:
        logs = "\n".join(_tail(log.read_bytes()) for log in others)
        raise BenchmarkError(f"the run has not ended within {timeout_s:g} s; its workers say:\n{logs}")


def _tail(log: bytes) -> str:
    return "\n".join(log.decode(errors="replace").splitlines()[-LOG_TAIL_LINES:])
