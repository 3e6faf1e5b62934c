"""The inputs of a workflow: what a definition declares and what a submission gives. Does no I/O."""

from collections.abc import Mapping

from common.model import Json
from coordinator.language.definition import Definition, InputSpec
from coordinator.language.document import DOCUMENT_BYTES
from coordinator.language.errors import DefinitionError, InputError, dotted, nearest, shown
from coordinator.language.grammar import InputShape
from coordinator.language.reader import check_name
from coordinator.language.values import DEEPEST_DOCUMENT, JsonFault, to_json

_TYPES: dict[str, type | tuple[type, ...]] = {
    "string": str,
    "number": (int, float),
    "integer": int,
    "boolean": bool,
    "array": list,
    "object": dict,
    "any": object,
}


def compile_inputs(shapes: Mapping[str, InputShape]) -> tuple[InputSpec, ...]:
    """What the definition declares. Raises DefinitionError for a bad name or a default of the wrong type."""
    specs = []
    for name, shape in shapes.items():
        check_name(name, dotted("inputs", name))
        required = "default" not in shape.model_fields_set
        spec = InputSpec(name, shape.type, required, shape.default)
        if not required and not _fits(shape.default, spec):
            raise DefinitionError(dotted("inputs", name, "default"), _misfit(shape.default, spec))
        specs.append(spec)
    return tuple(specs)


def validate_inputs(definition: Definition, inputs: object) -> dict[str, Json]:
    """A plain copy of what a submission gives, with the defaults filled in. Raises InputError naming the input."""
    try:
        given = to_json(inputs, size=DOCUMENT_BYTES, depth=DEEPEST_DOCUMENT)
    except JsonFault as fault:
        raise InputError(dotted("inputs", *fault.keys), fault.message) from None
    if not isinstance(given, dict):
        raise InputError("inputs", f"must be a mapping, not {shown(given)}")
    names = [spec.name for spec in definition.inputs]
    for name in given:
        if name not in names:
            raise InputError(dotted("inputs", name), f"is no input of {definition.name!r}; {nearest(name, names)}")
    return {spec.name: _value(spec, given) for spec in definition.inputs}


def _value(spec: InputSpec, given: Mapping[str, Json]) -> Json:
    path = dotted("inputs", spec.name)
    if spec.name not in given:
        if spec.required:
            raise InputError(path, f"is missing; give {_described(spec.type)}")
        return spec.default
    value = given[spec.name]
    if not _fits(value, spec):
        raise InputError(path, _misfit(value, spec))
    return value


def _fits(value: Json, spec: InputSpec) -> bool:
    if value is None and not spec.required and spec.default is None:
        return True
    if isinstance(value, bool):
        return spec.type in ("boolean", "any")
    return isinstance(value, _TYPES[spec.type])


def _misfit(value: Json, spec: InputSpec) -> str:
    return f"must be {_described(spec.type)}, not {shown(value)}"


def _described(kind: str) -> str:
    article = "an" if kind[0] in "aio" else "a"
    return "a value" if kind == "any" else f"{article} {kind}"
