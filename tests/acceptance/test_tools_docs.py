"""The tool of docs/tools.md, installed as it stands there."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from deployment import Deployment

from common.store.embedded import EmbeddedServer
from hexgen_flow.client import WorkflowFailed

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "tools.md").read_text("utf-8")


def block(name: str) -> str:
    found = re.search(rf"^<!-- test: {re.escape(name)} -->\n+```\w+\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
    assert found
    return found[1]


def test_a_tool_of_ones_own(server: EmbeddedServer, namespace: str, tmp_path: Path) -> None:
    package, home = tmp_path / "package", tmp_path / "home"
    package.mkdir()
    for name in ("pyproject.toml", "shop_tools.py"):
        (package / name).write_text(block(name))
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(home), str(package)]
    subprocess.run(command, check=True, timeout=120)
    flow = yaml.safe_load(block("stock.yaml"))
    with Deployment(server, namespace, tmp_path, PYTHONPATH=str(home)) as cell:
        cell.define(flow)
        cell.tools()
        assert cell.client.wait(cell.client.submit("stock", {"article": "tea"}), timeout_s=60)["output"] == 12
        with pytest.raises(WorkflowFailed, match="there is no article 'gold'"):
            cell.client.wait(cell.client.submit("stock", {"article": "gold"}), timeout_s=60)
