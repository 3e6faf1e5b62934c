"""The inputs of a submission as the command line gives them: pairs of name and text, and files. Reads files only."""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from common.errors import InvalidDocument
from common.model import Json
from coordinator.language.document import parse_document
from coordinator.language.errors import DefinitionError


def read_pairs(pairs: Sequence[str]) -> dict[str, str]:
    """NAME=VALUE as name and text. Raises InvalidDocument."""
    found: dict[str, str] = {}
    for pair in pairs:
        name, is_pair, text = pair.partition("=")
        if not is_pair:
            raise InvalidDocument("--input", f"{pair!r} is not NAME=VALUE")
        if not _is_utf8(pair):
            raise InvalidDocument("--input", f"{name!r} is not UTF-8 text")
        if name in found:
            raise InvalidDocument("--input", f"{name!r} is given twice")
        found[name] = text
    return found


def read_file(file: Path | None) -> dict[str, Json]:
    """The mapping in a file, YAML or JSON; `-` is standard input. Raises InvalidDocument."""
    if file is None:
        return {}
    try:
        data = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
        return parse_document(data.decode(), "a mapping of inputs")
    except UnicodeDecodeError:
        raise InvalidDocument("--inputs", f"{file} is not UTF-8 text") from None
    except OSError as error:
        raise InvalidDocument("--inputs", f"{file} cannot be read: {error.strerror}") from None
    except DefinitionError as fault:
        raise InvalidDocument("--inputs", f"{file}: {fault}") from None


def together(given: Mapping[str, Json], pairs: Mapping[str, str], types: Mapping[str, str]) -> dict[str, Json]:
    """All inputs. The text of a pair stays text where a string is declared; else it is JSON, if it can be read as that.

    Raises InvalidDocument for a name that is in both.
    """
    twice = given.keys() & pairs.keys()
    if twice:
        raise InvalidDocument("--input", f"{min(twice)!r} is given twice, also by --inputs")
    return {**given, **{name: text if types.get(name) == "string" else _value(text) for name, text in pairs.items()}}


def _value(text: str) -> Json:
    try:
        return json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return text


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _is_utf8(text: str) -> bool:
    """Whether an argument was: what is not comes with halves of surrogate pairs in place of its bytes."""
    return not any("\ud800" <= letter <= "\udfff" for letter in text)
