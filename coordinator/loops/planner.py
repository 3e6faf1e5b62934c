"""The planner: whenever something joins the line, or room comes free, plans the line anew and places what may start.

Any number of coordinators plan: a wake calls one of them, and of two plans made at once only the first counts.
"""

from collections.abc import Iterable
from random import SystemRandom

from common import clock
from common.lineup import Asked, Lineup
from common.model import Instance
from common.policy.cost import Demand, exec_s
from common.policy.line import AHEAD
from common.policy.registry import binds_late
from common.store.line import MOST_SEEN
from coordinator.cluster import load_ms
from coordinator.desk import Desk
from coordinator.planning import Plan, demand, placements, plan, wanted

PAUSE_S = 0.002
"""Between two plans: what happens meanwhile is planned together."""
LEFT_S = 1.0
"""Between two looks at whether the line is still left to others."""
MOST_REMEMBERED = 4 * MOST_SEEN
UNSERVED_S = 1.0
"""So long nobody must have what a request asks for, before its workflow hears: an instance may just be starting."""


class Planner:
    """Remembers the records of those that wait, and since when nobody has what some ask for."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._asked: dict[str, Asked] = {}
        self._unserved: dict[Demand | str, float] = {}
        self._dice = SystemRandom().random

    async def __call__(self) -> None:
        """Wait until there is something to plan; then plan until nothing more can start.

        While a policy is being changed, the line is left to those who bind late: what one puts there and another gives
        back would go round and round.
        """
        if self._is_left():
            await clock.sleep(LEFT_S)
            return
        await self._desk.cell.line.wait()
        while not self._is_left() and await self.plan():
            pass
        await clock.sleep(PAUSE_S)

    def _is_left(self) -> bool:
        """Whether the line is for others, or may be: nobody has looked yet."""
        others = self._desk.others
        return not self._desk.policy.late and (others is None or any(map(binds_late, others.values())))

    async def plan(self) -> bool:
        """One plan, carried out. True if another may place more at once."""
        line = self._desk.cell.line
        seen = await line.survey(AHEAD)
        if not self._desk.policy.late:
            return await line.give_back(seen.line) > 0
        if not seen.line:
            return False
        found = await self._plan(seen)
        given_back = await line.give_back(self._out_of_patience(found.unserved))
        if not found.starts:
            return given_back > 0
        placed = await line.place(seen.plans, placements(found, self._cost_ms))
        for (request, _), went in zip(found.starts, placed or (), strict=False):
            if not went:  # it is gone, or its record is not what was read: it would be planned again and again
                self._asked.pop(request.request, None)
        apart = any(request.request in seen.alone for request, _ in found.starts)
        return placed is None or len(placed) >= AHEAD or given_back > 0 or apart

    async def _plan(self, seen: Lineup) -> Plan:
        """Of the records that it needs, those read before are not read again, unless an attempt was made since, or the
        deadline was amended.
        """
        tokens, keys_ms = dict(zip(seen.line, seen.tokens, strict=True)), _keys_ms(seen)
        known = self._asked
        asked = {name: known[name] for name in wanted(seen) if name in known}
        asked = {
            name: one
            for name, one in asked.items()
            if (tokens.get(name, one.token), keys_ms.get(name, one.key_ms)) == (one.token, one.key_ms)
        }
        asked |= await self._desk.cell.line.asked([name for name in wanted(seen) if name not in asked])
        self._asked = asked if len(known) > MOST_REMEMBERED else known | asked
        return plan(seen, asked, self._desk.policy, self._dice)

    def _out_of_patience(self, unserved: Iterable[str]) -> list[str]:
        """Those that ask for what nobody could give for a while: all of them, however many wait behind the first.

        Their records are not remembered: routed anew, they may come back asking for something else.
        """
        now = clock.monotonic_s()
        asked = {name: self._asked.pop(name, None) for name in unserved}
        demands = {name: name if record is None else demand(record) for name, record in asked.items()}
        self._unserved = {key: self._unserved.get(key, now) for key in demands.values()}
        return [name for name, key in demands.items() if now - self._unserved[key] >= UNSERVED_S]

    def _cost_ms(self, request: Asked, instance: Instance) -> int:
        return load_ms(exec_s(instance.profile, request.prompt_tokens, request.expected_tokens))


def _keys_ms(seen: Lineup) -> dict[str, int]:
    """Of all that wait in the line, and of what is bound to an instance and not claimed."""
    keys = dict(zip(seen.line, seen.keys_ms, strict=True))
    for standing in seen.standings:
        keys.update(zip(standing.queued, standing.keys_ms, strict=True))
    return keys
