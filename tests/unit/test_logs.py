"""What is logged, and how."""

import logging
import re
import subprocess
import sys

import pytest

from common import logs

PROGRAM = """
import logging, sys
from common import logs
logs.configure(sys.argv[1])
for name in ("hexgen.worker", "redis", "asyncio"):
    for level in ("debug", "info", "warning", "error"):
        getattr(logging.getLogger(name), level)(f"{name} {level}")
"""


def lines(level: str) -> list[str]:
    """What a process with that level has said on stderr, each line checked for its form."""
    done = subprocess.run([sys.executable, "-c", PROGRAM, level], capture_output=True, text=True, check=True)
    found = [re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} ([A-Z]+) (\S+): \2 (\S+)", line)
             for line in done.stderr.splitlines()]  # fmt: skip
    assert done.stdout == ""
    return [f"{match[2]} {match[3]}" for match in found if match and match[1] == match[3].upper()]


@pytest.mark.parametrize(
    ("level", "ours", "redis"),
    [
        ("INFO", ["info", "warning", "error"], ["warning", "error"]),
        ("debug", ["debug", "info", "warning", "error"], ["warning", "error"]),
        ("ERROR", ["error"], ["error"]),
        ("INFO,redis=DEBUG", ["info", "warning", "error"], ["debug", "info", "warning", "error"]),
    ],
)
def test_libraries_are_quiet_unless_they_are_named(level: str, ours: list[str], redis: list[str]) -> None:
    said = lines(level)
    assert [line for line in said if line.startswith("hexgen")] == [f"hexgen.worker {name}" for name in ours]
    assert [line for line in said if line.startswith("redis")] == [f"redis {name}" for name in redis]
    assert "asyncio debug" not in said


def test_what_a_message_quotes_stays_on_its_line() -> None:
    form = logs.OneLine(logs.FORMAT)
    record = logging.makeLogRecord(
        {"name": "n", "msg": "said %s", "args": ("a\nb\x1b[31m\ud800 é",), "levelname": "INFO"}
    )
    line = form.format(record)
    assert line.endswith(r" INFO n: said a\nb\x1b[31m\ud800 é")
    try:
        raise KeyError("x")
    except KeyError:
        record.exc_info = sys.exc_info()
    assert form.format(record).splitlines()[1] == "Traceback (most recent call last):"


def test_many_things_are_summed_up() -> None:
    assert logs.several([]) == ""
    assert logs.several(range(3), 3) == "0, 1, 2"
    assert logs.several(range(40), 3) == "0, 1, 2 and 37 more"


@pytest.mark.parametrize("level", ["", "banana", "INFO,", "redis=loud"])
def test_an_unknown_level_is_refused(level: str) -> None:
    with pytest.raises(ValueError, match="one of DEBUG, INFO, WARNING, ERROR"):
        logs.levels(level)
