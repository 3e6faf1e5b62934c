"""The racing league: seeded rows for `racing.sql`. Writes into the connection it is given, opens nothing."""

import random
import sqlite3
from dataclasses import dataclass, field
from typing import Any

Row = tuple[Any, ...]

_CIRCUITS = (
    ("Brennerwald Ring", "Kaltenau", "Austria"), ("Costa Verde", "Marevila", "Portugal"),
    ("Dune Park", "Al Sahil", "Oman"), ("Eagle Rock Speedway", "Cedar Falls", "United States"),
    ("Fjord Circuit", "Nordvik", "Norway"), ("Grand Canal", "Portolago", "Italy"),
    ("Harbour Street", "Porthaven", "Australia"), ("Isar Loop", "Grünfeld", "Germany"),
    ("Jade Hills", "Minghu", "China"), ("Kingsmoor", "Ashby", "Great Britain"), ("Lago Alto", "Altamira", "Mexico"),
    ("Mont Clair", "Valbrune", "France"), ("Nagahama", "Nagahama", "Japan"),
    ("Ostrov Park", "Velky Ostrov", "Czechia"),
)  # fmt: skip
_TEAMS = (
    ("Arrowhead", "Great Britain", "Vulcan"), ("Bianchi Corse", "Italy", "Bianchi"),
    ("Cobalt Racing", "Germany", "Stahl"), ("Delta Motorsport", "France", "Vulcan"),
    ("Everest", "Austria", "Stahl"), ("Falcon GP", "United States", "Liberty"),
    ("Granite Works", "Great Britain", "Vulcan"), ("Hayashi", "Japan", "Hayashi"),
    ("Ibex", "Switzerland", "Bianchi"), ("Juniper", "Norway", "Stahl"),
)  # fmt: skip
_DRIVERS = (
    ("Luca", "Amato", "Italy"), ("Piet", "Brouwer", "Netherlands"), ("Sam", "Carter", "Great Britain"),
    ("Jules", "Duval", "France"), ("Erik", "Eriksen", "Norway"), ("Tomas", "Fiala", "Czechia"),
    ("Ana", "Garcia", "Mexico"), ("Kenji", "Hayashi", "Japan"), ("Oliver", "Irving", "Great Britain"),
    ("Max", "Jansen", "Germany"), ("Nora", "Keller", "Austria"), ("Wei", "Liu", "China"),
    ("Marco", "Moretti", "Italy"), ("Tyler", "Nash", "United States"), ("Paulo", "Oliveira", "Portugal"),
    ("Remy", "Petit", "France"), ("Jack", "Quinn", "Australia"), ("Mika", "Ruuska", "Finland"),
    ("Lena", "Schulz", "Germany"), ("Ryo", "Tanaka", "Japan"), ("Hugo", "Ulrich", "Switzerland"),
    ("Diego", "Vargas", "Mexico"), ("Ben", "Walsh", "Great Britain"), ("Ines", "Ximenes", "Portugal"),
    ("Omar", "Yousef", "Oman"), ("Filip", "Zeman", "Czechia"),
)  # fmt: skip
_POINTS = (20, 15, 12, 10, 8, 6, 4, 3, 2, 1)
_SEASONS = (2020, 2021, 2022, 2023)
_ROUNDS = 12
_FINISHED, _LAPPED, _MECHANICAL, _COLLISION, _DISQUALIFIED, _DID_NOT_START = range(6)


@dataclass(frozen=True, slots=True)
class _Race:
    id: int
    laps: int
    lap_ms: int
    wet: bool


@dataclass(frozen=True, slots=True)
class _Entry:
    """One car's race; `time_ms` is None where it is not classified."""

    driver: int
    team: int
    grid: int
    laps: int
    time_ms: int | None
    fastest_ms: int | None
    status: int


@dataclass(frozen=True, slots=True)
class _Tables:
    seats: list[Row] = field(default_factory=list)
    races: list[Row] = field(default_factory=list)
    qualifying: list[Row] = field(default_factory=list)
    results: list[Row] = field(default_factory=list)
    pit_stops: list[Row] = field(default_factory=list)
    penalties: list[Row] = field(default_factory=list)


def build(connection: sqlite3.Connection, rng: random.Random) -> None:
    """Fill the schema of `racing.sql` from `rng`."""
    circuits: list[Row] = [
        (number, *place, rng.randrange(3_300, 7_000, 7), rng.randint(9, 23), rng.randint(2, 2_200))
        for number, place in enumerate(_CIRCUITS, 1)
    ]
    teams: list[Row] = [(number, *team, rng.randint(1952, 2016)) for number, team in enumerate(_TEAMS, 1)]
    drivers: list[Row] = [
        (number, first, last, last[:3].upper(), country, _born(rng))
        for number, (first, last, country) in enumerate(_DRIVERS, 1)
    ]
    tables = _Tables()
    _race_seasons(rng, circuits, tables)
    named = {"circuits": circuits, "teams": teams, "drivers": drivers}
    named |= {name: getattr(tables, name) for name in _Tables.__dataclass_fields__}
    for name, rows in named.items():
        connection.executemany(f"INSERT INTO {name} VALUES ({', '.join('?' * len(rows[0]))})", rows)


def _born(rng: random.Random) -> str:
    return f"{rng.randint(1981, 2003)}-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}"


