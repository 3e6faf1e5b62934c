"""Where a trace comes from: a file, or the generator, by one name. Draws no workload."""

from pathlib import Path

from common.errors import InvalidDocument
from coordinator.simulator.prefixes import assumed_prefixes, is_published, without_prefixes
from coordinator.simulator.trace import Trace, read_trace

GENERATED = "generated:"


def load_trace(wanted: str, *, prefixes: bool) -> Trace:
    """A trace by its file's name. prefixes: with what its prompts share, which is assumed for the published traces, as
    they do not tell; else each prompt is by itself. Raises InvalidDocument.
    """
    path = Path(wanted)
    if not path.is_file():
        raise InvalidDocument("trace", f"{wanted!r} is no file")
    trace = read_trace(path)
    if not prefixes:
        return without_prefixes(trace)
    return assumed_prefixes(trace) if is_published(trace) else trace
