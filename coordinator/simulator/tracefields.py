"""Fields of a trace, read from JSON values: right, or refused in a sentence with place and fix. Knows no format."""

from common.errors import InvalidDocument
from common.model import Json

MOST_TOKENS = 10_000_000
MOST_TIME = 1e12
LONGEST_TOOL_S = 86_400.0


def mapping(where: str, value: Json, known: set[str]) -> dict[str, Json]:
    """A mapping without unknown fields. Raises InvalidDocument, as all here do."""
    if not isinstance(value, dict):
        raise InvalidDocument(where, "must be a mapping")
    for name in value:
        if name not in known:
            raise InvalidDocument(f"{where}.{text(where, name)}", f"is not one of {', '.join(sorted(known))}")
    return value


def text(where: str, value: Json) -> str:
    """Some characters, of which none is half of a pair: JSON can write such a half, a terminal cannot."""
    if not isinstance(value, str) or not value or not (value.isascii() or value == _whole_characters(value)):
        raise InvalidDocument(where, f"must be a text, not {value!r}")
    return value


def tokens(where: str, value: Json, least: int) -> int:
    """A length in tokens."""
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= MOST_TOKENS:
        raise InvalidDocument(where, f"must be a whole number of tokens from {least} to {MOST_TOKENS}, not {value!r}")
    return value


def time(where: str, value: Json, most: float = MOST_TIME, unit: str = "seconds") -> float:
    """A duration or a point in time, in s if not told otherwise."""
    if not _number(value) or not 0 <= value <= most:
        raise InvalidDocument(where, f"must be {unit} from 0 to {most:g}, not {value!r}")
    return float(value)


def factor(where: str, value: Json) -> float:
    """What something is multiplied by."""
    if not _number(value) or not 1e-6 <= value <= 1e6:
        raise InvalidDocument(where, f"must be a number from 0.000001 to 1000000, not {value!r}")
    return float(value)


def prefix(where: str, value: Json, prompt: int) -> tuple[tuple[str, int], ...]:
    """[key, tokens] pairs, each longer than the one before and within the prompt."""
    if not isinstance(value, list):
        raise InvalidDocument(where, "must be a list of [key, tokens]")
    found: list[tuple[str, int]] = []
    for pair in value:
        if not isinstance(pair, list) or len(pair) != 2:
            raise InvalidDocument(where, f"{pair!r} must be [key, tokens]")
        key, length = text(where, pair[0]), tokens(where, pair[1], 1)
        if length > prompt or (found and length <= found[-1][1]):
            raise InvalidDocument(where, f"{length} tokens must be more than those before it, and within the prompt")
        found.append((key, length))
    return tuple(found)


def _whole_characters(value: str) -> str:
    return value.encode("utf-8", "ignore").decode("utf-8")


def _number(value: Json) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
