"""Compiles the loop, and every function it calls, where numba is installed; without it they run as they are.

The engine model and the policies are those that run live: nothing is written a second time.
"""

import hashlib
import inspect
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from common import enginebatch, enginemodel, prefixcache
from common.policy import cost, dispatch, fairness, line, urgency
from common.policy.rules import Rules
from coordinator.simulator import deciding, loop, queues

MODULES: tuple[ModuleType, ...] = (
    prefixcache, enginebatch, enginemodel, cost, fairness, urgency, line, dispatch, queues, deciding, loop,
)  # fmt: skip


@cache
def compiled_run() -> Callable[[deciding.World, Rules, float], float] | None:
    """`loop.run` in machine code, kept on disk for the next time; None without numba."""
    try:
        import numba
        from numba.extending import register_jitable
    except ImportError:
        return None
    # numba looks at the age of one file alone; what it keeps must go with the text of all.
    text = "".join(inspect.getsource(module) for module in MODULES)
    home = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    numba.config.CACHE_DIR = str(home / "hexgen-flow" / hashlib.sha256(text.encode()).hexdigest()[:16])
    for module in MODULES:
        for function in _functions(module):
            register_jitable(function)
    compiled: Callable[[deciding.World, Rules, float], float] = numba.njit(cache=True)(loop.run)
    return compiled


def _functions(module: ModuleType) -> list[Any]:
    return [found for _, found in inspect.getmembers(module, inspect.isfunction) if found.__module__ == module.__name__]
