"""What tenants have had, between two looks at the store, and what it does to their requests' keys."""

from coordinator.shares import Shares


def test_a_tenant_that_was_away_counts_as_the_least_of_the_others() -> None:
    shares = Shares({"a": 500, "b": 900, "away": 100, "rich": 2000}, ["a", "b"])
    assert (shares.least, shares.of("a"), shares.of("away"), shares.of("new"), shares.of("rich")) == (
        500, 500, 500, 500, 2000,
    )  # fmt: skip
    shares.charge("away", 50)
    assert (shares.of("away"), shares.least) == (550, 500)


def test_where_nobody_is_active_each_keeps_what_it_has_had() -> None:
    shares = Shares({"a": 500})
    assert (shares.least, shares.of("a"), shares.of("b")) == (0, 500, 0)
