"""The least JSON value that fits a JSON Schema, for answers without a model. Where it finds none, it refuses."""

import math
from typing import Any

from common.jsonschema_check import characters, misfit, schema_fault
from common.model import Json
from workers.engines.protocol import EngineError

MAX_DEPTH = 32
MAX_SIZE = 100_000
"""Values and characters of a sample together."""
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
        raise EngineError(f"json_schema {fault}", retryable=False)
    value = _Sample(schema).build(schema, 0)
    try:
        wrong = misfit(value, schema)
    except ValueError as error:
        raise _refused(str(error)) from None
    if wrong is not None:
        raise _refused(f"at {wrong}")
    return value


def _refused(why: str) -> EngineError:
    return EngineError(f"no sample could be made for this json_schema: {why}", retryable=False)


class _Sample:
    """One sample being built, and how much larger it may become: references can make a small schema's vast."""

    def __init__(self, root: dict[str, Json]) -> None:
        self._root = root
        self._left = MAX_SIZE

    def build(self, schema: Json, depth: int) -> Json:
        """A value for one schema in the whole."""
        self._spend(1)
        if depth > MAX_DEPTH:
            raise _refused(f"it is more than {MAX_DEPTH} levels deep")
        if not isinstance(schema, dict):
            return None
        for whole, value in (("const", schema.get("const")), ("enum", schema.get("enum", [None])[0])):
            if whole in schema:
                self._spend(characters(value))
                return value
        if merged := _merged(schema, self._root):
            self._spend(sum(len(part) for part in merged.values() if isinstance(part, dict | list)))
            return self.build(merged, depth + 1)
        return self._of_kind(_kind(schema), schema, depth)

    def _of_kind(self, kind: str, schema: dict[str, Json], depth: int) -> Json:
        if kind == "object":
            properties, required = schema.get("properties", {}), schema.get("required", [])
            self._spend(sum(map(len, required)))
            return {name: self.build(properties.get(name), depth + 1) for name in required}
        if kind == "array":
            first, rest = schema.get("prefixItems", []), schema.get("items")
            count = self._spend(schema.get("minItems", 0))
            return [self.build(first[at] if at < len(first) else rest, depth + 1) for at in range(count)]
        if kind in ("number", "integer"):
            return _number(schema)
        if kind == "string":
            return "x" * self._spend(schema.get("minLength", 0))
        return False if kind == "boolean" else None

    def _spend(self, size: float) -> int:
        """As a whole number: 3.0 is one too."""
        self._left -= max(0, int(size))
        if self._left < 0:
            raise _refused(f"it would have more than {MAX_SIZE} values and characters")
        return int(size)


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
        united["required"] = list(dict.fromkeys([*one["required"], *other["required"]]))
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
