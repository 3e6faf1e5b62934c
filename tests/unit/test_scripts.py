"""scripts/lib.sh chooses a Python, or says what to install."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"


def find_python(bin_dir: Path, **environment: str) -> "subprocess.CompletedProcess[str]":
    code = '. "$(dirname -- "$0")/lib.sh"; find_python; echo "$python"'
    shell = shutil.which("sh")
    assert shell is not None
    return subprocess.run(
        [shell, "-eu", "-c", code, str(SCRIPTS / "check")],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": str(bin_dir), **environment},
    )


@pytest.fixture
def bin_dir(tmp_path: Path) -> Path:
    dirname = shutil.which("dirname")
    assert dirname is not None
    os.symlink(dirname, tmp_path / "dirname")
    return tmp_path


def interpreter(bin_dir: Path, name: str, version: tuple[int, int], venv: bool = True) -> None:
    """A program that answers the script's questions as a Python of this version would."""
    major, minor = version
    path = bin_dir / name
    path.write_text(
        f'#!/bin/sh\ncase "$2" in\n*print*) echo {major}.{minor} ;;\n'
        f"*exit*) exit {int(version < (3, 11))} ;;\n*venv*) exit {int(not venv)} ;;\nesac\n"
    )
    path.chmod(0o755)


def test_the_first_that_will_do_is_taken(bin_dir: Path) -> None:
    interpreter(bin_dir, "python3", (3, 9))
    interpreter(bin_dir, "python3.13", (3, 13), venv=False)
    interpreter(bin_dir, "python3.11", (3, 11))
    done = find_python(bin_dir)
    assert (done.stdout, done.stderr, done.returncode) == ("python3.11\n", "", 0)


def test_a_named_one_is_preferred(bin_dir: Path) -> None:
    interpreter(bin_dir, "python3", (3, 13))
    interpreter(bin_dir, "mine", (3, 12))
    assert find_python(bin_dir, PYTHON="mine").stdout == "mine\n"


def test_too_old_says_which_version_is_needed(bin_dir: Path) -> None:
    interpreter(bin_dir, "python3", (3, 10))
    done = find_python(bin_dir)
    assert done.returncode == 1
    assert done.stderr.startswith("check: python3 is Python 3.10, but 3.11 or newer is needed: install it")


def test_no_venv_module_names_its_package(bin_dir: Path) -> None:
    interpreter(bin_dir, "python3", (3, 12), venv=False)
    done = find_python(bin_dir)
    assert done.returncode == 1
    assert "apt-get install python3-venv" in done.stderr


def test_no_python_names_the_packages(bin_dir: Path) -> None:
    done = find_python(bin_dir)
    assert done.returncode == 1
    assert "apt-get install python3 python3-venv" in done.stderr
