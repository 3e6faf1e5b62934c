"""Logging to stderr, one line an event: time, level, logger, message. Ours is below `hexgen`."""

import logging
import sys
from collections.abc import Iterable

FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
OURS = "hexgen"
LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")


def configure(level: str) -> None:
    """Set up logging once per process. Libraries only warn, unless `level` names them: see `levels`."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(OneLine(FORMAT))
    logging.basicConfig(handlers=[handler], force=True)
    wanted = levels(level)
    logging.getLogger().setLevel(max(logging.WARNING, wanted[OURS]))
    for name, number in wanted.items():
        logging.getLogger(name).setLevel(number)


class OneLine(logging.Formatter):
    """Whatever a message quotes, it stays on its line; only a traceback follows on lines of its own."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        text = super().formatMessage(record)
        if text.isprintable():
            return text
        return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def levels(text: str) -> dict[str, int]:
    """The level of each logger named: "DEBUG" is ours, "INFO,redis=DEBUG" ours and a library's. Raises ValueError."""
    known, wanted = logging.getLevelNamesMapping(), {OURS: logging.INFO}
    for part in text.split(","):
        name, _, level = part.strip().rpartition("=")
        if level.upper() not in LEVELS:
            raise ValueError(f"{part!r} must be one of {', '.join(LEVELS)}; DEBUG,redis=DEBUG also shows a library's")
        wanted[name or OURS] = known[level.upper()]
    return wanted


def several(things: Iterable[object], most: int = 10) -> str:
    """The first of them, and how many more there are."""
    shown = [str(thing) for thing in things]
    more = len(shown) - most
    return ", ".join(shown[:most]) + (f" and {more} more" if more > 0 else "")
