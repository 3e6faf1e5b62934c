"""The policies by name. The same records run live and in the simulator."""

from collections.abc import Mapping

from common.errors import InvalidDocument
from common.policy.rules import (
    FCFS,
    GROUPS,
    LAXITY,
    LEAST_COST,
    LEAST_WAIT,
    LEAST_WORK,
    PATH,
    ROUND_ROBIN,
    SCORE,
    SERVED,
    TWO_CHOICES,
    URGENCY,
    WORKFLOW_FCFS,
    Rules,
    Weights,
)  # fmt: skip

BETA = 100.0
"""Of the paper's score, in s^2."""
RATIOS = tuple(10.0 ** (3.0 * step / 15.0) for step in range(16))
"""Values of r, in s^2, of which the best is sought."""

POLICIES: dict[str, Rules] = {
    "vllm": Rules(ROUND_ROBIN, FCFS),
    "ray": Rules(TWO_CHOICES, FCFS, late=True, most_ongoing=5),
    "vtc": Rules(ROUND_ROBIN, SERVED),
    "qlm": Rules(LEAST_WAIT, GROUPS),
    "llf": Rules(LEAST_WORK, URGENCY),
    "llf-workflow": Rules(LEAST_WORK, LAXITY),
    "low": Rules(LEAST_WORK, WORKFLOW_FCFS),
    "hexgen": Rules(SCORE, URGENCY),
    "hexgen-no-wb": Rules(ROUND_ROBIN, URGENCY),
    "hexgen-no-pq": Rules(SCORE, FCFS),
    "flow": Rules(LEAST_COST, PATH, late=True, budgets_along_path=True),
}
DEFAULT = "flow"


def names() -> list[str]:
    """All policies."""
    return list(POLICIES)


def binds_late(name: str) -> bool:
    """Whether requests wait in the line under that policy; False for one that is not known here."""
    return name in POLICIES and POLICIES[name].late


def takes(name: str) -> tuple[str, ...]:
    """The numbers that a policy has: of its score, of its line, and those that any has. Nothing if unknown."""
    if name not in POLICIES:
        return ()
    score = ("alpha", "r", "floor_s") if POLICIES[name].dispatch == SCORE else ()
    line = Weights._fields if POLICIES[name].dispatch == LEAST_COST else ()
    return (*score, *line, "fairness", "hopeless_last")


def used(name: str, parameters: Mapping[str, float]) -> dict[str, float]:
    """Those of the numbers that a policy has."""
    return {field: value for field, value in parameters.items() if field in takes(name)}


def policy(name: str, parameters: Mapping[str, float] | None = None) -> Rules:
    """The policy of that name with other numbers: `alpha` (0..1) or `r` and `floor_s` of the score, `fairness`,
    `hopeless_last` (0 or 1), or any of `Weights`. Raises InvalidDocument naming the field, also of a number that the
    policy does not have.
    """
    if name not in POLICIES:
        raise InvalidDocument("policy", f"{name!r} is not one of {', '.join(names())}")
    rules = POLICIES[name]
    for field, value in (parameters or {}).items():
        if field not in takes(name):
            raise InvalidDocument(
                field, f"is no parameter of policy {name}: leave it out; it takes {', '.join(takes(name))}"
            )
        rules = _with(rules, field, value)
    return rules


def score_ratio(alpha: float) -> float:
    """The paper's two numbers as the one that counts: r = beta (1 - alpha) / alpha, in s^2."""
    return BETA * (1.0 - alpha) / max(alpha, 1e-9)


def alpha_of(ratio: float) -> float:
    """The alpha of a `score_ratio`."""
    return BETA / (BETA + ratio)


def _with(rules: Rules, field: str, value: float) -> Rules:
    if not 0.0 <= value < 1e9:
        raise InvalidDocument(field, f"must be a number from 0, not {value}")
    if field == "alpha":
        if value > 1.0:
            raise InvalidDocument("alpha", f"{value} must be between 0 and 1")
        return rules._replace(r=score_ratio(value))
    if field == "hopeless_last":
        return rules._replace(hopeless_last=value > 0.0)
    if field == "fairness":
        return rules._replace(fairness=value)
    if field == "r":
        return rules._replace(r=value)
    if field == "floor_s":
        if value == 0.0:
            raise InvalidDocument("floor_s", "must be above 0")
        return rules._replace(floor_s=value)
    return rules._replace(weights=rules.weights._replace(**{field: value}))
