"""The least JSON value that fits a JSON Schema, for answers without a model. Where it finds none, it refuses."""

import math
from typing import Any

from common.jsonschema_check import misfit, schema_fault
from common.model import Json
from workers.engines.protocol import EngineError

MAX_DEPTH = 32
_TYPE_OF_KEYWORD = {
    "properties": "object",
    "required": "object",
    "items": "array",
    "prefixItems": "array",
    "minItems": "array",
    "minLength": "string",
    "minimum": "number",
    "exclusiveMinimum": "number",
    "maximum": "number",
    "exclusiveMaximum": "number",
}


def sample(schema: dict[str, Json]) -> Json:
    """A value that fits: required members only, the first choice of each. Raises EngineError where it finds none."""
    fault = schema_fault(schema)
    if fault is not None:
        raise EngineError(f"json_schema is not a JSON Schema: {fault}", retryable=False)
    value = _build(schema, schema, 0)
    try:
        wrong = misfit(value, schema)
    except ValueError as error:
        raise _refused(str(error)) from None
    if wrong is not None:
        raise _refused(f"at {wrong}")
    return value


def _refused(why: str) -> EngineError:
    return EngineError(f"no sample could be made for this json_schema: {why}", retryable=False)


def _build(schema: Json, root: dict[str, Json], depth: int) -> Json:
    if depth > MAX_DEPTH:
        raise _refused(f"it is more than {MAX_DEPTH} levels deep")
    if not isinstance(schema, dict):
        return None
    for whole, value in (("const", schema.get("const")), ("enum", schema.get("enum", [None])[0])):
        if whole in schema:
            return value
    if merged := _merged(schema, root):
        return _build(merged, root, depth + 1)
    kind = _kind(schema)
    if kind == "object":
        properties = schema.get("properties", {})
        return {name: _build(properties.get(name), root, depth + 1) for name in schema.get("required", ())}
    if kind == "array":
        return _items(schema, root, depth)
    if kind in ("number", "integer"):
        return _number(schema)
    return {"string": "x" * schema.get("minLength", 0), "boolean": False}.get(kind)


def _kind(schema: dict[str, Json]) -> str:
    """The type asked for, else the one its other keywords speak of."""
    kind = schema.get("type")
    if isinstance(kind, list):
        kind = kind[0]
    return str(kind or next((of for keyword, of in _TYPE_OF_KEYWORD.items() if keyword in schema), "null"))


def _merged(schema: dict[str, Json], root: dict[str, Json]) -> dict[str, Json] | None:
    """The schema with what it refers to or combines taken in; None when there is nothing to take in."""
    parts = list(schema.get("allOf", ()))
    parts += [schema[keyword][0] for keyword in ("anyOf", "oneOf") if schema.get(keyword)]
    if "$ref" in schema:
        parts.append(_resolve(str(schema["$ref"]), root))
    if not parts:
        return None
    merged = {key: value for key, value in schema.items() if key not in ("allOf", "anyOf", "oneOf", "$ref")}
    for part in parts:
        if isinstance(part, dict):
            merged = _united(merged, part)
    return merged


def _united(one: dict[str, Json], other: dict[str, Json]) -> dict[str, Json]:
    united = {**one, **other}
    for keyword in ("properties", "$defs"):
        if keyword in one and keyword in other:
            united[keyword] = {**one[keyword], **other[keyword]}
    if "required" in one and "required" in other:
        united["required"] = [*one["required"], *other["required"]]
    return united


def _resolve(reference: str, root: dict[str, Json]) -> Json:
    found: Json = root
    place = reference.removeprefix("#")
    for step in place.split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        found = found.get(name) if isinstance(found, dict) else None
    if found is None or not reference.startswith("#"):
        raise _refused(f"$ref {reference!r} leads nowhere in it")
    return found


def _items(schema: dict[str, Json], root: dict[str, Json], depth: int) -> list[Json]:
    first = schema.get("prefixItems", [])
    kinds = [first[at] if at < len(first) else schema.get("items") for at in range(schema.get("minItems", 0))]
    return [_build(kind, root, depth + 1) for kind in kinds]


def _number(schema: dict[str, Any]) -> int | float:
    """0, or the number nearest to it that the bounds and multipleOf leave."""
    step = schema.get("multipleOf", 1)
    low = max(schema.get("minimum", -math.inf), schema.get("exclusiveMinimum", -math.inf) + step)
    high = min(schema.get("maximum", math.inf), schema.get("exclusiveMaximum", math.inf) - step)
    if low <= 0 <= high:
        return 0
    number = math.ceil(low / step) * step if low > 0 else math.floor(high / step) * step
    exact: int | float = low if schema.get("type") == "number" and "multipleOf" not in schema and low > 0 else number
    return exact
