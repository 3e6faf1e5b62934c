"""Clusters to simulate: by name, or from a YAML file that lists instances by profile and changes its figures."""

from dataclasses import fields, replace
from pathlib import Path

import yaml

from common.errors import InvalidDocument
from common.model import InstanceProfile, Json
from common.profiles import PROFILES

CLUSTERS = {
    "hetero1": ("a100", "a100", "a6000", "l40s"),
    "hetero2": ("a100", "a6000", "a100", "a6000"),
    "mixed12": ("a100",) * 4 + ("a6000",) * 4 + ("l40s",) * 4,
}
MOST_INSTANCES = 256
_FIGURES = {field.name for field in fields(InstanceProfile)} - {"name"}


def load_cluster(wanted: str) -> list[InstanceProfile]:
    """A named cluster, or that of a YAML file: a list of profile names, or of mappings such as
    {profile: a100, count: 2, kv_tokens: 50000}, where other figures replace the profile's. Raises InvalidDocument.
    """
    if wanted in CLUSTERS:
        return [PROFILES[name] for name in CLUSTERS[wanted]]
    path = Path(wanted)
    if not path.is_file():
        raise InvalidDocument("cluster", f"{wanted!r} is neither a file nor one of {', '.join(CLUSTERS)}")
    try:
        entries = yaml.safe_load(path.read_text("utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InvalidDocument(wanted, f"is not YAML: {error}") from None
    if not isinstance(entries, list) or not entries:
        raise InvalidDocument(wanted, "must be a list of instances with at least one")
    found = [profile for at, entry in enumerate(entries) for profile in _instances(f"{wanted}[{at}]", entry)]
    if len(found) > MOST_INSTANCES:
        raise InvalidDocument(wanted, f"has {len(found)} instances; at most {MOST_INSTANCES}")
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
            raise InvalidDocument(f"{where}.{name}", f"is not one of {', '.join(sorted(_FIGURES))}")
        _check(f"{where}.{name}", value, whole=name.endswith(("tokens", "batch")))
    return [replace(PROFILES[given["profile"].lower()], **changes)] * count


def _check(where: str, value: Json, *, whole: bool) -> None:
    if isinstance(value, bool) or not isinstance(value, int if whole else int | float) or not 0 < value < 1e12:
        kind = "a whole number" if whole else "a number"
        raise InvalidDocument(where, f"must be {kind} above 0, not {value!r}")
