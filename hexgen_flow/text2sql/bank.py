"""The bank: seeded rows for `bank.sql`. Writes into the connection it is given, opens nothing."""

import random
import sqlite3
from typing import Any

Row = tuple[Any, ...]

_REGIONS = ("Northmark", "Highfell", "Eastvale", "Lakeland", "Southmoor", "Westport")
_TOWNS = (
    "Aldbrook", "Birkham", "Carrow", "Dunmere", "Elmstead", "Farley", "Glenross", "Hartwick", "Inverley", "Jarrowby",
    "Kelstow", "Langmere", "Merriton", "Norbeck", "Oakhaven", "Penmoor", "Quarndon", "Ravensea", "Silverton", "Thornby",
    "Ulverley", "Vantage Hill", "Whitcombe", "Yarrowdale",
)  # fmt: skip
_MEN = ("Adam", "Boris", "Daniel", "Emil", "Felix", "Georg", "Hugo", "Ivan", "Jakub", "Karel", "Leon", "Marek", "Oskar")
_WOMEN = ("Anna", "Berta", "Clara", "Dora", "Eva", "Frida", "Greta", "Hana", "Irena", "Jana", "Lenka", "Marie", "Nina")
_FAMILIES = (
    "Adler", "Bartos", "Cerny", "Dolan", "Ebner", "Fiala", "Gruber", "Horak", "Jelinek", "Kolar", "Lang", "Maly",
    "Novotny", "Otter", "Pokorny", "Richter", "Sedlak", "Toman", "Urban", "Vesely", "Weber", "Zeman",
)  # fmt: skip
_SPENDING = (
    ("POS", "GROCERY"), ("POS", "TRAVEL"), ("POS", None), ("XFR", "RENT"), ("XFR", None), ("ATM", None), ("CSH", None),
)  # fmt: skip
_ACCOUNTS = 360
_CLIENTS = 420


def build(connection: sqlite3.Connection, rng: random.Random) -> None:
    """Fill the schema of `bank.sql` from `rng`."""
    accounts = _accounts(rng)
    holders = _holders(rng)
    tables = {
        "districts": _districts(rng),
        "branches": _branches(rng),
        "clients": _clients(rng),
        "accounts": accounts,
        "holders": holders,
        "cards": _cards(rng, holders),
        "loans": _loans(rng),
        "standing_orders": _standing_orders(rng),
        "transactions": _transactions(rng, accounts),
    }
    for name, rows in tables.items():
        connection.executemany(f"INSERT INTO {name} VALUES ({', '.join('?' * len(rows[0]))})", rows)


def _day(rng: random.Random, first_year: int, last_year: int) -> str:
    return f"{rng.randint(first_year, last_year)}-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}"


def _districts(rng: random.Random) -> list[Row]:
    rows: list[Row] = []
    for number, name in enumerate(_TOWNS, 1):
        jobless = round(rng.uniform(1.2, 9.5), 1)
        later = round(max(0.6, jobless + rng.uniform(-1.5, 1.5)), 1)
        salary, people = rng.randrange(24_000, 46_000, 50), rng.randint(18_000, 410_000)
        rows.append((number, name, _REGIONS[number % len(_REGIONS)], people, salary, jobless, later))
    return rows


def _branches(rng: random.Random) -> list[Row]:
    seats = list(range(1, len(_TOWNS) + 1)) + rng.sample(range(1, len(_TOWNS) + 1), 6)
    halls = ("Market Square", "Station", "Old Town", "Harbour", "Mill Street")
    return [
        (number, seat, f"{_TOWNS[seat - 1]} {rng.choice(halls)}", _day(rng, 1991, 2012))
        for number, seat in enumerate(seats, 1)
    ]


