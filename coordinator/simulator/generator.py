"""Traces made up by chance, with statistics like those published for Text-to-SQL agents, and single calls beside them.

A text2sql workflow looks up words, writes two candidates of a query side by side, revises one round after round, writes
unit tests, and evaluates against each of them side by side. Lengths within a workflow lean to the same side. The same
recipe gives the same trace. Knows no cluster and draws no arrivals.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from common.errors import InvalidDocument
from coordinator.simulator.trace import Trace, TracedCall, TracedWorkflow

MOST_WORKFLOWS = 100_000
REPEATED = 0.85
"""Part of a revise prompt that the rounds of a loop have in common."""


@dataclass(frozen=True, slots=True)
class Database:
    """Its figures, in tokens: the first candidate's shortest prompt, the unit test's mean prompt and its deviation, and
    the mean answers of keywords, both candidates and a revise round.
    """

    name: str
    first_prompt: int
    test_prompt: int
    test_spread: int
    keywords: int
    first: int
    second: int
    revise: int


@dataclass(frozen=True, slots=True)
class Variant:
    """A mix of workflows. rounds: numbers of revise rounds, equally often; evaluates: parts in a hundred of workflows
    by number of evaluations (0: without unit tests). with_keywords: share of workflows that ask for them; runaway: of
    revise answers that only a limit stops; long_tests: of workflows whose evaluations are asked at length.
    """

    databases: tuple[Database, ...]
    rounds: tuple[int, ...]
    evaluates: Mapping[int, int]
    with_keywords: float
    runaway: float
    long_tests: float


@dataclass(frozen=True, slots=True)
class Tenant:
    """kind: text2sql, or single calls: chat, rag. share of the workflows, weight in fair orders; its workflows' SLO
    scales, each as often as the others.
    """

    name: str
    kind: str = "text2sql"
    share: float = 1.0
    weight: float = 1.0
    slo_scales: tuple[float, ...] = (1.0,)


@dataclass(frozen=True, slots=True)
class Recipe:
    """What a trace is made of."""

    variant: str
    workflows: int = 200
    seed: int = 0
    tenants: tuple[Tenant, ...] = (Tenant("default"),)


_BANK = Database("bank", 11_740, 1110, 125, keywords=44, first=825, second=534, revise=95)
_RACES = Database("races", 13_740, 1286, 190, keywords=61, first=914, second=567, revise=135)
VARIANTS = {
    "text2sql-1": Variant((_BANK,), (0, 1, 1, 2, 3, 3, 4, 5, 5, 8, 9), {0: 4, 3: 11, 4: 9, 5: 34, 6: 42},
                          with_keywords=0.67, runaway=0.0, long_tests=0.0),
    "text2sql-2": Variant((_RACES,), (0, 1, 3, 4, 5, 6, 7, 9), {4: 38, 5: 23, 6: 31, 8: 2, 11: 6},
                          with_keywords=0.92, runaway=0.0, long_tests=0.17),
    "text2sql-3": Variant((_BANK,) * 3 + (_RACES,) * 2, tuple(range(11)), {0: 4, 3: 5, 4: 15, 5: 40, 6: 32, 11: 4},
                          with_keywords=0.8, runaway=0.065, long_tests=0.14),
}  # fmt: skip
SINGLE_SLO = {"chat": 0.3, "rag": 0.2}
"""SLO scales of single calls: about twice what the longest takes alone, at three times a workflow's own latency."""
_TEMPLATES = {"retriever": 240, "keywords": 500, "candidate-1": 6200, "candidate-2": 4200, "revise": 2800,
              "unit_tester": 190, "unit_test": 370, "evaluate": 230, "chat": 180, "rag": 350}  # fmt: skip
_SCHEMA = 1200
_APART = 3866
"""So much longer is the prompt of the first candidate, which has more examples, than that of the second."""


def generate(recipe: Recipe) -> Trace:
    """A trace by its recipe. Raises InvalidDocument."""
    _check(recipe)
    rng = np.random.default_rng(recipe.seed)
    variant, tenants = VARIANTS[recipe.variant], recipe.tenants
    shares = np.array([tenant.share for tenant in tenants])
    chosen = rng.choice(len(tenants), recipe.workflows, p=shares / shares.sum())
    # Every number of rounds equally often, as far as they go: the loops make most of a trace's work.
    rounds = rng.permutation(np.resize(variant.rounds, recipe.workflows))
    found = []
    for which, count in zip(chosen, rounds, strict=True):
        tenant, draw = tenants[which], _Draw(rng)
        calls = _text2sql(variant, int(count), draw) if tenant.kind == "text2sql" else (_single(tenant.kind, draw),)
        scale = tenant.slo_scales[draw.between(0, len(tenant.slo_scales) - 1)]
        scale *= SINGLE_SLO.get(tenant.kind, 1.0)
        found.append(TracedWorkflow(calls, tenant.name, scale, tenant.weight))
    return tuple(found)


def _check(recipe: Recipe) -> None:
    if recipe.variant not in VARIANTS:
        raise InvalidDocument("trace", f"{recipe.variant!r} is not one of {', '.join(VARIANTS)}")
    if not 1 <= recipe.workflows <= MOST_WORKFLOWS:
        raise InvalidDocument("workflows", f"must be from 1 to {MOST_WORKFLOWS}, not {recipe.workflows}")
    if recipe.seed < 0:
        raise InvalidDocument("seed", f"must be a whole number from 0, not {recipe.seed}")
    if not recipe.tenants:
        raise InvalidDocument("tenants", "must be at least one")
    for tenant in recipe.tenants:
        if tenant.kind != "text2sql" and tenant.kind not in SINGLE_SLO:
            raise InvalidDocument(f"tenant {tenant.name}", f"{tenant.kind!r} must be text2sql, {', '.join(SINGLE_SLO)}")
        for figure in (tenant.share, tenant.weight, *tenant.slo_scales):
            if not 1e-6 <= figure <= 1e6:
                raise InvalidDocument(f"tenant {tenant.name}", f"{figure} must be a number from 0.000001 to 1000000")


