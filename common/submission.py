"""What strangers send: an entry of the submission stream as a checked document, or one sentence on why it is refused.

See docs/protocol.md. Must not know Redis, nor what a workflow definition means.
"""

import difflib
import math
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    StringConstraints,
    ValidationError,
)
from pydantic_core import ErrorDetails

from common import wire
from common.errors import InvalidDocument
from common.model import Json

VERSION = 1
MAX_DOCUMENT_BYTES = 1 << 20
LONGEST_SLO_S = 7 * 24 * 3600.0

_IDENTIFIER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")
_ENTRY_ID = re.compile(r"[0-9]+-[0-9]+")


IDENTIFIER = "1 to 128 letters, digits, -, _ and dots, beginning with a letter or digit"
"""The rule of `is_identifier`, in words."""


def is_identifier(text: str) -> bool:
    """Whether this can be the id of a workflow or the name of a tenant."""
    return _IDENTIFIER.fullmatch(text) is not None


def _identifier(value: str) -> str:
    if not is_identifier(value):
        raise ValueError(f"must be {IDENTIFIER}")
    return value


def _own_id(value: str) -> str:
    if _ENTRY_ID.fullmatch(value):
        raise ValueError("must not look like the id of a stream entry: those belong to submissions without an id")
    return value


def _whole(value: object) -> object:
    """JSON has one kind of number: 2.0 is the integer 2."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _version(value: int) -> int:
    if value != VERSION:
        raise ValueError(f"{value} is not read here; write {VERSION} or leave it out")
    return value


def _slo(value: float) -> float:
    if not (math.isfinite(value) and 0 < value <= LONGEST_SLO_S):
        raise ValueError(f"must be a number of seconds above 0 and at most {LONGEST_SLO_S:.0f}")
    return value


def _workflow(value: object) -> object:
    if not isinstance(value, str | dict):
        raise ValueError("must be the name of a workflow or a definition (a mapping)")
    return value


Identifier = Annotated[str, AfterValidator(_identifier)]
Integer = Annotated[int, BeforeValidator(_whole)]


class Submission(BaseModel):
    """A workflow to run, or one to end (`cancel`) or to give another deadline (`amend`).

    slo_s in s, deadline_at in ms since the epoch.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    v: Annotated[Integer, AfterValidator(_version)] = VERSION
    id: Annotated[Identifier, AfterValidator(_own_id)] | None = None
    tenant: Identifier = "default"
    workflow: Annotated[str | dict[str, Any], PlainValidator(_workflow)] | None = None
    inputs: dict[str, Any] = Field(default_factory=dict)
    slo_s: Annotated[float, AfterValidator(_slo)] | None = None
    deadline_at: Integer | None = None
    on_deadline: Literal["continue", "cancel"] = "continue"
    stream: bool = False
    cancel: Identifier | None = None
    reason: Annotated[str, StringConstraints(max_length=500)] = "cancelled by request"
    amend: Identifier | None = None


def read_submission(fields: Mapping[bytes, bytes]) -> tuple[Submission, str, Json]:
    """A stream entry as (submission, encoding, the document as sent). Raises InvalidDocument naming the field."""
    encodings = [name for name in ("json", "msgpack") if name.encode() in fields]
    if len(encodings) != 1:
        raise InvalidDocument("", "an entry holds one document, in a field named json or msgpack")
    data = fields[encodings[0].encode()]
    if len(data) > MAX_DOCUMENT_BYTES:
        raise InvalidDocument("", f"the document has {len(data)} bytes; at most {MAX_DOCUMENT_BYTES} are taken")
    document = wire.load(data, encodings[0])
    if not isinstance(document, dict):
        raise InvalidDocument("", 'the document must be a mapping such as {"workflow": ..., "inputs": {...}}')
    wire.check_json(document)
    try:
        submission = Submission.model_validate(document)
    except ValidationError as error:
        raise _refused(error.errors(include_url=False)) from None
    _check_one_thing_is_asked(submission)
    return submission, encodings[0], document


def _check_one_thing_is_asked(submission: Submission) -> None:
    if sum(asked is not None for asked in (submission.workflow, submission.cancel, submission.amend)) != 1:
        wanted = "workflow (a name or a definition) or cancel or amend (a workflow's id)"
        raise InvalidDocument("workflow", f"give either {wanted}, not both")
    if submission.slo_s is not None and submission.deadline_at is not None:
        raise InvalidDocument("deadline_at", "give slo_s or deadline_at, not both")
    if submission.amend is not None and submission.slo_s is None and submission.deadline_at is None:
        raise InvalidDocument("amend", "give slo_s or deadline_at: what is to hold instead")


_MESSAGES = {
    "string_type": "must be text",
    "string_too_long": "must have at most {max_length} characters",
    "int_type": "must be an integer",
    "float_type": "must be a number",
    "bool_type": "must be true or false",
    "dict_type": "must be a mapping",
    "literal_error": "must be {expected}",
}


def _refused(faults: list[ErrorDetails]) -> InvalidDocument:
    """The first fault; an unknown key before all others, since it may be the reason for them."""
    fault = next((fault for fault in faults if fault["type"] == "extra_forbidden"), faults[0])
    field = str(fault["loc"][0]) if fault["loc"] else ""
    if fault["type"] == "extra_forbidden":
        return InvalidDocument(field, f"is not a key here; {_nearest(field)}")
    if fault["type"] in _MESSAGES:
        return InvalidDocument(field, _MESSAGES[fault["type"]].format(**fault.get("ctx", {})))
    return InvalidDocument(field, fault["msg"].removeprefix("Value error, "))


def _nearest(key: str) -> str:
    known = sorted(Submission.model_fields)
    close = difflib.get_close_matches(key[:64], known, n=1)
    return f"did you mean {close[0]!r}?" if close else f"there are: {', '.join(known)}"
