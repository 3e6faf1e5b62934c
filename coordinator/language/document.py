"""Text to document: YAML or JSON, bounded and without surprises. Knows nothing of what a definition means.

YAML is read by the core schema of version 1.2: `no` and `on` are text, dates are text, true and false are booleans.
"""

import hashlib
import json
import re
from typing import Any, NoReturn, cast

import yaml

from common.model import Json
from coordinator.language.errors import DefinitionError, clipped, dotted
from coordinator.language.values import DEEPEST_DOCUMENT, MIB, JsonFault, compact, to_json

DOCUMENT_BYTES = MIB
PLACE = "document"
_MOST_EVENTS = 100_000
_WANTED = "a mapping with name, stages and what the language allows beside"


def parse_document(text: str, wanted: str = _WANTED) -> dict[str, Json]:
    """The mapping that `text` (YAML or JSON, at most 1 MiB and 32 levels) holds. Raises DefinitionError.

    `wanted` says which mapping, to whom gives something else.
    """
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise DefinitionError(PLACE, "holds half of a surrogate pair, which UTF-8 cannot carry") from None
    if size > DOCUMENT_BYTES:
        raise DefinitionError(PLACE, f"is {size} bytes long; at most {DOCUMENT_BYTES} are allowed")
    return plain_document(_parse(text), wanted)


def plain_document(document: object, wanted: str = _WANTED) -> dict[str, Json]:
    """A plain copy of a document that came as an object. Raises DefinitionError."""
    try:
        plain = to_json(document, size=DOCUMENT_BYTES, depth=DEEPEST_DOCUMENT)
    except JsonFault as fault:
        raise DefinitionError(dotted("", *fault.keys) or PLACE, fault.message) from None
    if not isinstance(plain, dict):
        raise DefinitionError(PLACE, f"must be {wanted}")
    if len(compact(plain).encode()) > DOCUMENT_BYTES:
        raise DefinitionError(PLACE, f"is longer than {DOCUMENT_BYTES} bytes of JSON")
    return plain


def document_digest(document: dict[str, Json]) -> str:
    """The hex SHA-256 of the canonical JSON (sorted keys, no spaces) of a plain document."""
    return hashlib.sha256(compact(document).encode()).hexdigest()


def _parse(text: str) -> object:
    try:
        if text.lstrip("\ufeff \t\r\n").startswith("{"):
            return _parse_braces(text)
        return _parse_yaml(text)
    except yaml.YAMLError as error:
        raise DefinitionError(PLACE, _yaml_message(error)) from None
    except RecursionError:
        raise DefinitionError(PLACE, f"is nested deeper than {DEEPEST_DOCUMENT} levels") from None
    except ValueError as error:
        raise DefinitionError(PLACE, f"is not valid: {clipped(str(error), 200)}") from None


def _parse_braces(text: str) -> object:
    try:
        return json.loads(text.lstrip("\ufeff"), object_pairs_hook=_unique, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        fault = DefinitionError(PLACE, f"is not valid JSON at line {error.lineno}, column {error.colno}: {error.msg}")
    # A YAML mapping may start with a brace too; when it is neither, JSON was meant.
    try:
        return _parse_yaml(text)
    except yaml.YAMLError:
        raise fault from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise DefinitionError(PLACE, f"the key {clipped(twice, 64)!r} is given twice in one mapping")
    return result


def _no_constant(name: str) -> NoReturn:
    raise DefinitionError(PLACE, f"{name} is not a JSON number")


def _parse_yaml(text: str) -> object:
    _check_events(text)
    loader = _Loader(text)
    try:
        return loader.get_single_data()
    finally:
        loader.dispose()


def _check_events(text: str) -> None:
    # Before anything recursive sees the text: events come one by one.
    depth = 0
    for count, event in enumerate(yaml.parse(text, Loader=_Loader)):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        fault = None
        if depth > DEEPEST_DOCUMENT:
            fault = f"is nested deeper than {DEEPEST_DOCUMENT} levels"
        elif count > _MOST_EVENTS:
            fault = f"holds more than {_MOST_EVENTS} values and brackets"
        elif getattr(event, "tag", None) is not None:
            fault = "uses a tag, which JSON does not have; leave it out"
        if fault:
            raise DefinitionError(PLACE, fault + _line(event))


def _line(event: yaml.Event) -> str:
    return f", at line {event.start_mark.line + 1}" if event.start_mark else ""


_Base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_Base):  # type: ignore[misc]
    """The safe loader with the types of YAML 1.2's core schema, and each key once in a mapping."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            name = key.value if isinstance(key, yaml.ScalarNode) else ""
            if name in seen:
                line = key.start_mark.line + 1
                raise DefinitionError(PLACE, f"the key {clipped(name, 64)!r} is given twice, again at line {line}")
            seen.add(name)
        return cast("dict[Any, Any]", super().construct_mapping(node, deep=deep))


for _tag, _pattern, _first in (
    ("null", r"~|null|Null|NULL|", "~nN"),
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("int", r"[-+]?[0-9]+", "-+0123456789"),
    ("float", r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", "-+.0123456789"),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(f"^(?:{_pattern})$"), [*_first])
_Loader.add_implicit_resolver("tag:yaml.org,2002:null", re.compile(r"^$"), [""])


def _decimal(loader: Any, node: yaml.ScalarNode) -> int:
    return int(loader.construct_scalar(node))


def _fraction(loader: Any, node: yaml.ScalarNode) -> float:
    return float(loader.construct_scalar(node))


_Loader.add_constructor("tag:yaml.org,2002:int", _decimal)
_Loader.add_constructor("tag:yaml.org,2002:float", _fraction)


def _yaml_message(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    place = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
    problem = getattr(error, "problem", None) or str(error).splitlines()[0]
    return f"is not valid YAML{place}: {clipped(str(problem), 200)}"
