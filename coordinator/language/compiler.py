"""Document to Definition: the whole check of a definition in one place. Does no I/O; the result holds no state."""

import math
from types import MappingProxyType
from typing import TypeVar

from common.jsonschema_check import mappings, schema_fault
from common.model import Json
from coordinator.language.definition import (
    Definition,
    GroupBody,
    LlmBody,
    Repeat,
    StageSpec,
    Template,
    ToolBody,
    needed,
)
from coordinator.language.document import document_digest, plain_document
from coordinator.language.errors import DefinitionError, dotted, nearest
from coordinator.language.grammar import AttemptShape, GroupShape, LlmShape, StageShape, ToolShape, WorkflowShape
from coordinator.language.inputs import compile_inputs
from coordinator.language.order import Needs, cycle, topological, upstream
from coordinator.language.reader import check_name, read, read_stage
from coordinator.language.scope import STAGE_KEYS, Scope
from coordinator.language.templates import compile_elements, compile_expression, compile_native, compile_text
from coordinator.language.values import compact

MOST_STAGES = 200
MOST_TEMPLATE_CHARACTERS = 256 * 1024
MOST_TEMPLATE_PARTS = 5_000
MOST_SCHEMA_MAPPINGS = 4_000
LLM_TIMEOUT_S = 600.0
TOOL_TIMEOUT_S = 60.0

_Source = TypeVar("_Source", bound=str | list[Json] | dict[str, Json])


def compile_definition(document: object) -> Definition:
    """The definition that a document (as `parse_document` gives it) holds. Raises DefinitionError for the first fault.

    Compiling costs about 1 ms per template: keep the result, its `digest` is the key.
    """
    plain = plain_document(document)
    shape = read(WorkflowShape, plain, "")
    inputs = compile_inputs(shape.inputs)
    compiler = _Compiler()
    scope = Scope({"inputs": frozenset(spec.name for spec in inputs)})
    root = compiler.group(shape.stages, shape.output, "", "", scope)
    stages = MappingProxyType(compiler.stages)
    return Definition(shape.name, document_digest(plain), plain, inputs, root, stages)


