"""The shape of a definition document: which keys there are, of which type, within which bounds.

One level at a time: what lies under `stages` is read by the compiler. Knows nothing of templates, names or order.
"""

import re
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PlainValidator, model_validator
from pydantic_core import PydanticCustomError

from common import names
from common.model import Json
from coordinator.language.definition import MOST_ELEMENTS, Join
from coordinator.language.errors import nearest, shown

KINDS = {"prompt": "llm", "messages": "llm", "tool": "tool", "stages": "group"}
LONGEST_ATTEMPT_S = 86_400.0
OWN_FAULT = "own"

_WORKFLOW_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_TOOL_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*(\.[A-Za-z][A-Za-z0-9_-]*)*")


def fault(message: str, key: str | None = None) -> PydanticCustomError:
    """A refusal in our own words, at `key` of the value or at the value itself."""
    return PydanticCustomError(OWN_FAULT, "{message}", {"message": message, "key": key})


def _expression(value: object) -> str:
    if isinstance(value, bool):
        return shown(value)
    if not isinstance(value, str):
        raise fault(f"must be an expression, written as text, not {shown(value)}")
    return value


def _elements(value: object) -> str | list[Json]:
    return value if isinstance(value, list) else _expression(value)


def _join(value: object) -> Join:
    if value == "all" or value == "first_success":
        return value
    if not isinstance(value, dict) or set(value) != {"quorum"}:
        raise fault(f"must be all, first_success or {{quorum: k}}, not {shown(value)}")
    wanted = value["quorum"]
    if not isinstance(wanted, int) or isinstance(wanted, bool) or not 1 <= wanted <= MOST_ELEMENTS:
        raise fault(f"must be an integer from 1 to {MOST_ELEMENTS}, not {shown(wanted)}", "quorum")
    return wanted


def _workflow_name(value: str) -> str:
    if not _WORKFLOW_NAME.fullmatch(value):
        raise fault(f"{shown(value)} must be 1 to 64 letters, digits, - and _, beginning with a letter or digit")
    return value


def _tool_name(value: str) -> str:
    if len(value) > 128 or not _TOOL_NAME.fullmatch(value):
        raise fault(f"{shown(value)} is no tool name: words of letters, digits, - and _, joined by dots")
    return value


def _label(value: str) -> str:
    if not names.is_word(value):
        raise fault(f"{shown(value)} is no label that a worker can have: {names.WORD}")
    return value


def _model(value: str) -> str:
    if not names.is_model(value):
        raise fault(f"{shown(value)} is no name that a model can have: {names.MODEL}")
    return value


def _unique(values: list[str]) -> list[str]:
    for position, value in enumerate(values):
        if value in values[:position]:
            raise fault(f"names {shown(value)} twice")
    return values


Expression = Annotated[str, PlainValidator(_expression)]
Word = Annotated[str, Field(min_length=1, max_length=256)]
Words = Annotated[list[Word], AfterValidator(_unique), Field(max_length=64)]
Label = Annotated[str, AfterValidator(_label)]


class Shape(BaseModel):
    """A mapping of known keys. Values are taken as they are, never converted."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False, frozen=True, protected_namespaces=())

    @classmethod
    def known_keys(cls) -> frozenset[str]:
        """The keys as the document writes them."""
        return frozenset(field.alias or name for name, field in cls.model_fields.items())

    @classmethod
    def unknown(cls, key: object) -> str:
        """What to say about a key that is not one of `known_keys`."""
        return f"is not a key here; {nearest(key, cls.known_keys())}"

    @model_validator(mode="before")
    @classmethod
    def _known(cls, value: Any) -> Any:
        for key in value if isinstance(value, dict) else ():
            if key not in cls.known_keys():
                raise fault(cls.unknown(key), str(key))
        return value


class InputShape(Shape):
    """One of `inputs`. It must be given unless it has a default."""

    type: Literal["string", "number", "integer", "boolean", "array", "object", "any"]
    default: Any = None


class WorkflowShape(Shape):
    """The whole document."""

    name: Annotated[str, AfterValidator(_workflow_name)]
    description: str = ""
    inputs: dict[str, InputShape] = {}
    stages: dict[str, Any]
    output: Expression | None = None


class RepeatShape(Shape):
    """`repeat`. `max` counts all rounds."""

    condition: Expression = Field(alias="while")
    most: int = Field(alias="max", ge=1, le=100)


class StageShape(Shape):
    """What every stage may have."""

    kind: ClassVar[str]

    needs: Words = []
    when: Expression | None = None
    for_each: Annotated[str | list[Json], PlainValidator(_elements)] | None = None
    element: str = Field("item", alias="as")
    repeat: RepeatShape | None = None
    join: Annotated[Join, PlainValidator(_join)] = "all"
    optional: bool = False

    @classmethod
    def unknown(cls, key: object) -> str:
        owners = [shape.kind for shape in SHAPES.values() if key in shape.known_keys()]
        if owners:
            return f"is a key of {' and '.join(owners)} stages; this is a stage of kind {cls.kind}"
        return super().unknown(key)


class AttemptShape(StageShape):
    """What a stage that asks a worker may have."""

    timeout_s: float | None = Field(None, gt=0, le=LONGEST_ATTEMPT_S)
    retries: int = Field(2, ge=0, le=10)


class MessageShape(Shape):
    """One of `messages`."""

    role: Literal["system", "user", "assistant"]
    content: str


class TokensShape(Shape):
    """`expect` of an llm stage."""

    output_tokens: int = Field(ge=1, le=1_000_000)


class SecondsShape(Shape):
    """`expect` of a tool stage."""

    seconds: float = Field(gt=0, le=LONGEST_ATTEMPT_S)


class LlmShape(AttemptShape):
    """One call of a model, by `prompt` or `messages`."""

    kind = "llm"

    prompt: str | None = None
    messages: list[MessageShape] | None = Field(None, min_length=1, max_length=256)
    model: Annotated[str, AfterValidator(_model)] | None = None
    requires: Annotated[list[Label], AfterValidator(_unique), Field(max_length=64)] = []
    json_schema: dict[str, Any] | None = None
    max_tokens: int = Field(512, ge=1, le=1_000_000)
    temperature: float = Field(0.0, ge=0, le=2)
    top_p: float = Field(1.0, gt=0, le=1)
    stop: Annotated[Words, Field(max_length=16)] = []
    seed: int | None = Field(None, ge=0, lt=1 << 63)
    expect: TokensShape | None = None


class ToolShape(AttemptShape):
    """One call of a registered tool."""

    kind = "tool"

    tool: Annotated[str, AfterValidator(_tool_name)]
    args: dict[str, Any] = {}
    expect: SecondsShape | None = None


class GroupShape(StageShape):
    """Stages with a scope of their own."""

    kind = "group"

    stages: dict[str, Any]
    output: Expression | None = None


SHAPES: dict[str, type[StageShape]] = {shape.kind: shape for shape in (LlmShape, ToolShape, GroupShape)}
