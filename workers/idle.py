"""How much prefill an engine has missed: time without anything to prefill while a request that fits waited for it.

Plain bookkeeping: told what happens and when, in s of one clock.
"""

import math


class IdlePrefill:
    """Adds up the time that was missed, and the time in which calls ran."""

    def __init__(self) -> None:
        self.missed_s = 0.0
        self._ran_s = 0.0
        self._running_since: float | None = None
        self._dry_since: float | None = None
        self._looked_at = -math.inf
        self._looked_kv = 0

    def share(self, now: float) -> float:
        """Of the time in which calls ran or should have."""
        ran = self._ran_s + (now - self._running_since if self._running_since is not None else 0.0)
        whole = ran + self.missed_s
        return self.missed_s / whole if whole > 0 else 0.0

    def iterates(self, prefills: bool, now: float) -> None:
        """The engine is in an iteration that prefills something, or nothing."""
        if prefills:
            self._dry_since = None
        elif self._dry_since is None:
            self._dry_since = now

    def found_nothing(self, kv_room: int, now: float) -> None:
        """A look at the queue with so much KV to spare gave nothing."""
        self._looked_at, self._looked_kv = now, kv_room

    def starts(self, prompt_tokens: int, waited_s: float, now: float) -> None:
        """A request that had waited so long goes to the engine."""
        if self._running_since is None:
            self._running_since = now
        if self._dry_since is None:
            return
        # What did not fit when there was a look has waited for room, not for the engine's attention.
        began = now if prompt_tokens > self._looked_kv and self._looked_at > self._dry_since else self._dry_since
        self.missed_s += max(0.0, min(now - max(began, self._looked_at), waited_s))
        self._dry_since = None

    def is_empty(self, now: float) -> None:
        """The last call has left the engine."""
        if self._running_since is not None:
            self._ran_s += now - self._running_since
            self._running_since = None
        self.iterates(prefills=False, now=now)
