"""JSON Schema, as far as we use it: is this a schema, does a value fit it. Never fetches what a schema refers to."""

import re

from jsonschema.exceptions import SchemaError, ValidationError
from jsonschema.protocols import Validator
from jsonschema.validators import Draft202012Validator, validator_for
from referencing import Registry
from referencing.exceptions import Unresolvable

from common.model import Json

_NOTHING: Registry[Json] = Registry()


def schema_fault(schema: dict[str, Json]) -> str | None:
    """Why this is no JSON Schema, or None."""
    try:
        _validator(schema).check_schema(schema)
    except (SchemaError, Unresolvable, re.error) as error:
        return str(error.message if isinstance(error, SchemaError) else error)
    return None


def misfit(value: Json, schema: dict[str, Json]) -> str | None:
    """Where and why the value does not fit the schema, or None. Raises ValueError if the schema cannot be applied."""
    try:
        _validator(schema)(schema, registry=_NOTHING).validate(value)
    except ValidationError as error:
        return f"{error.json_path}: {error.message[:300]}"
    except (SchemaError, Unresolvable, re.error) as error:
        raise ValueError(f"json_schema cannot be applied: {error}") from None
    return None


def _validator(schema: dict[str, Json]) -> type[Validator]:
    return validator_for(schema, default=Draft202012Validator)
