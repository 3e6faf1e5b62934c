"""The evaluation as a sketch: every section gives its figures; policies stand in the order they are made for."""

import importlib
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_a_sketch_of_the_evaluation(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "scripts" / "evaluation" / "evaluate.py"), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr
    sections = json.loads(done.stdout)["sections"]
    assert set(sections) == {"bars", "policies", "tenants", "parts", "paper", "hardship"}
    assert all(rows and all(rows) for rows in sections.values())
    for row in sections["bars"]:
        assert np.exp(np.log(row["ratios"]).mean()) > 1.0, row
    for row in sections["policies"]:
        assert row["policies"]["flow"]["p95"] < row["policies"]["hexgen:best"]["p95"] < row["policies"]["vllm"]["p95"]


def test_its_tables_go_into_the_document(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "scripts" / "evaluation")
    report = importlib.import_module("report")
    document = tmp_path / "evaluation.md"
    document.write_text("before\n<!-- figures: parts -->\nold\n<!-- end -->\nafter\n")
    row = {
        "cluster": "c", "cache": False, "arrivals": "poisson", "ratios": {"as it is": [[1.1, 1.3]]},
        "attainment": {"as it is": [0.9]},
    }  # fmt: skip
    report.replace_in(document, report.tables({"parts": [row]}))
    text = document.read_text()
    assert "| no | poisson | as it is | 1.196 ± 0.100 | 1.196 | 90.0 |" in text
    assert text.startswith("before\n")
    assert text.endswith("<!-- end -->\nafter\n")
    assert "old" not in text
