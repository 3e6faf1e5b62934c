"""What templates see: inputs, upstream stages, elements and rounds. Reads nodes and outputs, changes nothing."""

from collections.abc import Callable, Mapping
from typing import Any

from common.events import Outcome
from common.model import Json, Node
from coordinator.language.definition import Definition, GroupBody, StageSpec, Template, TemplateError
from coordinator.language.effort import Names
from coordinator.places import Place, place, scope_of, stage_place
from coordinator.state import PENDING


class StageView:
    """A stage as a template sees it: `.output` and `.status`. The output is worked out when it is asked for."""

    __slots__ = ("_output", "status")

    def __init__(self, status: str, output: Callable[[], Json]) -> None:
        self.status = status
        self._output = output

    @property
    def output(self) -> Json:
        return self._output()


class Scope:
    """Evaluates the templates of one workflow in one state of it. `spent` is the effort that all of it took."""

    def __init__(
        self,
        definition: Definition,
        inputs: Mapping[str, Json],
        nodes: Mapping[str, Node],
        outputs: Mapping[str, Outcome],
        memo: dict[str, Json],
    ) -> None:
        self._definition = definition
        self._inputs = inputs
        self._nodes = nodes
        self._outputs = outputs
        self._memo = memo
        self.spent = 0

    def render(self, template: Template, at: Place, extra: Mapping[str, Any] | None = None) -> Any:
        """The template's value at this place. `extra` holds what only a while condition sees. Raises TemplateError."""
        context = Names(extra or {})
        for name in template.names:
            if name not in context:
                context[name] = self._resolve(name, at)
        return self._rendered(template, context)

    def condition(self, at: Place) -> bool:
        """Whether the round that ended at this place is followed by another."""
        assert at.spec.repeat is not None
        extra: dict[str, Any] = {"output": self.round_output(at)}
        if isinstance(at.spec.body, GroupBody):
            extra |= self._views(at, at.spec.body)
        return bool(self.render(at.spec.repeat.condition, at, extra))

    def elements(self, parent: Place | None, spec: StageSpec) -> list[Json]:
        """The elements of a for_each. Raises TemplateError."""
        assert spec.for_each is not None
        key = "elements " + scope_of(parent) + spec.name
        if key not in self._memo:
            self._memo[key] = self.render(spec.for_each, stage_place(parent, spec))
        return self._memo[key]  # type: ignore[no-any-return]

    def result(self) -> Json:
        """The output of the whole workflow."""
        return self._group_output(None, self._definition.root)

    def stage_output(self, parent: Place | None, spec: StageSpec) -> Json:
        """What later stages see of this one; None unless it has completed."""
        key = scope_of(parent) + spec.name
        if self._nodes.get(key, PENDING).status != "completed":
            return None
        if key not in self._memo:
            self._memo[key] = self._joined(parent, spec)
        return self._memo[key]

    def round_output(self, at: Place) -> Json:
        """The output of one round of one copy that has ended. Raises TemplateError."""
        if isinstance(at.spec.body, GroupBody):
            if at.key not in self._memo:
                self._memo[at.key] = self._group_output(at, at.spec.body)
            return self._memo[at.key]
        outcome = self._outputs.get(at.key)
        return None if outcome is None else outcome.output

    def _joined(self, parent: Place | None, spec: StageSpec) -> Json:
        if spec.for_each is None:
            return self._copy_output(parent, spec, None)
        key = scope_of(parent) + spec.name
        copies = range(len(self.elements(parent, spec)))
        completed = [index for index in copies if self._nodes[f"{key}[{index}]"].status == "completed"]
        outputs = [self._copy_output(parent, spec, index) for index in completed]
        return outputs[0] if spec.join == "first_success" else outputs

    def _copy_output(self, parent: Place | None, spec: StageSpec, index: int | None) -> Json:
        at = place(parent, spec, index)
        if spec.repeat is not None:
            at = place(parent, spec, index, self._nodes.get(at.copy_key, PENDING).round)
        return self.round_output(at)

    def _group_output(self, at: Place | None, group: GroupBody) -> Json:
        if group.output is None:
            specs = [spec for spec in group.stages if spec.name in group.sinks]
            return {spec.name: self.stage_output(at, spec) for spec in specs}
        views = self._views(at, group)
        if at is not None:
            return self.render(group.output, at, views)
        return self._rendered(group.output, Names(inputs=self._inputs, **views))

    def _rendered(self, template: Template, context: Names) -> Any:
        try:
            return template.render(context)
        finally:
            self.spent += context.spent

    def _views(self, parent: Place | None, group: GroupBody) -> dict[str, StageView]:
        return {spec.name: self._view(parent, spec) for spec in group.stages}

    def _view(self, parent: Place | None, spec: StageSpec) -> StageView:
        status = self._nodes.get(scope_of(parent) + spec.name, PENDING).status
        return StageView(status, lambda: self.stage_output(parent, spec))

    def _resolve(self, name: str, at: Place) -> Any:
        """The innermost thing of that name around a place; the compiler has made sure that there is one."""
        if name == "inputs":
            return self._inputs
        frame: Place | None = at
        while frame is not None:
            found, value = self._of_frame(name, frame)
            if found:
                return value
            frame = frame.parent
        raise TemplateError(f"{name!r} is not known here")

    def _of_frame(self, name: str, frame: Place) -> tuple[bool, Any]:
        if frame.index is not None and name in (frame.spec.element, "index"):
            return True, frame.index if name == "index" else self.elements(frame.parent, frame.spec)[frame.index]
        if frame.round is not None and name in ("round", "previous"):
            return True, frame.round if name == "round" else self._previous(frame)
        path = f"{frame.parent.spec.path}.{name}" if frame.parent else name
        spec = self._definition.stages.get(path)
        return (False, None) if spec is None else (True, self._view(frame.parent, spec))

    def _previous(self, at: Place) -> Json:
        if not at.round:
            return None
        return self.round_output(place(at.parent, at.spec, at.index, at.round - 1))
