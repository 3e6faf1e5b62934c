"""Tenants' shares: virtual counters of what each has been served (VTC, arXiv 2401.00588), weighted. Plain functions.

A counter counts tokens over the tenant's weight. One that becomes active again is lifted to the least of the others, so
that nobody saves up while away.
"""

INPUT_PRICE = 1.0
OUTPUT_PRICE = 2.0
TOKENS_PER_S = 1000.0
"""A counter as a queue's key: so many tokens are one second, so that milliseconds still tell tokens apart."""


def price(prompt_tokens: float, output_tokens: float, weight: float) -> float:
    """What a call adds to its tenant's counter."""
    return (INPUT_PRICE * prompt_tokens + OUTPUT_PRICE * output_tokens) / weight


def behind_s(counter: float, least_active: float, tokens_per_s: float) -> float:
    """The time the cluster takes for what a tenant has had more than the one served least.

    tokens_per_s: prefill of the whole cluster.
    """
    return max(counter - least_active, 0.0) / tokens_per_s
