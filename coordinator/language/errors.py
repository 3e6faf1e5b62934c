"""What the language complains with: every fault names its place in the document and says what to mend."""

import difflib
from collections.abc import Iterable

from common.errors import InvalidDocument

_LONGEST_PATH = 300
_LONGEST_MESSAGE = 600
_LONGEST_KEY = 64


class LanguageError(InvalidDocument):
    """A fault at `path` (dotted, for example `stages.mend.stages.rewrite.prompt`); str() is "path: message"."""

    def __init__(self, path: str, message: str) -> None:
        self.path = clipped(path, _LONGEST_PATH)
        super().__init__(self.path, clipped(message, _LONGEST_MESSAGE))


class DefinitionError(LanguageError):
    """The document is not a workflow definition."""


class InputError(LanguageError):
    """The inputs given do not fit the definition."""


def clipped(text: str, longest: int) -> str:
    """`text`, cut to `longest` characters: documents are large and foreign, messages must not be."""
    return text if len(text) <= longest else text[: longest - 3] + "..."


def dotted(path: str, *keys: object) -> str:
    """`path` continued by `keys`. A key that would not print on one line is shown quoted."""
    printable = (clipped(key if key and key.isprintable() else ascii(key), _LONGEST_KEY) for key in map(str, keys))
    return ".".join([path, *printable] if path else printable)


def shown(value: object) -> str:
    """A foreign value for a message: short, on one line, in JSON's words where JSON has them."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        head = value[:_LONGEST_KEY]
        return clipped(repr(head) if head.isprintable() else ascii(head), _LONGEST_KEY)
    if isinstance(value, int | float):
        return clipped(str(value), _LONGEST_KEY)
    if isinstance(value, dict):
        return "a mapping"
    return f"a {type(value).__name__}"


def listed(names: Iterable[str]) -> str:
    """The names in order of the alphabet, separated by commas."""
    return ", ".join(sorted(names)) or "none"


def nearest(name: object, names: Iterable[str]) -> str:
    """The tail of a message about an unknown name: the most similar one, or all there are."""
    known = sorted(names)
    close = difflib.get_close_matches(str(name)[:_LONGEST_KEY], known, n=1)
    return f"did you mean {close[0]!r}?" if close else f"there are: {listed(known)}"
