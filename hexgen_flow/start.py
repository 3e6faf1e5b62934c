"""Where the commands begin: make sure that the rooms imported are ours, then hand over to the command line."""

import importlib.util
import sys
from pathlib import Path

ROOMS = ("common", "coordinator", "workers")


def main() -> None:
    """Entry point of `hexgen-flow`."""
    fault = shadowed()
    if fault is not None:
        sys.exit(f"Error: {fault}")
    from hexgen_flow.cli import main as command_line

    command_line(prog_name="hexgen-flow")


def shadowed() -> str | None:
    """What to say if another package of the same name as one of our rooms comes first on sys.path, else None."""
    home = Path(__file__).resolve().parent.parent
    for room in ROOMS:
        spec = importlib.util.find_spec(room)
        if spec is None or spec.origin is None:
            return f"the package {room!r} of hexgen-flow is missing from {home}; install hexgen-flow again"
        found = Path(spec.origin).resolve().parent
        if found != home / room:
            return f"another package named {room!r} ({found}) hides ours; take it off PYTHONPATH or run elsewhere"
    return None
