"""The load of a benchmark and what is measured on it. Pure: no processes, no Redis, no clock."""

import math
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

WORDS = (
    "select",
    "count",
    "from",
    "where",
    "account",
    "loan",
    "district",
    "order",
    "by",
    "join",
    "on",
    "balance",
    "race",
)


class BenchmarkError(Exception):
    """The run does not measure what it says it does, or did not end. One sentence."""


@dataclass(frozen=True, slots=True)
class Load:
    """Chains in flight, requests in each (one after the other, 2 at least), bytes of each request's payload."""

    chains: int
    length: int
    payload_bytes: int

    @property
    def requests(self) -> int:
        return self.chains * self.length


@dataclass(frozen=True, slots=True)
class Figures:
    """What a run gave. p50 and p99: ms from the completion of a request to the next of its chain being claimable."""

    requests_per_s: float
    p50_ms: float
    p99_ms: float


WARM_UP = Load(chains=8, length=4, payload_bytes=64)
"""Comes before every run and does not count: processes connect, import and start their loops."""


class Chains:
    """Keeps book of the chains of one run, so that a request lost or run twice is an error, not a good figure."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._gaps: list[list[float]] = [[] for _ in range(load.chains)]
        self._ended: set[int] = set()

    @property
    def over(self) -> bool:
        return len(self._ended) == self._load.chains

    def handed_on(self, chain: int, gaps_s: Iterable[float]) -> None:
        """So many requests more of this chain have completed and been followed by the next, after these seconds."""
        self._gaps[chain].extend(gaps_s)

    def ended(self, chain: int) -> None:
        """The last request of this chain has completed. Raises BenchmarkError if that cannot be."""
        done = len(self._gaps[chain]) + 1
        if chain in self._ended or done != self._load.length:
            raise BenchmarkError(f"chain {chain} ended with {done} of {self._load.length} requests, or twice")
        self._ended.add(chain)

    def figures(self, elapsed_s: float) -> Figures:
        """Of a run that is over and took so long in all. Raises BenchmarkError if it is not over."""
        if not self.over:
            raise BenchmarkError(f"only {len(self._ended)} of {self._load.chains} chains ended")
        gaps_ms = sorted(1000 * gap for gaps in self._gaps for gap in gaps)
        return Figures(self._load.requests / elapsed_s, percentile(gaps_ms, 50), percentile(gaps_ms, 99))


def percentile(ordered: Sequence[float], percent: float) -> float:
    """The smallest value with at least so many percent of the values at or below it (nearest rank)."""
    return ordered[max(0, math.ceil(percent / 100 * len(ordered)) - 1)]


def middle(runs: Sequence[Figures]) -> Figures:
    """The median of each figure over repeated runs."""
    return Figures(
        median(run.requests_per_s for run in runs),
        median(run.p50_ms for run in runs),
        median(run.p99_ms for run in runs),
    )


def prompt(size: int, seed: int = 1) -> str:
    """Plain text of exactly `size` bytes that compresses as text does, the same for everybody."""
    rng = random.Random(seed)
    text = " ".join(rng.choices(WORDS, k=size // 4 + 1))
    return text[:size].ljust(size)
