"""Confidence and fairness, against values known from tables or by hand."""

import pytest

from coordinator.simulator.spread import half_width, jain, student


@pytest.mark.parametrize(("freedom", "quantile"), [(1, 12.706), (4, 2.776), (11, 2.201), (19, 2.093), (60, 2.000)])
def test_students_t_is_that_of_the_tables(freedom: int, quantile: float) -> None:
    assert student(freedom) == pytest.approx(quantile, abs=0.003)


def test_the_half_width_of_a_mean() -> None:
    assert half_width([1.0, 2.0, 3.0]) == pytest.approx(4.303 / 3**0.5, rel=1e-3)
    assert half_width([5.0, 5.0]) == half_width([5.0]) == 0.0


def test_jains_fairness() -> None:
    assert jain([0.5, 0.5]) == jain([0.0, 0.0, 0.0]) == 1.0
    assert jain([1.0, 0.0, 0.0, 0.0]) == 0.25
    assert jain([1.0, 0.5]) == pytest.approx(0.9)
