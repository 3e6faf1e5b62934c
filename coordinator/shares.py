"""What tenants have had, as one coordinator sees it for a moment. No Redis here; the counting is `tenant.lua`'s."""

from collections.abc import Iterable, Mapping
from heapq import heapify, heappush, heapreplace

from common.policy.rules import SERVED, Rules


def needs_shares(rules: Rules) -> bool:
    """Whether the policy looks at what tenants have had."""
    return rules.order == SERVED or rules.fairness > 0.0


class Shares:
    """Virtual counters in tokens; what this coordinator charges is added at once.

    active: tenants that have requests which have not ended.
    """

    def __init__(self, charged: Mapping[str, int] | None = None, active: Iterable[str] = ()) -> None:
        self._charged = dict(charged or {})
        self._active = set(active)
        self._least = [(self._charged.get(tenant, 0), tenant) for tenant in self._active]
        heapify(self._least)  # what is charged since stands in it only once `least` comes upon it: counters only grow

    @property
    def least(self) -> int:
        """The least that an active tenant has had; 0 where none is."""
        while self._least:
            had, tenant = self._least[0]
            if had == self._charged.get(tenant, 0):
                return had
            heapreplace(self._least, (self._charged[tenant], tenant))
        return 0

    def of(self, tenant: str) -> int:
        """What a tenant has had; one that was away counts as if it had had the least of the others."""
        own = self._charged.get(tenant, 0)
        return own if tenant in self._active else max(own, self.least)

    def charge(self, tenant: str, tokens: int) -> None:
        """Count a request that becomes ready."""
        self._charged[tenant] = self.of(tenant) + tokens
        if tenant not in self._active:
            self._active.add(tenant)
            heappush(self._least, (self._charged[tenant], tenant))
