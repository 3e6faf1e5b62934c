"""Child processes that do not outlive the process that started them, even if that one is killed.

Run as a script, this file ties itself to its parent and then becomes the command it was given (same pid): nothing runs
between fork and exec in the parent, which may have threads. Must not know what the child is.
"""

import ctypes
import os
import signal
import sys
import threading
from collections.abc import Sequence

_PR_SET_PDEATHSIG = 1


def tied(command: Sequence[str], on_parent_death: signal.Signals = signal.SIGKILL) -> list[str]:
    """The command line that runs `command` so that it gets a signal when the calling process ends, however that ends.

    Only Linux can do this; elsewhere the command comes back unchanged. Raises RuntimeError outside the main thread:
    Linux sends the signal when the starting *thread* ends.
    """
    if sys.platform != "linux":
        return list(command)
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError(f"Start {command[0]} from the main thread: it would end with the thread that starts it.")
    return [sys.executable, "-I", "-S", __file__, str(os.getpid()), str(int(on_parent_death)), *command]


def _become(parent: int, on_parent_death: int, command: list[str]) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, on_parent_death) != 0:
        sys.exit(f"Cannot tie {command[0]} to its parent: {os.strerror(ctypes.get_errno())}.")
    if os.getppid() != parent:  # it ended before the tie was made, so no signal will come
        sys.exit(f"{command[0]} was not started: its parent is gone.")
    try:
        os.execvp(command[0], command)
    except OSError as error:
        sys.exit(f"Cannot run {command[0]}: {error.strerror}.")


if __name__ == "__main__":
    _become(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
