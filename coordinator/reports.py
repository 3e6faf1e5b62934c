"""What a coordinator tells of single things, such as a workflow that failed: a line each, but never a flood of them."""

import logging
from collections import Counter

log = logging.getLogger("hexgen.coordinator")
MOST = 20


class Reports:
    """At most MOST lines of a kind between two calls of `sum_up`, which says how many more there would have been."""

    def __init__(self) -> None:
        self._told: Counter[tuple[int, str]] = Counter()

    def tell(self, level: int, kind: str, message: str, *args: object, trace: bool = False) -> None:
        """One line of this kind ("leases that ran out"), with the traceback of what is being handled if asked for."""
        if not log.isEnabledFor(level):
            return
        self._told[level, kind] += 1
        if self._told[level, kind] <= MOST:
            log.log(level, message, *args, exc_info=trace)

    def sum_up(self) -> None:
        """Say what was left out since the last time."""
        for (level, kind), count in self._told.items():
            if count > MOST:
                log.log(level, "and %d more %s", count - MOST, kind)
        self._told.clear()
