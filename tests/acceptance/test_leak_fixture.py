"""Tests are checked for what they leave, without asking for it; one that leaves strange keys on purpose says why."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TESTS = """
import pytest

async def leave(cell, key):
    await cell.client.hset(cell.keys.prefix + key, "x", 1)

async def test_clean(cell):
    await leave(cell, "ended")

async def test_leaking(cell):
    await leave(cell, "request:r1")

@pytest.mark.strange_keys("on purpose")
async def test_strange(cell):
    await leave(cell, "novel")

async def test_sharing_a_namespace(server):
    from common.store.cell import Cell
    async with Cell.opened(server.url, "shared") as cell:
        await leave(cell, "leases")
"""


@pytest.mark.slow
def test_each_test_is_checked(tmp_path: Path) -> None:
    (tmp_path / "test_those.py").write_text(TESTS)
    shutil.copy(ROOT / "tests" / "conftest.py", tmp_path)
    command = [sys.executable, "-m", "pytest", "-c", str(ROOT / "pyproject.toml"), "-p", "no:cacheprovider",
               "--rootdir", str(tmp_path), str(tmp_path / "test_those.py")]  # fmt: skip
    places = os.pathsep.join([str(ROOT / "tests" / "acceptance"), str(ROOT)])
    done = subprocess.run(
        command, env=os.environ | {"PYTHONPATH": places}, cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    said = done.stdout
    assert "4 passed, 2 errors" in said, said + done.stderr
    assert "request:r1, a hash, stays for ever" in said
    assert "{'shared': ['leases, a hash, is not in docs/protocol.md', 'leases, a hash, stays for ever']}" in said
    assert "novel" not in said
