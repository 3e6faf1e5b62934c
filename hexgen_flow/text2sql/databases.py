"""Makes the data set's two SQLite databases in a directory, the same rows every time. Knows no question about them."""

import os
import random
import sqlite3
import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from hexgen_flow.text2sql import bank, racing

VERSION = 1
"""Goes into each file's `user_version`; a file of another version is made again."""

_SEED = 20240229
_BUILDERS: dict[str, Callable[[sqlite3.Connection, random.Random], None]] = {"bank": bank.build, "racing": racing.build}


def materialise(directory: Path) -> dict[str, str]:
    """Make what is missing below `directory` (`<name>/<name>.sqlite`) and return name -> SQLAlchemy URL.

    Safe to call from several processes at once and again. Raises OSError where the directory cannot be written.
    """
    paths = {name: directory.absolute() / name / f"{name}.sqlite" for name in _BUILDERS}
    for name, path in paths.items():
        if not _is_current(path):
            _make(name, path)
    return {name: f"sqlite:///{path}" for name, path in paths.items()}


def _is_current(path: Path) -> bool:
    if not path.is_file():
        return False
    try:
        with closing(sqlite3.connect(path)) as connection:
            version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    except sqlite3.DatabaseError:
        return False
    return version == VERSION


def _make(name: str, path: Path) -> None:
    # Built beside its place and renamed, so that nobody ever reads half a database.
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, draft = tempfile.mkstemp(prefix=f".{name}-", dir=path.parent)
    os.close(handle)
    try:
        with closing(sqlite3.connect(draft)) as connection:
            connection.executescript((Path(__file__).parent / f"{name}.sql").read_text(encoding="utf-8"))
            _BUILDERS[name](connection, random.Random(f"{_SEED}-{name}"))
            connection.execute(f"PRAGMA user_version = {VERSION}")
            connection.commit()
        os.chmod(draft, 0o644)
        os.replace(draft, path)
    finally:
        Path(draft).unlink(missing_ok=True)
