"""A child of multiprocessing ends with a parent that was killed."""

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PARENT = """
import multiprocessing, os, signal, sys

def child(started):
    from workers.engines.watch_parent import end_with_parent
    end_with_parent()
    started.send(os.getpid())
    signal.pause()

if __name__ == "__main__":
    spawn = multiprocessing.get_context("spawn")
    here, there = spawn.Pipe()
    spawn.Process(target=child, args=(there,)).start()
    print(here.recv(), flush=True)
    signal.pause()
"""


def test_the_child_of_a_killed_process_ends(tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(PARENT)
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True, env=environment) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        watched = os.pidfd_open(child)
        try:
            assert not readable(watched, 0)
            parent.send_signal(signal.SIGKILL)
            assert readable(watched, 20), f"process {child} outlived its parent"
        finally:
            if not readable(watched, 0):
                signal.pidfd_send_signal(watched, signal.SIGKILL)
            os.close(watched)


def readable(descriptor: int, timeout_s: float) -> bool:
    """Whether the process behind a pidfd has ended."""
    return bool(select.select([descriptor], [], [], timeout_s)[0])
