"""How many workflows per second a cluster holds: a search over rates, with the same seeds at each.

It knows attainment only as what a set of runs shows; which policy makes it is not its business.
"""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from math import sqrt
from multiprocessing import get_context

from common.errors import InvalidDocument
from common.policy.registry import RATIOS
from coordinator.simulator.cluster import Candidate
from coordinator.simulator.comparison import BEST, WORTH_PROCESSES, Parameters, Progress, Run, Setting, played
from coordinator.simulator.trace import Trace

WIDTH = 0.02
"""The search stops where the rate held and the rate not held are this close, as a share."""
RATES_TRIED = 10
"""About so many a search takes."""
ROUNDING = 1e-9
"""Sums of shares are not exact."""
DOUBLINGS = 16
"""So far from the first guess a bracket is looked for."""


@dataclass(frozen=True, slots=True)
class Load:
    """What is to be held: the deadline of each workflow in s, how many of them arrive how, and with which seeds."""

    slo_s: float
    attainment: float = 0.95
    seeds: int = 5
    workflows: int = 500
    arrivals: str = "poisson"


@dataclass(frozen=True, slots=True)
class Verdict:
    """A candidate judged. attainment: that at the rate asked for, None where none was; highest_rate in workflows/s.

    holds: whether that rate is held, or where none was asked for, any. fault: why it cannot run the trace at all.
    """

    candidate: Candidate
    holds: bool = False
    highest_rate: float = 0.0
    attainment: float | None = None
    fault: str = ""

    @property
    def price_per_1000(self) -> float | None:
        """What 1000 workflows cost at the highest rate; None if there is no price or no such rate."""
        price = self.candidate.price
        return None if price is None or not self.highest_rate else price / (3.6 * self.highest_rate)


def highest_rate(
    setting: Setting, policy: str, parameters: Parameters = (), *, slo_s: float, attainment: float = 0.95,
    seeds: int = 5, workflows: int = 500, arrivals: str = "poisson",
) -> float:  # fmt: skip
    """The highest rate in workflows/s at which the mean attainment over the seeds is kept, to 2 %; 0 if none does.

    Raises InvalidDocument where no rate is too high: too few workflows for so long a deadline.
    """
    load = Load(slo_s, attainment, seeds, workflows, arrivals)
    tried = [(("r", r),) for r in RATIOS] if policy == BEST else [parameters]
    best, guess = 0.0, len(setting.cluster) / setting.expectation.workflow_s
    for one in tried:
        best = highest(partial(holds, setting, policy, one, load), guess, best)
    return best


def holds(setting: Setting, policy: str, parameters: Parameters, load: Load, rate: float) -> bool:
    """Whether the attainment is kept at a rate. It stops at the seed that decides."""
    needed = load.attainment * load.seeds - ROUNDING
    total = 0.0
    for seed in range(load.seeds):
        total += _attainment(setting, policy, parameters, load, rate, seed)
        if total >= needed or total + load.seeds - 1 - seed < needed:
            break
    return total >= needed


def mean_attainment(setting: Setting, policy: str, load: Load, rate: float) -> float:
    """The mean share of workflows that meet their deadline, over the seeds."""
    shares = [_attainment(setting, policy, (), load, rate, seed) for seed in range(load.seeds)]
    return sum(shares) / len(shares)


def judge_all(
    trace: Trace, policy: str, load: Load, rate: float | None, candidates: Sequence[Candidate], progress: Progress
) -> list[Verdict]:
    """What each candidate holds, in their order, on all cores. Raises InvalidDocument for a load that does not do."""
    work = partial(judge, trace, policy, load, rate)
    found = []
    with ExitStack() as stack:
        made: Iterable[Verdict] = map(work, candidates)
        if len(candidates) * load.seeds * load.workflows * RATES_TRIED > WORTH_PROCESSES:
            made = stack.enter_context(ProcessPoolExecutor(mp_context=get_context("spawn"))).map(work, candidates)
        for verdict in made:
            found.append(verdict)
            progress(len(found), len(candidates))
    return found


def judge(trace: Trace, policy: str, load: Load, rate: float | None, candidate: Candidate) -> Verdict:
    """What a candidate holds. Raises InvalidDocument for a load that does not do."""
    setting = Setting.of(trace, candidate.cluster)
    try:
        attainment = None if rate is None else mean_attainment(setting, policy, load, rate)
        highest = highest_rate(setting, policy, **asdict(load))
    except InvalidDocument as error:
        if error.field != "trace":
            raise
        return Verdict(candidate, fault=error.message)
    holds = highest > 0.0 if attainment is None else attainment >= load.attainment - ROUNDING
    return Verdict(candidate, holds, highest, attainment)


def cheapest(verdicts: Sequence[Verdict], rate: float | None) -> Verdict | None:
    """Of those that hold: the least price for the rate asked for; where none was, the least price of a workflow."""
    priced = [one for one in verdicts if one.holds and one.candidate.price is not None]
    return min(priced, key=lambda one: (one.candidate.price if rate else one.price_per_1000) or 0.0, default=None)


def _attainment(setting: Setting, policy: str, parameters: Parameters, load: Load, rate: float, seed: int) -> float:
    run = Run(policy, rate, seed, load.workflows, load.slo_s, load.arrivals, parameters)
    return played(setting, run)[1].attainment


def highest(keeps: Callable[[float], bool], guess: float, floor: float = 0.0, width: float = WIDTH) -> float:
    """The highest rate kept, to a share of `width`, or `floor` if a little more is not kept (0: no floor, start at
    `guess`). Raises InvalidDocument where every rate is kept.
    """
    low, high = _bracket(keeps, floor * (1.0 + width) or guess, floor)
    while low > 0.0 and high > low * (1.0 + width):
        middle = sqrt(low * high)
        low, high = (middle, high) if keeps(middle) else (low, middle)
    return low


def _bracket(keeps: Callable[[float], bool], first: float, floor: float) -> tuple[float, float]:
    """A rate that is kept and one that is not. (0, .): the deadline is missed even by workflows that hardly meet."""
    if keeps(first):
        for _ in range(DOUBLINGS):
            if not keeps(2.0 * first):
                return first, 2.0 * first
            first *= 2.0
        raise InvalidDocument("slo", f"is met at every rate, even {first:g}/s: take a shorter one, or more workflows")
    if floor:
        return floor, first
    for _ in range(DOUBLINGS):
        first /= 2.0
        if keeps(first):
            return first, 2.0 * first
    return 0.0, first
