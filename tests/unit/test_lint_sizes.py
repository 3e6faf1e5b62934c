"""The size rules of scripts/lint_sizes.py, each on a small tree that breaks it and on its limit."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "lint_sizes.py"


def faults(root: Path, path: str, text: str) -> list[str]:
    """What the script, copied into a tree with this one file, says of the file."""
    for target, content in ((root / "scripts" / SCRIPT.name, SCRIPT.read_text()), (root / path, text)):
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(content)
    done = subprocess.run([sys.executable, root / "scripts" / SCRIPT.name], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert done.returncode == bool(done.stdout)
    return done.stdout.splitlines()


def function(lines: int) -> str:
    return "def f():\n" + "    pass\n" * (lines - 1)


DOC = '"""What lives here."""\n'
EXPORT = DOC + '\nfrom hexgen_flow.client import Client\n\n__all__ = ["Client"]\n'


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("common/a.py", "x = 1\n" * 400),
        ("common/a.py", function(60)),
        ("common/store/lua/a.lua", "-- KEYS\n" * 30 + "\n" + "return 1\n" * 60),
        ("coordinator/loops/__init__.py", DOC),
        ("hexgen_flow/__init__.py", EXPORT),
        ("tests/unit/test_a.py", function(60)),
    ],
)
def test_at_the_limit_nothing_is_said(tmp_path: Path, path: str, text: str) -> None:
    assert faults(tmp_path, path, text) == []


@pytest.mark.parametrize(
    ("path", "text", "said"),
    [
        ("common/a.py", "x = 1\n" * 401, "common/a.py:1: 401 lines; a file has at most 400"),
        ("workers/a.py", "\n" + function(61), "workers/a.py:2: f has 61 lines"),
        (
            "workers/a.py",
            "class A:\n    async " + function(61).replace("\n", "\n    "),
            "workers/a.py:2: f has 61 lines",
        ),
        ("common/store/lua/a.lua", "return 1\n" * 61, "common/store/lua/a.lua:1: 61 lines of code"),
        ("coordinator/__init__.py", "", "coordinator/__init__.py:1: a room begins with a docstring"),
        ("coordinator/__init__.py", DOC + "import os\n", "coordinator/__init__.py:2: a room's __init__.py holds"),
        ("workers/tools/__init__.py", EXPORT, "workers/tools/__init__.py:3: a room's __init__.py holds"),
        (
            "hexgen_flow/__init__.py",
            DOC + "from hexgen_flow.client import Other\n",
            "hexgen_flow/__init__.py:2: a room's",
        ),
    ],
)
def test_past_the_limit_the_place_and_the_rule_are_named(tmp_path: Path, path: str, text: str, said: str) -> None:
    found = faults(tmp_path, path, text)
    assert found
    assert found[0].startswith(said)
