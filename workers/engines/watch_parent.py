"""For child processes made by multiprocessing: ends the child when its parent is gone, however that ended.

Must not know what the child does. Commands started by exec are tied by `common.lifeline` instead.
"""

import multiprocessing
import os
import signal
import threading


def end_with_parent() -> None:
    """Kill this process, from a thread, as soon as its parent has ended; at once if it has. Call it in the child."""
    threading.Thread(target=_watch, name="end-with-parent", daemon=True).start()


def _watch() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()  # the parent's end of a pipe: the kernel closes it even after kill -9
        os.kill(os.getpid(), signal.SIGKILL)
