"""JSON Schema, as far as we use it: is this a schema, does a value fit it. Never fetches what a schema refers to.

Schemas come from tenants and are applied within the loops of coordinators and workers: work is counted, and what cannot
be counted is refused. It must not know whose schema it is.
"""

from collections.abc import Callable, Iterator
from contextvars import ContextVar
from functools import cache
from typing import Any, cast

from jsonschema.exceptions import SchemaError, ValidationError
from jsonschema.protocols import Validator
from jsonschema.validators import Draft202012Validator, extend, validator_for
from referencing import Registry

from common.model import Json

MOST_STEPS = 100_000
"""Of one check, each of about 10 us: applying a keyword, passing over an element or over 64 characters."""
LARGEST_LEAST = 1 << 20
"""No answer is longer."""

_CHARACTERS_PER_STEP = 64
_PAIRS_PER_STEP = 8
_UNCOUNTED = {
    "pattern": "a regular expression can take for ever",
    "patternProperties": "a regular expression can take for ever",
    "unevaluatedItems": "its work has no bound",
    "unevaluatedProperties": "its work has no bound",
}
_LEAST = ("minContains", "minItems", "minLength", "minProperties")
_NOTHING: Registry[Json] = Registry()
_left: ContextVar[int] = ContextVar("steps left of this check")


def schema_fault(schema: dict[str, Json]) -> str | None:
    """Why this is no JSON Schema, or none that can be applied within bounds; or None."""
    fault = _boundless(schema)
    if fault is not None:
        return fault
    try:
        _kind(schema).check_schema(schema)
    except Exception as error:
        return f"is no JSON Schema: {error.message if isinstance(error, SchemaError) else error}"
    return None


def misfit(value: Json, schema: dict[str, Json]) -> str | None:
    """Where and why the value does not fit the schema, or None.

    Raises ValueError if the schema cannot be applied, or not within MOST_STEPS.
    """
    fault = _boundless(schema)
    if fault is not None:
        raise ValueError(f"json_schema {fault}")
    # Where the name of a draft stays, a reference to the whole leads to that draft's validator, which counts nothing.
    unnamed = {key: part for key, part in schema.items() if key != "$schema"}
    _left.set(MOST_STEPS)
    try:
        _counting(_kind(schema))(unnamed, registry=_NOTHING).validate(value)
    except ValidationError as error:
        return f"{error.json_path}: {error.message[:300]}"
    except Exception as error:  # what a reference leads to was never checked to be a schema
        raise ValueError(f"json_schema cannot be applied: {error}") from None
    return None


def mappings(value: Json) -> Iterator[dict[str, Json]]:
    """All mappings in a schema, itself included: more than its subschemas, since a reference may lead to any."""
    if isinstance(value, dict):
        yield value
        value = list(value.values())
    for part in value if isinstance(value, list) else ():
        yield from mappings(part)


def characters(value: Json) -> int:
    """About as many as it has in JSON."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        return sum(len(key) + 4 + characters(part) for key, part in value.items())
    return sum(4 + characters(part) for part in value) if isinstance(value, list) else 4


def _boundless(schema: dict[str, Json]) -> str | None:
    for part in mappings(schema):
        for keyword, why in _UNCOUNTED.items():
            if isinstance(part.get(keyword), str) or (keyword != "pattern" and keyword in part):
                return f"holds {keyword}, which is not supported: {why}"
        for keyword in _LEAST:
            if isinstance(part.get(keyword), int | float) and part[keyword] > LARGEST_LEAST:
                return f"holds {keyword} of {part[keyword]}; at most {LARGEST_LEAST} are allowed"
        if part is not schema and isinstance(part.get("$schema"), str):
            return "holds $schema inside; it may only stand at the top"
    return None


def _kind(schema: dict[str, Json]) -> type[Validator]:
    return validator_for(schema, default=Draft202012Validator)


@cache
def _counting(kind: type[Validator]) -> type[Validator]:
    """This draft's validator, each of whose keywords costs steps."""
    checks = {keyword: _counted(keyword, check) for keyword, check in kind.VALIDATORS.items()}
    return cast("type[Validator]", extend(kind, checks))  # type: ignore[no-untyped-call]


def _counted(keyword: str, check: Callable[..., Any]) -> Callable[..., Any]:
    def counted(validator: Validator, wanted: Json, instance: Json, schema: Json) -> Any:
        _spend(1 + _length(instance) + (characters(instance) + characters(wanted)) // _CHARACTERS_PER_STEP)
        if keyword == "uniqueItems" and isinstance(instance, list) and not _sorts(instance):
            _spend(len(instance) ** 2 // _PAIRS_PER_STEP)
        return check(validator, wanted, instance, schema)

    return counted


def _sorts(values: list[Json]) -> bool:
    """Whether they are sorted and so compared with a neighbour each, not each with all."""
    return {type(one) for one in values} in ({str}, {int}, {float})


def _spend(steps: int) -> None:
    left = _left.get() - steps
    _left.set(left)
    if left < 0:
        raise ValueError(f"with this answer it takes more than {MOST_STEPS} steps")


def _length(value: Json) -> int:
    return len(value) if isinstance(value, dict | list) else 0
