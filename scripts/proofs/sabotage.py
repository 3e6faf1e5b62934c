"""The controls: a copy of our code whose Lua lacks what the promise rests on. A run with it must find fault.

lease: a lease never ends, so what a killed worker held stays with it. fence: a result counts whoever hands it in and
whatever was handed in before.
"""

import re
import shutil
from pathlib import Path

ROOMS = ("common", "coordinator", "workers", "hexgen_flow")
_ANYBODY = """redis.call('ZREM', p .. 'leases', ARGV[1])
local before = p .. 'completed:' .. ARGV[1]
if not workflow then workflow, node, instance = unpack(redis.call('HMGET', before, 'workflow', 'node', 'instance')) end
if not workflow then return 0 end
redis.call('HSET', before, 'workflow', workflow, 'node', node, 'instance', instance)
redis.call('PEXPIRE', before, 60000)
token = ARGV[2]"""
"""It remembers what it completed, else the end of the request's record would do the fence's work."""
SWAPS = {
    "lease": [("reap", r"'-inf', now, 'LIMIT'", "'-inf', 0, 'LIMIT'")],
    "fence": [
        ("renew", r"local held = .*$", "local held = true"),
        ("complete", r"^if token ~= ARGV\[2\] .*$", _ANYBODY),
    ],
}


def copy_without(what: str, root: Path, folder: Path) -> Path:
    """A copy of the rooms in `root`, without lease or fence, to be put on PYTHONPATH."""
    for room in ROOMS:
        shutil.copytree(root / room, folder / room, ignore=shutil.ignore_patterns("__pycache__"))
    for name, pattern, instead in SWAPS[what]:
        path = folder / "common" / "store" / "lua" / f"{name}.lua"
        text, swapped = re.subn(pattern, instead, path.read_text(), flags=re.MULTILINE)
        if swapped != 1:
            raise ValueError(f"{path.name} has {swapped} places that match {pattern!r}; this control needs just one")
        path.write_text(text)
    return folder
