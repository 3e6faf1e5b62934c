"""How many tokens each kind of Text-to-SQL stage generates: published means and 95th percentiles, drawn from a seed."""

import math
import random
from dataclasses import dataclass

_Z95 = 1.645
_TAIL = 0.08


@dataclass(frozen=True, slots=True)
class Lengths:
    """Output tokens of a kind of stage: mean and 95th percentile over recorded Llama-3.1-70B workflows."""

    mean: float
    p95: float

    def draw(self, rng: random.Random) -> int:
        """A length with this mean and 95th percentile, at least 1 token.

        Lognormal where one exists: none has p95 > 3.87 mean. There, a few long answers among many short ones.
        """
        spread = _Z95**2 - 2 * math.log(self.p95 / self.mean)
        if spread >= 0:
            sigma = _Z95 - math.sqrt(spread)
            return max(1, round(rng.lognormvariate(math.log(self.mean) - sigma**2 / 2, sigma)))
        return max(1, round(self._long_or_short(rng)))

    def _long_or_short(self, rng: random.Random) -> float:
        # 5 of the 8 per cent that are long lie above p95: 3/8 up the range 0.85..1.25, whose mean is 1.05.
        if rng.random() < _TAIL:
            return self.p95 * rng.uniform(0.85, 1.25)
        return (self.mean - _TAIL * 1.05 * self.p95) / (1 - _TAIL) * rng.uniform(0.8, 1.2)


RETRIEVER = Lengths(7, 28)
KEYWORDS = Lengths(49, 73)
CANDIDATE = Lengths(696, 1010)
REVISE = Lengths(156, 1009)
UNIT_TEST = Lengths(104, 134)
EVALUATE = Lengths(30, 73)
