"""Questions with their gold SQL and the databases they are asked of: the project's own, or a BIRD folder of the user.

Reads files and makes the built-in databases; runs no query.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common.errors import HexgenError
from hexgen_flow.text2sql.databases import materialise

QUESTION_FILES = ("dev.json", "mini_dev.json", "mini_dev_sqlite.json")
DATABASE_FOLDER = "dev_databases"
_BUILT_IN = Path(__file__).parent / "questions.json"


class DataError(HexgenError):
    """The data set cannot be read; the message names the file or field and what should be there."""


@dataclass(frozen=True, slots=True)
class Question:
    """One question of a data set, in BIRD's terms; `sql` is the gold answer."""

    id: int
    database: str
    text: str
    evidence: str
    sql: str
    difficulty: str


@dataclass(frozen=True, slots=True)
class Dataset:
    """Questions, and the SQLAlchemy URL of each database by name."""

    questions: tuple[Question, ...]
    databases: Mapping[str, str]


def load_dataset(path: Path | None, directory: Path) -> Dataset:
    """The BIRD folder at `path`; without one the built-in data set, its databases made in `directory` if missing.

    Raises DataError.
    """
    questions = load_questions(path)
    if path is None:
        try:
            return Dataset(questions, materialise(directory))
        except OSError as error:
            raise DataError(f"the built-in databases cannot be made in {directory}: {error.strerror}") from None
    return Dataset(questions, _bird_databases(path, questions))


def load_questions(path: Path | None) -> tuple[Question, ...]:
    """The questions alone: of a BIRD folder, or built in. Raises DataError."""
    file = _BUILT_IN if path is None else _question_file(path)
    try:
        entries = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{file} cannot be read as JSON: {error}") from None
    if not isinstance(entries, list) or not entries:
        raise DataError(f"{file} must hold a list of questions")
    return tuple(_question(entry, index, file) for index, entry in enumerate(entries))


def _question_file(path: Path) -> Path:
    for name in QUESTION_FILES:
        if (path / name).is_file():
            return path / name
    raise DataError(f"{path} is no BIRD folder: it holds none of {', '.join(QUESTION_FILES)}")


def _question(entry: Any, index: int, file: Path) -> Question:
    if not isinstance(entry, dict):
        raise DataError(f"{file}: question {index} must be an object")
    for name in ("db_id", "question", "SQL"):
        if not isinstance(entry.get(name), str) or not entry[name].strip():
            raise DataError(f"{file}: question {index} needs a text under {name!r}")
    number = entry.get("question_id", index)
    if isinstance(number, bool) or not isinstance(number, int):
        raise DataError(f"{file}: question {index} needs a whole number under 'question_id', or none")
    evidence, difficulty = (str(entry.get(name) or "") for name in ("evidence", "difficulty"))
    return Question(number, entry["db_id"], entry["question"], evidence, entry["SQL"], difficulty)


def _bird_databases(path: Path, questions: tuple[Question, ...]) -> dict[str, str]:
    files = {
        name: (path / DATABASE_FOLDER / name / f"{name}.sqlite").absolute()
        for name in sorted({question.database for question in questions})
    }
    missing = [str(file) for file in files.values() if not file.is_file()]
    if missing:
        raise DataError(f"{len(missing)} databases of the questions are missing, the first at {missing[0]}")
    return {name: f"sqlite:///{file}" for name, file in files.items()}
