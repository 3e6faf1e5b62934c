"""scripts/lib.sh makes an environment once, for all who ask at the same time, and again when it should differ."""

import subprocess
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
CODE = '. "$(dirname -- "$0")/lib.sh"; ensure_venv "$@"'
MAKING = "making the environment"

pytestmark = pytest.mark.slow


def ensure(*arguments: str | Path) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        ["sh", "-eu", "-c", CODE, str(SCRIPTS / "check"), *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture(scope="module")
def venv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment that three runs made together."""
    venv = tmp_path_factory.mktemp("with space") / "venv"
    together = [ensure(venv, "pip") for _ in range(3)]
    said = [run.communicate() for run in together]
    assert [run.returncode for run in together] == [0, 0, 0]
    assert sorted(MAKING in err for _, err in said) == [False, False, True]
    assert {out for out, _ in said} == {""}
    return venv


def test_nothing_is_done_again_until_the_wish_changes(venv: Path) -> None:
    assert ensure(venv, "pip").communicate() == ("", "")
    assert MAKING in ensure(venv, "pip", "--no-deps").communicate()[1]
    assert ensure(venv, "pip", "--no-deps").communicate() == ("", "")


def test_an_environment_whose_python_is_gone_is_mended(venv: Path) -> None:
    python = venv / "bin" / "python"
    python.unlink()
    python.symlink_to("/no/such/python")
    assert MAKING in ensure(venv, "pip").communicate()[1]
    assert subprocess.run([python, "-c", "import pip"], check=False).returncode == 0


def test_a_failing_install_shows_why_and_is_tried_again(venv: Path) -> None:
    for _ in range(2):
        run = ensure(venv, venv / "nothing-here.whl")
        _, err = run.communicate()
        assert run.returncode == 1
        assert "nothing-here.whl" in err
        assert "check: this command failed" in err