class _Compiler:
    """Walks the stages once; counts what the whole definition may hold."""

    def __init__(self) -> None:
        self.stages: dict[str, StageSpec] = {}
        self._stages_left = MOST_STAGES
        self._characters_left = MOST_TEMPLATE_CHARACTERS
        self._parts_left = MOST_TEMPLATE_PARTS
        self._mappings_left = MOST_SCHEMA_MAPPINGS

    def group(self, raw: dict[str, Json], output: str | None, place: str, path: str, scope: Scope) -> GroupBody:
        """The stages at `place` of the document, whose own paths begin with `path`."""
        inside = dotted(place, "stages")
        self._count(raw, inside)
        for name in raw:
            check_name(name, dotted(inside, name))
            if name in scope.stages or name in scope.visible:
                raise DefinitionError(
                    dotted(inside, name), "is already a stage or element outside; choose another name"
                )
        shapes = {name: read_stage(stage, dotted(inside, name)) for name, stage in raw.items()}
        needs = {name: shape.needs for name, shape in shapes.items()}
        _check_needs(needs, inside)
        order = topological(needs)
        reached = upstream(needs, order)
        around = scope.around(raw)
        stages = tuple(
            self._stage(
                shapes[name], dotted(inside, name), dotted(path, name), around.seeing(reached[name], STAGE_KEYS)
            )
            for name in order
        )
        result = self._expression(output, dotted(place, "output"), around.seeing(raw, STAGE_KEYS))
        needed = {need for names in needs.values() for need in names}
        return GroupBody(stages, result, tuple(name for name in order if name not in needed))

    def _stage(self, shape: StageShape, place: str, path: str, scope: Scope) -> StageSpec:
        when = self._expression(shape.when, dotted(place, "when"), scope)
        for_each = self._for_each(shape, place, scope)
        inside = scope
        if for_each is not None:
            inside = inside.seeing((shape.element, "index"))
        if shape.repeat is not None:
            inside = inside.seeing(("round", "previous"))
        body = self._body(shape, place, path, inside)
        timeout_s, retries = _attempts(shape)
        spec = StageSpec(
            name=path.rpartition(".")[2],
            path=path,
            needs=tuple(shape.needs),
            when=when,
            for_each=for_each,
            element=shape.element,
            join=shape.join,
            repeat=self._repeat(shape, place, inside),
            body=body,
            timeout_s=timeout_s,
            retries=retries,
            optional=shape.optional,
        )
        self.stages[path] = spec
        return spec

    def _for_each(self, shape: StageShape, place: str, scope: Scope) -> Template | None:
        if shape.for_each is None:
            if "element" in shape.model_fields_set:
                raise DefinitionError(dotted(place, "as"), "names the element of a for_each, which is missing")
            if shape.join != "all":
                raise DefinitionError(dotted(place, "join"), "joins the copies of a for_each, which is missing")
            return None
        if isinstance(shape.for_each, list) and needed(shape.join, len(shape.for_each)) > len(shape.for_each):
            raise DefinitionError(
                dotted(place, "join"), f"wants more copies than the {len(shape.for_each)} of for_each"
            )
        if shape.element != "item":
            check_name(shape.element, dotted(place, "as"))
        if shape.element in scope.stages:
            raise DefinitionError(dotted(place, "as"), f"{shape.element!r} is a stage's name; choose another")
        source = self._taken(shape.for_each, dotted(place, "for_each"))
        return compile_elements(source, dotted(place, "for_each"), scope)

    def _repeat(self, shape: StageShape, place: str, scope: Scope) -> Repeat | None:
        if shape.repeat is None:
            return None
        ended = scope.seeing(("output",))
        if isinstance(shape, GroupShape):
            ended = ended.seeing(shape.stages, STAGE_KEYS)
        where = dotted(place, "repeat", "while")
        source = self._taken(shape.repeat.condition, where)
        return Repeat(compile_expression(source, where, ended), shape.repeat.most)

    def _body(self, shape: StageShape, place: str, path: str, scope: Scope) -> LlmBody | ToolBody | GroupBody:
        if isinstance(shape, GroupShape):
            return self.group(shape.stages, shape.output, place, path, scope)
        if isinstance(shape, ToolShape):
            where = dotted(place, "args")
            args = compile_native(self._taken(shape.args, where), where, scope)
            return ToolBody(shape.tool, args, shape.expect.seconds if shape.expect else None)
        assert isinstance(shape, LlmShape)
        return self._llm(shape, place, scope)

    def _llm(self, shape: LlmShape, place: str, scope: Scope) -> LlmBody:
        if shape.json_schema is not None:
            self._check_schema(shape.json_schema, dotted(place, "json_schema"))
        prompt = None
        if shape.prompt is not None:
            prompt = self._text(shape.prompt, dotted(place, "prompt"), scope)
        messages = tuple(
            (message.role, self._text(message.content, dotted(place, "messages", position, "content"), scope))
            for position, message in enumerate(shape.messages or ())
        )
        return LlmBody(
            prompt=prompt,
            messages=messages,
            model=shape.model,
            requires=frozenset(shape.requires),
            max_tokens=shape.max_tokens,
            temperature=shape.temperature,
            top_p=shape.top_p,
            stop=tuple(shape.stop),
            seed=shape.seed,
            json_schema=shape.json_schema,
            expected_output_tokens=shape.expect.output_tokens if shape.expect else None,
        )

    def _expression(self, source: str | None, place: str, scope: Scope) -> Template | None:
        return None if source is None else compile_expression(self._taken(source, place), place, scope)

    def _text(self, source: str, place: str, scope: Scope) -> Template:
        return compile_text(self._taken(source, place), place, scope)

    def _taken(self, source: _Source, place: str) -> _Source:
        # Before it is compiled: that takes time in proportion.
        text = source if isinstance(source, str) else compact(source)
        self._characters_left -= len(text)
        self._parts_left -= text.count("{{") + text.count("{%")
        if self._characters_left < 0:
            most = MOST_TEMPLATE_CHARACTERS
            raise DefinitionError(place, f"a definition has at most {most} characters of templates, all together")
        if self._parts_left < 0:
            most = MOST_TEMPLATE_PARTS
            raise DefinitionError(place, f"a definition has at most {most} '{{{{' and '{{%', all together")
        return source

    def _check_schema(self, schema: dict[str, Json], place: str) -> None:
        self._mappings_left -= sum(1 for _ in mappings(schema))
        if self._mappings_left < 0:
            most = MOST_SCHEMA_MAPPINGS
            raise DefinitionError(place, f"a definition has at most {most} mappings in its schemas, all together")
        fault = schema_fault(schema)
        if fault is not None:
            raise DefinitionError(place, fault)

    def _count(self, raw: dict[str, Json], place: str) -> None:
        if not raw:
            raise DefinitionError(place, "must hold at least one stage")
        self._stages_left -= len(raw)
        if self._stages_left < 0:
            raise DefinitionError(place, f"a definition has at most {MOST_STAGES} stages, all groups together")


def _check_needs(needs: Needs, place: str) -> None:
    for name, wanted in needs.items():
        where = dotted(place, name, "needs")
        for need in wanted:
            if need == name:
                raise DefinitionError(where, "a stage cannot need itself")
            if need not in needs:
                raise DefinitionError(where, f"{need!r} is no stage of this scope; {nearest(need, needs)}")
    circle = cycle(needs)
    if circle:
        raise DefinitionError(dotted(place, circle[0], "needs"), f"goes round in a circle: {' -> '.join(circle)}")


def _attempts(shape: StageShape) -> tuple[float, int]:
    """Seconds that one attempt may run, and further attempts; a group has neither."""
    if not isinstance(shape, AttemptShape):
        return math.inf, 0
    usual = LLM_TIMEOUT_S if isinstance(shape, LlmShape) else TOOL_TIMEOUT_S
    return usual if shape.timeout_s is None else shape.timeout_s, shape.retries
