"""Reads one mapping of the document into its shape, and says in the language's own words what is wrong with it."""

import keyword
import re
from typing import TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from common.model import Json
from coordinator.language.errors import DefinitionError, dotted, listed, nearest, shown
from coordinator.language.grammar import KINDS, OWN_FAULT, SHAPES, Shape, StageShape
from coordinator.language.sandbox import GLOBAL_NAMES

_CHOICE = "a stage has either prompt or messages (llm), or tool (tool), or stages (group)"
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")
_JINJA_WORDS = (
    "block call caller do elif else endfor endif endset endwith extends filter for from if import include loop macro"
    " namespace raw recursive self set super true false none varargs kwargs with without"
)
_CONTEXT_WORDS = frozenset({"inputs", "item", "index", "round", "previous", "output", "status"})
RESERVED = _CONTEXT_WORDS | GLOBAL_NAMES | frozenset(_JINJA_WORDS.split()) | frozenset(keyword.kwlist)

_MESSAGES = {
    "missing": "is missing",
    "string_type": "must be text, not {shown}",
    "int_type": "must be an integer, not {shown}",
    "float_type": "must be a number, not {shown}",
    "bool_type": "must be true or false, not {shown}",
    "list_type": "must be a list, not {shown}",
    "dict_type": "must be a mapping, not {shown}",
    "model_type": "must be a mapping, not {shown}",
    "literal_error": "must be {expected}, not {shown}",
    "finite_number": "must be a finite number",
    "greater_than": "must be greater than {gt}, not {shown}",
    "greater_than_equal": "must be at least {ge}, not {shown}",
    "less_than": "must be less than {lt}, not {shown}",
    "less_than_equal": "must be at most {le}, not {shown}",
    "string_too_short": "must not be empty",
    "string_too_long": "must have at most {max_length} characters",
    "too_short": "must not be empty",
    "too_long": "must have at most {max_length} elements",
}
_Read = TypeVar("_Read", bound=Shape)


def read(shape: type[_Read], value: Json, path: str) -> _Read:
    """`value` in its shape. Raises DefinitionError for the first fault, below `path`."""
    try:
        return shape.model_validate(value)
    except ValidationError as error:
        raise _fault(error.errors(include_url=False)[0], path) from None


def read_stage(value: Json, path: str) -> StageShape:
    """A stage in the shape of its kind. Raises DefinitionError."""
    if not isinstance(value, dict):
        raise DefinitionError(path, f"must be a mapping, not {shown(value)}")
    found = [key for key in KINDS if key in value]
    if not found:
        _check_misspelt(value, path)
        raise DefinitionError(path, f"is of no kind: {_CHOICE}; found: {listed(map(shown, value))}")
    if len(found) > 1:
        raise DefinitionError(path, f"has {' and '.join(found)}: {_CHOICE}")
    if value[found[0]] is None:
        raise DefinitionError(dotted(path, found[0]), "must not be null")
    return read(SHAPES[KINDS[found[0]]], value, path)


def check_name(name: str, path: str) -> None:
    """Refuses what cannot be a name in templates. Raises DefinitionError."""
    if not _NAME.fullmatch(name):
        raise DefinitionError(path, f"{shown(name)} is no name: 1 to 64 letters, digits and _, beginning with a letter")
    if name in RESERVED:
        raise DefinitionError(path, f"the name {name!r} is reserved; choose another")


def _check_misspelt(value: dict[str, Json], path: str) -> None:
    known = frozenset[str]().union(*(shape.known_keys() for shape in SHAPES.values()))
    for key in value:
        if key not in known:
            raise DefinitionError(dotted(path, key), f"is not a key of a stage; {nearest(key, known)}; {_CHOICE}")


def _fault(error: ErrorDetails, path: str) -> DefinitionError:
    context = error.get("ctx", {})
    place = dotted(path, *error["loc"])
    if error["type"] == OWN_FAULT:
        key = context["key"]
        return DefinitionError(place if key is None else dotted(place, key), context["message"])
    message = _MESSAGES.get(error["type"])
    if message is None:
        return DefinitionError(place, error["msg"])
    return DefinitionError(place, message.format(shown=shown(error["input"]), **context))
