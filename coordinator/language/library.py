"""Definitions from files: reads folders of *.yaml, *.yml and *.json. The only part of the language that does I/O."""

from pathlib import Path

from coordinator.language.compiler import compile_definition
from coordinator.language.definition import Definition
from coordinator.language.document import DOCUMENT_BYTES, PLACE, parse_document
from coordinator.language.errors import DefinitionError

_SUFFIXES = frozenset({".yaml", ".yml", ".json"})


def load_file(file: Path) -> Definition:
    """The definition in a file. Raises DefinitionError whose path begins with the file's name."""
    try:
        if file.stat().st_size > DOCUMENT_BYTES:
            raise DefinitionError(PLACE, f"is longer than {DOCUMENT_BYTES} bytes")
        return compile_definition(parse_document(file.read_text(encoding="utf-8")))
    except DefinitionError as fault:
        raise DefinitionError(f"{file.name}: {fault.path}", fault.message) from None
    except UnicodeDecodeError:
        raise DefinitionError(file.name, "is not UTF-8 text") from None
    except OSError as error:
        raise DefinitionError(file.name, f"cannot be read: {error.strerror}") from None


def load_folder(folder: Path) -> dict[str, Definition]:
    """The definitions in a folder by name, in the order of the files' names. Raises DefinitionError."""
    if not folder.is_dir():
        raise DefinitionError(str(folder), "is not a folder")
    found: dict[str, Definition] = {}
    origins: dict[str, str] = {}
    for file in sorted(folder.iterdir()):
        if file.suffix not in _SUFFIXES or file.name.startswith("."):
            continue
        definition = load_file(file)
        if definition.name in found:
            taken = origins[definition.name]
            raise DefinitionError(f"{file.name}: name", f"{definition.name!r} is already the name in {taken}")
        found[definition.name] = definition
        origins[definition.name] = file.name
    return found


def load_library(built_in: Path, *own: Path) -> dict[str, Definition]:
    """The definitions of all folders by name; one of a later folder replaces a built-in or earlier one of its name."""
    library = load_folder(built_in)
    for folder in own:
        library |= load_folder(folder)
    return library
