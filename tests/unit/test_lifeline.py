"""A tied child gets its signal when the parent is killed, and does not start without one."""

import os
import select
import signal
import subprocess
import sys

import pytest

from common import lifeline

END_S = 10.0

CHILD = """
import os, signal, time
signal.signal(signal.SIGTERM, lambda *_: (os.write(1, b"told to end\\n"), os._exit(0)))
os.write(1, b"ready\\n")
while True:
    time.sleep(0.01)
"""
PARENT = """
import signal, subprocess, sys
from common.lifeline import tied
child = subprocess.Popen(tied([sys.executable, "-c", sys.argv[1]], signal.Signals(int(sys.argv[2]))))
print(child.pid, flush=True)
child.wait()
"""


@pytest.mark.parametrize(("chosen", "last_words"), [(signal.SIGTERM, "told to end\n"), (signal.SIGKILL, "")])
def test_a_killed_parent_takes_the_child_along(chosen: signal.Signals, last_words: str) -> None:
    command = [sys.executable, "-c", PARENT, CHILD, str(int(chosen))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        first = sorted(parent.stdout.readline() for _ in range(2))  # the pid and "ready", in either order
        assert first[1] == "ready\n"
        child = os.pidfd_open(int(first[0]))
        parent.kill()
        assert select.select([child], [], [], END_S)[0]
        os.close(child)
        assert parent.stdout.read() == last_words


def test_the_command_keeps_its_pid_and_its_exit_code() -> None:
    command = [sys.executable, "-c", "import os, sys; print(os.getpid()); sys.exit(7)"]
    with subprocess.Popen(lifeline.tied(command), stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert int(child.stdout.read()) == child.pid
    assert child.returncode == 7


def test_a_child_that_comes_too_late_does_not_start() -> None:
    command = lifeline.tied(["echo", "started"])
    assert command[4] == str(os.getpid())
    command[4] = "1073741824"  # no process has this id: the parent is gone
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr, done.returncode) == ("", "echo was not started: its parent is gone.\n", 1)


def test_a_command_that_does_not_exist_is_named() -> None:
    done = subprocess.run(lifeline.tied(["/no/such/program"]), capture_output=True, text=True, check=False)
    assert (done.stderr, done.returncode) == ("Cannot run /no/such/program: No such file or directory.\n", 1)


def test_elsewhere_the_command_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert lifeline.tied(("echo", "hello")) == ["echo", "hello"]
