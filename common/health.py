"""Whether a process does its work: told by the age of the last good turn of its loops, not by its being there.

Must not know what the loops do, nor who asks.
"""

import logging
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from common import clock
from common.errors import InvalidDocument
from common.logs import several

LOOK_S = 1.0
LEAST_S = 30.0
"""Reads wait for seconds, and so may answers. Who renews leases does so three times in one."""
log = logging.getLogger("hexgen.health")


def check_file(path: str) -> None:
    """Raises InvalidDocument where no such file can be made."""
    folder = Path(path).parent
    if not os.access(folder, os.W_OK):
        raise InvalidDocument("", f"there is no folder {folder} that this user may write to")


class Health:
    """Of loops, by name. They are well while the last good turn of each is younger than a lease or LEAST_S.

    From the first good turn of each on, `file` ("" for none) is touched with each look that finds them well: where it
    is old, this process is not well, or there is no process.
    """

    def __init__(self, loops: Iterable[str], lease_s: float, file: str) -> None:
        self._longest_s, self._file = max(lease_s, LEAST_S), file
        self._good_at = dict.fromkeys(loops, clock.monotonic_s())
        self._not_yet = set(self._good_at)
        self._well = True

    def good(self, loop: str) -> None:
        """It has just had a good turn. May be called from any thread."""
        self._good_at[loop] = clock.monotonic_s()
        self._not_yet.discard(loop)

    async def watch(self) -> None:
        """Look again and again until cancelled. If the event loop hangs, nobody looks, and the file grows old."""
        while True:
            self.look()
            await clock.sleep(LOOK_S)

    def look(self) -> None:
        """One look: a change is told, the file is touched."""
        now = clock.monotonic_s()
        late = sorted(loop for loop, at in self._good_at.items() if now - at > self._longest_s)
        if late and self._well:
            log.warning("unhealthy: no good turn for %g s of %s", self._longest_s, several(late))
        elif not late and not self._well:
            log.info("healthy again")
        self._well = not late
        if self._well and not self._not_yet and self._file:
            with suppress(OSError):  # it grows old then
                Path(self._file).touch()
