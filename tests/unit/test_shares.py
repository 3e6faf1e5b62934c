"""What tenants have had, between two looks at the store, and what it does to their requests' keys."""

from random import Random

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


def test_the_least_is_found_whoever_is_charged() -> None:
    chance, names = Random(1), [f"tenant-{number}" for number in range(12)]
    had = {name: chance.randrange(100) for name in names[:8]}
    shares = Shares(had, names[:4])
    active = set(names[:4])
    for _ in range(300):
        name, tokens = chance.choice(names), chance.randrange(1, 50)
        least = min(had[other] for other in active)
        assert shares.least == least
        had[name] = (had.get(name, 0) if name in active else max(had.get(name, 0), least)) + tokens
        active.add(name)
        shares.charge(name, tokens)
        assert shares.of(name) == had[name]
