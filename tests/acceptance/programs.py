"""Programs of the system that tests need. Not a test itself."""

import os
import shutil
from pathlib import Path

import pytest


def needed(program: str) -> str:
    """Where a program is. Missing, the test is skipped, but not in CI."""
    found = shutil.which(program)
    if found is None:
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(f"{program} is not on PATH")
    return str(found)


def debian_redis(folder: Path) -> Path:
    """Debian's server, made in `folder`: its package redis-tools has the same binary, which looks at its name."""
    program = folder / "redis-server"
    program.symlink_to(needed("redis-check-rdb"))
    return program
