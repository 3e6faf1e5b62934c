"""Logging to stderr, one line an event: time, level, logger, message."""

import logging
import sys


def configure(level: str) -> None:
    """Set up the root logger once per process. Unknown levels count as INFO."""
    number = logging.getLevelNamesMapping().get(level.upper(), logging.INFO)
    logging.basicConfig(
        stream=sys.stderr, level=number, format="%(asctime)s %(levelname)s %(name)s: %(message)s", force=True
    )
