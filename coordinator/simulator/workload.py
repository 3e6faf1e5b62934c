"""Workflows that arrive: drawn from a trace, laid out as arrays for the simulator's loop. Reproducible by its seed."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from common.enginerecords import NONE
from common.errors import InvalidDocument
from coordinator.simulator.expectation import Expectation, rounds
from coordinator.simulator.records import BLOCK, CALL, WORKFLOW, Rows
from coordinator.simulator.trace import Trace

ARRIVALS = ("poisson", "gamma", "step")
GAMMA_CV = 3.0
STEP = 3.0
"""The rate after a step, over that before it; the mean is the rate asked for."""


@dataclass(frozen=True, slots=True)
class Workload:
    """children: positions of calls, of which each call has a slice; roots: those that start with their workflow.

    dice: two numbers in [0, 1) for each call, for policies that leave something to chance.
    """

    calls: Rows
    workflows: Rows
    blocks: Rows
    children: NDArray[np.int64]
    roots: NDArray[np.int64]
    dice: NDArray[np.float64]


def arrival_times(kind: str, count: int, rate: float, rng: np.random.Generator) -> NDArray[np.float64]:
    """When workflows arrive, in s: poisson, gamma (bursts, coefficient of variation 3) or step (half way, three times
    the rate of before). Raises InvalidDocument.
    """
    if not 0.0 < rate < np.inf:
        raise InvalidDocument("rate", f"must be workflows per second above 0, not {rate}")
    if count < 1:
        raise InvalidDocument("workflows", f"must be at least 1, not {count}")
    if kind not in ARRIVALS:
        raise InvalidDocument("arrivals", f"{kind!r} is not one of {', '.join(ARRIVALS)}")
    if kind == "gamma":
        gaps = rng.gamma(GAMMA_CV**-2, GAMMA_CV**2 / rate, count)
    else:
        gaps = rng.exponential(1.0 / rate, count)
    if kind == "step":
        slow = (1.0 + 1.0 / STEP) / 2.0
        gaps[: count // 2] /= slow
        gaps[count // 2 :] /= slow * STEP
        gaps *= gaps.size / rate / gaps.sum() if gaps.sum() else 1.0
    times: NDArray[np.float64] = np.cumsum(gaps)
    return times


def draw(
    trace: Trace, expectation: Expectation, *, count: int, rate: float, seed: int, slo_s: float,
    arrivals: str = "poisson",
) -> Workload:  # fmt: skip
    """`count` workflows drawn from a trace. Raises InvalidDocument."""
    if not 0.0 < slo_s < np.inf:
        raise InvalidDocument("slo", f"must be seconds above 0, not {slo_s}")
    rng = np.random.default_rng(seed)
    chosen = rng.integers(0, len(trace), count)
    workflows = np.zeros(count, WORKFLOW)
    workflows["arrival"] = arrival_times(arrivals, count, rate, rng)
    workflows["deadline"] = workflows["arrival"] + slo_s
    layout = _Layout(trace, expectation)
    for number, which in enumerate(chosen):
        workflows[number]["left"] = len(trace[which])
        layout.add(number, int(which))
    return layout.workload(workflows, rng)


class _Layout:
    """Lays workflows out one after the other."""

    def __init__(self, trace: Trace, expectation: Expectation) -> None:
        self._trace, self._expectation = trace, expectation
        self._rows: list[tuple[float, ...]] = []
        self._blocks: list[tuple[int, int, int]] = []
        self._keys: dict[str, int] = {}
        self._children: list[int] = []
        self._roots: list[int] = []

    def add(self, number: int, which: int) -> None:
        workflow, first = self._trace[which], len(self._rows)
        children: list[list[int]] = [[] for _ in workflow]
        for at, call in enumerate(workflow):
            for before in call.needs:
                children[before].append(first + at)
            if not call.needs:
                self._roots.append(first + at)
        expected = self._expectation
        for call, times, after in zip(workflow, rounds(workflow), children, strict=True):
            figures = (
                expected.tokens[call.stage],
                expected.stage_s[call.stage],
                expected.rest_s(call.stage, times),
                call.tool_s,
            )
            leaf = self._leaf(number, call.prefix)
            counts = (leaf, number, len(call.needs), len(self._children), len(after))
            self._rows.append((call.prompt_tokens, call.output_tokens, *counts, *figures))
            self._children += after

    def _leaf(self, number: int, prefix: Sequence[tuple[str, int]]) -> int:
        leaf, start = NONE, 0
        for key, end in prefix:
            name = f"{number}{key}" if key.startswith(".") else f"/{key}"
            if name not in self._keys:
                self._keys[name] = len(self._blocks)
                self._blocks.append((end, end - start, leaf))
            leaf, start = self._keys[name], end
        return leaf

    def workload(self, workflows: Rows, rng: np.random.Generator) -> Workload:
        calls = np.zeros(len(self._rows), CALL)
        names = ["prompt_tokens", "output_tokens", "leaf", "workflow", "needs", "first_child", "children"]
        names += ["expected_tokens", "stage_s", "rest_s", "tool_s"]
        for name, column in zip(names, zip(*self._rows, strict=True), strict=True):
            calls[name] = column
        calls["instance"], calls["started_at"] = NONE, -1.0
        blocks = np.array(self._blocks or [(1, 1, NONE)], BLOCK)
        children, roots = np.array(self._children, np.int64), np.array(self._roots, np.int64)
        return Workload(calls, workflows, blocks, children, roots, rng.random((len(calls), 2)))