class _Draw:
    """Numbers for one workflow, all of which lean to the same side."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng
        self._lean = rng.normal()

    def near(self, mean: float, spread: float, low: int, high: int, lean: float = 0.7) -> int:
        """About `mean`, in bounds; `lean`: correlation with what the workflow leans to."""
        off = lean * self._lean + (1.0 - lean**2) ** 0.5 * self._rng.normal()
        return int(min(max(mean + spread * off, low), high))

    def skewed(self, median: float, sigma: float, low: int, high: int) -> int:
        """Log-normal, in bounds."""
        return int(min(max(median * self._rng.lognormal(0.0, sigma), low), high))

    def between(self, low: int, high: int) -> int:
        """Any of these, both ends too."""
        return int(self._rng.integers(low, high + 1))

    def chance(self, share: float) -> bool:
        """True in so many cases."""
        return bool(self._rng.random() < share)

    def count(self, parts: Mapping[int, int]) -> int:
        """A number, by its part in a hundred."""
        return int(self._rng.choice(list(parts), p=np.array(list(parts.values())) / sum(parts.values())))


class _Line:
    """Calls one after the other, or in groups side by side."""

    def __init__(self) -> None:
        self.calls: list[TracedCall] = []
        self._before: tuple[int, ...] = ()

    def then(self, *group: TracedCall) -> None:
        """After all that is before."""
        first = len(self.calls)
        self.calls += [replace(call, needs=self._before) for call in group]
        self._before = tuple(range(first, len(self.calls)))


def _text2sql(variant: Variant, rounds: int, draw: _Draw) -> tuple[TracedCall, ...]:
    base = variant.databases[draw.between(0, len(variant.databases) - 1)]
    line = _Line()
    line.then(_call("retriever", 301, draw.between(25, 42) if draw.chance(0.4) else 5))
    if draw.chance(variant.with_keywords):
        line.then(_call("keywords", draw.near(675, 25, 630, 760), draw.near(base.keywords, 16, 12, 120)))
    for prompt in (304, 308, 312):
        line.then(_call("retriever", prompt, draw.between(4, 5)))
    prompt = base.first_prompt + draw.near(170, 130, 0, 550)
    line.then(
        _candidate(1, base, prompt, draw.near(base.first, 150, 350, 1026)),
        _candidate(2, base, prompt - _APART, draw.near(base.second, 100, 270, 800)),
    )
    for call in _revises(variant, base, prompt - _APART - 2160, rounds, draw):
        line.then(call)
    _tests(line, variant, base, draw)
    return tuple(line.calls)


def _revises(variant: Variant, base: Database, shortest: int, rounds: int, draw: _Draw) -> list[TracedCall]:
    # A result or an error that is long makes the prompt long.
    prompts = [shortest + draw.between(0, 70) + (900 if draw.chance(0.03) else 0) for _ in range(rounds)]
    prefix: tuple[tuple[str, int], ...] = _prefix("revise", base)
    if rounds > 1:
        prefix += ((".revise", int(REPEATED * min(prompts))),)
    return [TracedCall("revise", prompt, _revised(variant, base, draw), prefix=prefix) for prompt in prompts]


def _revised(variant: Variant, base: Database, draw: _Draw) -> int:
    """The length of its answer: some only say that all is well, some never stop."""
    if draw.chance(variant.runaway):
        return draw.between(985, 1078)
    if draw.chance(0.15):
        return draw.between(10, 22)
    return draw.near(base.revise, 0.3 * base.revise, 20, 312, lean=0.4)


def _tests(line: _Line, variant: Variant, base: Database, draw: _Draw) -> None:
    tests = draw.count(variant.evaluates)
    line.then(_call("unit_tester", 271, draw.between(4, 6)))
    if tests:
        prompt = draw.near(base.test_prompt, base.test_spread, 720, 1560)
        line.then(_call("unit_test", prompt, draw.near(102, 36, 31, 245, lean=0.3)))
    line.then(_call("unit_tester", 275, 4))
    if tests:
        prompt += draw.between(500, 800) if draw.chance(variant.long_tests) else -draw.between(140, 190)
        answers = [draw.between(42, 180) if draw.chance(0.07) else 22 for _ in range(tests)]
        line.then(*[_call("evaluate", prompt + draw.between(-6, 8), answer) for answer in answers])
    line.then(_call("unit_tester", 278, 4))


def _single(kind: str, draw: _Draw) -> TracedCall:
    if kind == "chat":
        return _call("chat", draw.skewed(600, 0.9, 200, 6000), draw.skewed(220, 0.6, 10, 800))
    return _call("rag", draw.near(3500, 900, 1200, 7000), draw.skewed(120, 0.5, 10, 500))


def _call(stage: str, prompt: int, output: int) -> TracedCall:
    return TracedCall(stage, prompt, output, prefix=((stage, _TEMPLATES[stage]),))


def _candidate(which: int, base: Database, prompt: int, output: int) -> TracedCall:
    return TracedCall("candidate", prompt, output, prefix=_prefix(f"candidate-{which}", base))


def _prefix(template: str, base: Database) -> tuple[tuple[str, int], ...]:
    """What is the same for all, then what is the same for all of a database."""
    static = _TEMPLATES[template]
    return (template, static), (f"{template}/{base.name}", static + _SCHEMA)
