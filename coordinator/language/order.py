"""Order of the stages of one scope. Plain functions over names; knows nothing of what a stage does."""

from collections.abc import Mapping, Sequence

Needs = Mapping[str, Sequence[str]]


def topological(needs: Needs) -> list[str]:
    """The names, each after all it needs and otherwise in the order given. Names on or behind a cycle are left out."""
    order: list[str] = []
    placed: set[str] = set()
    waiting = list(needs)
    while True:
        ready = next((name for name in waiting if placed.issuperset(needs[name])), None)
        if ready is None:
            return order
        waiting.remove(ready)
        placed.add(ready)
        order.append(ready)


def cycle(needs: Needs) -> list[str]:
    """A cycle among the names, its first name again at the end; empty if there is none."""
    stuck = set(needs).difference(topological(needs))
    if not stuck:
        return []
    trail = [next(name for name in needs if name in stuck)]
    while trail[-1] not in trail[:-1]:
        trail.append(next(need for need in needs[trail[-1]] if need in stuck))
    return trail[trail.index(trail[-1]) :]


def upstream(needs: Needs, order: Sequence[str]) -> dict[str, frozenset[str]]:
    """For each name of a topological order all that it needs, directly or through others."""
    reached: dict[str, frozenset[str]] = {}
    for name in order:
        reached[name] = frozenset(needs[name]).union(*(reached[need] for need in needs[name]))
    return reached