def _clients(rng: random.Random) -> list[Row]:
    rows: list[Row] = []
    for number in range(1, _CLIENTS + 1):
        sex = rng.choices((1, 2, 9), (48, 49, 3))[0]
        first = rng.choice(_MEN if sex == 1 else _WOMEN)
        rows.append((number, first, rng.choice(_FAMILIES), sex, _day(rng, 1940, 2004), rng.randint(1, len(_TOWNS))))
    return rows


def _accounts(rng: random.Random) -> list[Row]:
    return [
        (
            number,
            rng.randint(1, 30),
            rng.choices(("CUR", "SAV", "BUS"), (70, 20, 10))[0],
            rng.choices(("M", "W", "T"), (75, 17, 8))[0],
            _day(rng, 2013, 2021),
        )
        for number in range(1, _ACCOUNTS + 1)
    ]


def _holders(rng: random.Random) -> list[Row]:
    owners = rng.sample(range(1, _CLIENTS + 1), _ACCOUNTS)
    rows: list[Row] = [(account, owner, "O") for account, owner in enumerate(owners, 1)]
    for account, owner in enumerate(owners, 1):
        other = rng.randint(1, _CLIENTS)
        if other != owner and rng.random() < 0.3:
            rows.append((account, other, "A"))
    return rows


def _cards(rng: random.Random, holders: list[Row]) -> list[Row]:
    rows: list[Row] = []
    for account, client, role in holders:
        if rng.random() > (0.55 if role == "O" else 0.2):
            continue
        tier = rng.choices((1, 2, 3), (70, 22, 8))[0]
        year = rng.randint(2018, 2022)
        blocked = _day(rng, year + 1, 2023) if rng.random() < 0.15 else None
        rows.append((len(rows) + 1, account, client, tier, _day(rng, year, year), blocked))
    return rows


def _loans(rng: random.Random) -> list[Row]:
    rows: list[Row] = []
    for number, account in enumerate(sorted(rng.sample(range(1, _ACCOUNTS + 1), 170)), 1):
        payment, months = rng.randrange(800, 9_800, 20), rng.choice((12, 24, 36, 48, 60))
        year = rng.randint(2018, 2022)
        over = year + months // 12 < 2023
        state = rng.choices(("PD", "DF") if over else ("RN", "LT"), (85, 15))[0]
        rows.append((number, account, _day(rng, year, year), payment * months, months, payment, state))
    return rows


def _standing_orders(rng: random.Random) -> list[Row]:
    rows: list[Row] = []
    for number in range(1, 321):
        purpose = rng.choices(("RENT", "INSUR", "LOAN", "SAVE"), (4, 3, 2, 1))[0]
        bank = rng.choice(("AB", "CU", "KM", "NS", "PT", "VW"))
        rows.append((number, rng.randint(1, _ACCOUNTS), bank, rng.randrange(20_000, 1_500_000, 500), purpose))
    return rows


def _transactions(rng: random.Random, accounts: list[Row]) -> list[Row]:
    rows: list[Row] = []
    for account, _branch, kind, _statement, _opened in accounts:
        balance = rng.randrange(500_000, 6_000_000)
        income = "PENSION" if rng.random() < 0.15 else "SALARY"
        for day in sorted(_day(rng, 2022, 2023) for _ in range(rng.randint(6, 26))):
            direction, channel, amount, purpose = _movement(rng, kind, income)
            if direction == "D":
                amount = max(100, min(amount, balance - 1_000))
            balance += amount if direction == "C" else -amount
            rows.append((len(rows) + 1, account, day, direction, channel, amount, balance, purpose))
    return rows


def _movement(rng: random.Random, kind: str, income: str) -> Row:
    if kind == "SAV" and rng.random() < 0.4:
        return "C", "INT", rng.randrange(500, 90_000), None
    if rng.random() < 0.35:
        return "C", "XFR", rng.randrange(1_800_000, 5_200_000, 100), income if kind != "BUS" else None
    channel, purpose = rng.choice(_SPENDING)
    return "D", channel, rng.randrange(2_000, 1_400_000 if channel == "XFR" else 300_000, 10), purpose
