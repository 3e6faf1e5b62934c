"""What a submission is told that a limit refuses."""

from typing import Any

import pytest

from common.store.limits import Full
from coordinator.admission import refusal


def told(limit: str, wait_ms: int = 8_000, chance: float = 0.5) -> dict[str, Any]:
    return refusal("1-0", Full(limit, 21, 20, wait_ms), "acme", chance)


@pytest.mark.parametrize(
    ("limit", "field", "error"),
    [
        ("workflows", "", "the cell runs 21 of 20 workflows; try again in 4.0 s"),
        ("queued", "", "21 requests wait in the cell's queues, of 20 at most; try again in 4.0 s"),
        ("submissions", "", "21 submissions wait for an answer, of 20 at most; try again in 4.0 s"),
        ("tenant_workflows", "tenant", "tenant acme runs 21 of 20 workflows; try again in 4.0 s"),
        ("tenant_tokens_per_s", "tenant", "tenant acme has used up its 20 tokens per second; try again in 8.4 s"),
    ],
)
def test_each_limit_is_named(limit: str, field: str, error: str) -> None:
    found = told(limit)
    assert (found["workflow"], found["field"], found["error"]) == ("1-0", field, error)
    assert error.endswith(f" {found['retry_after_s']:.1f} s")


@pytest.mark.parametrize(
    ("wait_ms", "chance", "retry_s"), [(0, 0.9, 1), (8_000, 0, 1), (8_000, 1, 8), (60_000, 1, 60), (90_000, 1, 60)]
)
def test_the_time_is_spread_within_bounds(wait_ms: int, chance: float, retry_s: float) -> None:
    assert told("workflows", wait_ms, chance)["retry_after_s"] == retry_s


@pytest.mark.parametrize(("wait_ms", "chance", "retry_s"), [(0, 0, 1), (600_000, 0, 600), (600_000, 1, 660)])
def test_a_debt_of_tokens_takes_its_time(wait_ms: int, chance: float, retry_s: float) -> None:
    assert told("tenant_tokens_per_s", wait_ms, chance)["retry_after_s"] == retry_s