def _race_seasons(rng: random.Random, circuits: list[Row], tables: _Tables) -> None:
    skill = [rng.gauss(0, 1) for _ in _DRIVERS]
    car = [rng.gauss(0, 1) for _ in _TEAMS]
    for season in _SEASONS:
        line_up = _line_up(rng, season)
        tables.seats.extend(line_up)
        racers = [
            (driver, team, skill[driver - 1] + 1.3 * car[team - 1]) for _, driver, team, role in line_up if role == "R"
        ]
        for round_, circuit in enumerate(rng.sample(circuits, _ROUNDS), 1):
            row = _race_row(rng, season, round_, circuit, len(tables.races) + 1)
            tables.races.append(row)
            # 15 ms a metre is 240 km/h, this league's pace on a dry day.
            wet = row[7] != "D"
            _hold(rng, _Race(row[0], row[6], int(circuit[4] * (17 if wet else 15)), wet), racers, tables)


def _line_up(rng: random.Random, season: int) -> list[Row]:
    """Two race seats a team, most of them kept from year to year; the drivers left over test."""
    order = sorted(range(1, len(_DRIVERS) + 1), key=lambda driver: driver + rng.gauss(0, 3))
    race_seats = [(season, driver, place // 2 + 1, "R") for place, driver in enumerate(order[:20])]
    return race_seats + [(season, driver, rng.randint(1, len(_TEAMS)), "T") for driver in order[20:]]


def _race_row(rng: random.Random, season: int, round_: int, circuit: Row, race_id: int) -> Row:
    weather = rng.choices(("D", "W", "M"), (75, 15, 10))[0]
    day = f"{season}-{3 + (round_ - 1) // 2:02}-{7 + 14 * ((round_ - 1) % 2):02}"
    return race_id, season, round_, circuit[0], f"{circuit[3]} Grand Prix {season}", day, 240_000 // circuit[4], weather


def _hold(rng: random.Random, race: _Race, racers: list[Row], tables: _Tables) -> None:
    """One weekend: qualifying, the race and its pit stops and penalties."""
    order = sorted(racers, key=lambda racer: -(racer[2] + rng.gauss(0, 0.9)))
    for place, (driver, _team, _pace) in enumerate(order, 1):
        best = race.lap_ms * 0.97 * (1 + 0.0011 * place + rng.uniform(0, 0.0009))
        second, third = int(best + 350) if place <= 15 else None, int(best) if place <= 10 else None
        tables.qualifying.append((race.id, driver, place, int(best + 700), second, third))
    entries = [_drive(rng, race, racer, grid, tables) for grid, racer in enumerate(order, 1)]
    entries.sort(key=lambda entry: (entry.time_ms is None, entry.time_ms or 0))
    tables.results.extend(_result(race, place, entry, entries[0]) for place, entry in enumerate(entries, 1))


def _result(race: _Race, place: int, entry: _Entry, winner: _Entry) -> Row:
    start = (race.id, entry.driver, entry.team, entry.grid)
    if entry.time_ms is None:
        return (*start, None, 0, entry.laps, None, entry.fastest_ms, entry.status)
    lapped = entry.time_ms - (winner.time_ms or 0) > race.lap_ms
    points = _POINTS[place - 1] if place <= len(_POINTS) else 0
    status = _LAPPED if lapped else entry.status
    return (*start, place, points, entry.laps - lapped, entry.time_ms, entry.fastest_ms, status)


def _drive(rng: random.Random, race: _Race, racer: Row, grid: int, tables: _Tables) -> _Entry:
    driver, team, pace = racer
    start = 0 if rng.random() < 0.03 else grid
    status = rng.choices(range(6), (84, 0, 8, 14 if race.wet else 6, 1, 1))[0]
    broken_off = {
        _DID_NOT_START: 0,
        _MECHANICAL: rng.randint(1, race.laps - 1),
        _COLLISION: rng.randint(0, race.laps // 2),
    }
    laps = broken_off.get(status, race.laps)
    lost = _pit_stops(rng, race, driver, laps, tables) + (_penalty(rng, race, driver, tables) if laps else 0)
    lap = race.lap_ms * (1.012 - 0.0032 * (pace + rng.gauss(0, 0.7)))
    fastest = int(lap * rng.uniform(0.968, 0.982)) if laps else None
    time_ms = int(lap * laps + lost + 900 * grid) if status == _FINISHED else None
    return _Entry(driver, team, start, laps, time_ms, fastest, status)


def _penalty(rng: random.Random, race: _Race, driver: int, tables: _Tables) -> int:
    """Now and then a penalty; the milliseconds it costs."""
    if rng.random() >= 0.06:
        return 0
    seconds, reason = rng.choice((5, 5, 10, 20)), rng.choice(("SPEED", "TRACK", "START", "CRASH"))
    tables.penalties.append((len(tables.penalties) + 1, race.id, driver, seconds, reason))
    return 1000 * seconds


def _pit_stops(rng: random.Random, race: _Race, driver: int, laps: int, tables: _Tables) -> int:
    """The stops made within `laps`; the milliseconds they cost."""
    stops = rng.choices((1, 2, 3), (45, 45, 10))[0] + race.wet
    tyres = ("I", "W", "M") if race.wet else ("S", "M", "H")
    lost = 0
    for number, lap in enumerate(sorted(rng.sample(range(4, race.laps - 3), stops)), 1):
        if lap >= laps:
            break
        trouble = rng.expovariate(1 / 9_000) if rng.random() < 0.06 else 0
        cost = int(rng.gauss(21_500, 900) + trouble)
        tables.pit_stops.append((race.id, driver, number, lap, cost, rng.choice(tyres)))
        lost += cost
    return lost
