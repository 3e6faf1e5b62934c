"""Chooses among the results of several candidate queries. Pure: results in, choice out; knows no database."""

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

from common.model import Json
from workers.tools.sql_values import same_rows


@dataclass(frozen=True, slots=True)
class Candidate:
    """One result of `sql.execute`, its place and its score (higher is better)."""

    index: int
    score: float
    result: Mapping[str, Json]

    @property
    def sql(self) -> str:
        return str(self.result.get("sql") or "")

    def grade(self) -> int:
        """0 for rows, 1 for an empty result, 2 for an error: a smaller grade always wins."""
        if self.result.get("error") is not None:
            return 2
        return 0 if self.result.get("rows") else 1

    def preference(self) -> tuple[float, int, int]:
        return -self.score, len(self.sql), self.index


@dataclass(frozen=True, slots=True)
class Group:
    """Candidates with equal results, the preferred one first."""

    members: tuple[Candidate, ...]

    def rank(self) -> tuple[int, int, tuple[float, int, int]]:
        best = self.members[0]
        return best.grade(), -len(self.members), best.preference()


def vote(candidates: Sequence[Candidate]) -> list[Group]:
    """Group by equal results, best group first: most votes, then score, then shortest SQL, then first."""
    groups: defaultdict[Hashable, list[Candidate]] = defaultdict(list)
    for candidate in candidates:
        groups[_key(candidate)].append(candidate)
    ranked = [Group(tuple(sorted(members, key=Candidate.preference))) for members in groups.values()]
    return sorted(ranked, key=Group.rank)


def _key(candidate: Candidate) -> Hashable:
    # Two failures are no agreement, so each stands alone.
    if candidate.grade() == 2:
        return ("failed", candidate.index)
    return same_rows(candidate.result.get("rows") or [])
