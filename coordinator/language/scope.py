"""Which names a template may read. Knows nothing of Jinja2 and nothing of a stage's keys."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from coordinator.language.errors import DefinitionError, clipped, listed, nearest

Keys = frozenset[str] | None
"""The keys a name has, None if they are known only when it runs."""

STAGE_KEYS: Keys = frozenset({"output", "status"})
_LONGEST_LIST = 300


@dataclass(frozen=True, slots=True)
class Scope:
    """The names visible at one place, and all stages of the scopes around it, visible or not."""

    visible: Mapping[str, Keys]
    stages: frozenset[str] = field(default_factory=frozenset)

    def seeing(self, names: Iterable[str], keys: Keys = None) -> "Scope":
        """This scope with more names visible."""
        return Scope({**self.visible, **dict.fromkeys(names, keys)}, self.stages)

    def around(self, stages: Iterable[str]) -> "Scope":
        """The scope inside a group, whose stages are not yet visible."""
        return Scope(self.visible, self.stages.union(stages))

    def check(self, path: str, names: Iterable[str], members: Iterable[tuple[str, str]]) -> None:
        """Refuses a name that is not visible, and a key that a visible name never has. Raises DefinitionError."""
        for name in sorted(names):
            if name not in self.visible:
                raise DefinitionError(path, self._invisible(name))
        for name, key in sorted(members):
            keys = self.visible.get(name)
            if keys is not None and key not in keys:
                raise DefinitionError(path, f"{name}.{clipped(key, 64)} does not exist; {nearest(key, keys)}")

    def _invisible(self, name: str) -> str:
        name = clipped(name, 64)
        if name in self.stages:
            return f"the stage {name!r} is not upstream of this one and may not have ended; needs must reach it"
        visible = clipped(listed(self.visible), _LONGEST_LIST)
        hint = nearest(name, self.visible)
        tail = f"; {hint}" if hint.startswith("did") else ""
        return f"{name!r} is not visible here; visible are: {visible}{tail}"
