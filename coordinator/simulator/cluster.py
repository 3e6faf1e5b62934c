"""Clusters to simulate: by name, or from a YAML file that lists instances by profile and changes its figures.

A file may also hold several clusters with what each costs, to choose from. Simulates nothing.
"""

import math
from dataclasses import dataclass, fields, replace
from pathlib import Path

import yaml

from common.errors import InvalidDocument
from common.model import InstanceProfile, Json
from common.profiles import PROFILES
from coordinator.simulator.records import MOST_SEQUENCES

CLUSTERS = {
    "hetero1": ("a100", "a100", "a6000", "l40s"),
    "hetero2": ("a100", "a6000", "a100", "a6000"),
    "mixed12": ("a100",) * 4 + ("a6000",) * 4 + ("l40s",) * 4,
}
MOST_INSTANCES = 256
_FIGURES = {field.name for field in fields(InstanceProfile)} - {"name"}
_KEYS = _FIGURES | {"profile", "count"}


@dataclass(frozen=True, slots=True)
class Candidate:
    """A cluster one may have, and what it costs an hour, None if that is not known."""

    name: str
    cluster: tuple[InstanceProfile, ...]
    price: float | None = None


def load_cluster(wanted: str) -> list[InstanceProfile]:
    """A named cluster, or that of a YAML file: a list of profile names, or of mappings such as
    {profile: a100, count: 2, kv_tokens: 50000}, where other figures replace the profile's. Raises InvalidDocument.
    """
    if wanted in CLUSTERS:
        return [PROFILES[name] for name in CLUSTERS[wanted]]
    document = _document(wanted)
    if isinstance(document, dict):
        raise InvalidDocument(wanted, "must be a list of instances; a file of several clusters is for `plan`")
    return _cluster(wanted, document)


def load_candidates(wanted: str) -> list[Candidate]:
    """Clusters to choose from: one by its name or file, with "=PRICE" after it if it has one, or all of a YAML file
    such as {small: {price_per_hour: 8.5, instances: [a100, l40s]}}. Raises InvalidDocument.
    """
    name, _, price = wanted.rpartition("=")
    if name:
        return [Candidate(name, tuple(load_cluster(name)), _price(wanted, _number(price)))]
    if wanted in CLUSTERS:
        return [Candidate(wanted, tuple(load_cluster(wanted)))]
    document = _document(wanted)
    if not isinstance(document, dict) or not document:
        return [Candidate(wanted, tuple(_cluster(wanted, document)))]
    return [_candidate(f"{wanted}: {name}", str(name), entry) for name, entry in document.items()]


def _candidate(where: str, name: str, entry: Json) -> Candidate:
    if not isinstance(entry, dict) or not {"instances"} <= set(entry) <= {"instances", "price_per_hour"}:
        raise InvalidDocument(where, "must be a mapping with `instances` and, if known, `price_per_hour`")
    price = _price(f"{where}.price_per_hour", entry["price_per_hour"]) if "price_per_hour" in entry else None
    return Candidate(name, tuple(_cluster(f"{where}.instances", entry["instances"])), price)


def _number(text: str) -> Json:
    try:
        return float(text)
    except ValueError:
        return text


def _price(where: str, value: Json) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise InvalidDocument(where, f"the price must be a number from 0, in any currency an hour, not {value!r}")
    return float(value)


def _document(wanted: str) -> Json:
    path = Path(wanted)
    if not path.is_file():
        raise InvalidDocument("cluster", f"{wanted!r} is neither a file nor one of {', '.join(CLUSTERS)}")
    try:
        return yaml.safe_load(path.read_text("utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        mark = getattr(error, "problem_mark", None)
        at = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise InvalidDocument(wanted, f"is not YAML: {getattr(error, 'problem', None) or error}{at}") from None
    except OSError as error:
        raise InvalidDocument(wanted, f"cannot be read: {error.strerror}") from None


def _cluster(where: str, entries: Json) -> list[InstanceProfile]:
    if not isinstance(entries, list) or not entries:
        raise InvalidDocument(where, "must be a list of instances with at least one")
    found = [profile for at, entry in enumerate(entries) for profile in _instances(f"{where}[{at}]", entry)]
    if len(found) > MOST_INSTANCES:
        raise InvalidDocument(where, f"has {len(found)} instances; at most {MOST_INSTANCES}")
    return found


def _instances(where: str, entry: Json) -> list[InstanceProfile]:
    given = {"profile": entry} if isinstance(entry, str) else entry
    if not isinstance(given, dict) or str(given.get("profile")).lower() not in PROFILES:
        known = ", ".join(sorted(PROFILES))
        raise InvalidDocument(where, f"must be a profile or a mapping with `profile`, one of {known}")
    count = given.get("count", 1)
    if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= MOST_INSTANCES:
        raise InvalidDocument(f"{where}.count", f"must be a whole number from 1 to {MOST_INSTANCES}, not {count!r}")
    changes = {name: value for name, value in given.items() if name not in ("profile", "count")}
    for name, value in changes.items():
        if name not in _FIGURES:
            raise InvalidDocument(f"{where}.{name}", f"is not one of {', '.join(sorted(_KEYS))}")
        _check(f"{where}.{name}", value, whole=name.endswith(("tokens", "batch")))
    if changes.get("max_batch", 0) > MOST_SEQUENCES:
        raise InvalidDocument(f"{where}.max_batch", f"must be at most {MOST_SEQUENCES}, not {changes['max_batch']}")
    return [replace(PROFILES[given["profile"].lower()], **changes)] * count


def _check(where: str, value: Json, *, whole: bool) -> None:
    if isinstance(value, bool) or not isinstance(value, int if whole else int | float) or not 0 < value < 1e12:
        kind = "a whole number" if whole else "a number"
        raise InvalidDocument(where, f"must be {kind} above 0, not {value!r}")
