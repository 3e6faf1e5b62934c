"""Each test that docs/promises.md names is there."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NAMED = re.findall(r"`(\w+)::(\w+)`", (ROOT / "docs" / "promises.md").read_text().partition("\n## Kept\n")[2])


def test_there_are_promises() -> None:
    assert len(NAMED) > 30


def test_what_is_said_to_show_a_promise_is_there() -> None:
    sources = {path.stem: path.read_text() for path in (ROOT / "tests").glob("*/test_*.py")}
    missing = [f"{file}::{name}" for file, name in NAMED if f"def test_{name}(" not in sources.get(f"test_{file}", "")]
    assert missing == []
