"""How sure a mean over a few seeds is, and how even shares are. Knows numbers only."""

from collections.abc import Sequence
from math import sqrt
from statistics import stdev

_QUANTILES = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
"""Student's t of 97.5 %, for 1 to 10 degrees of freedom."""
_NORMAL = 1.959964


def half_width(values: Sequence[float]) -> float:
    """Half of the 95 % confidence interval of the mean (Student's t); 0 for a single value."""
    count = len(values)
    return student(count - 1) * stdev(values) / sqrt(count) if count > 1 else 0.0


def student(freedom: int) -> float:
    """Student's t of 97.5 %: from a table, and beyond it by the first terms of its series about the normal's."""
    if freedom <= len(_QUANTILES):
        return _QUANTILES[freedom - 1]
    z = _NORMAL
    return z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)


def jain(shares: Sequence[float]) -> float:
    """Jain's fairness of shares: 1 where all are equal, 1/n where one has all; equal too are shares that are all 0."""
    squares = sum(share * share for share in shares)
    return sum(shares) ** 2 / (len(shares) * squares) if squares else 1.0
