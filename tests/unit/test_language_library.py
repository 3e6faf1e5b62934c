"""Definitions from folders."""

import json

import pytest

from coordinator.language.errors import DefinitionError
from coordinator.language.library import load_file, load_folder, load_library


def write(folder, file, name, tool="t"):
    document = {"name": name, "stages": {"a": {"tool": tool}}}
    (folder / file).write_text(json.dumps(document), encoding="utf-8")


def refusal(call) -> str:
    with pytest.raises(DefinitionError) as caught:
        call()
    return str(caught.value)


def test_a_folder_of_yaml_and_json(tmp_path):
    write(tmp_path, "b.json", "second")
    (tmp_path / "a.yaml").write_text(
        "name: first\nstages:\n  é: {}\n".replace("é: {}", "x: {tool: t}"), encoding="utf-8"
    )
    (tmp_path / "c.yml").write_text("name: third\nstages: {x: {tool: t}}", encoding="utf-8")
    (tmp_path / "notes.txt").write_text("not: [a definition", encoding="utf-8")
    (tmp_path / ".hidden.yaml").write_text("not: [a definition", encoding="utf-8")
    (tmp_path / "sub").mkdir()
    found = load_folder(tmp_path)
    assert list(found) == ["first", "second", "third"]
    assert all(name == definition.name for name, definition in found.items())


def test_an_own_definition_replaces_a_built_in_one(tmp_path):
    built_in, own = tmp_path / "built_in", tmp_path / "own"
    for folder in (built_in, own):
        folder.mkdir()
        write(folder, "x.json", "shared", tool=folder.name)
        write(folder, "y.json", folder.name)
    library = load_library(built_in, own)
    assert set(library) == {"shared", "built_in", "own"}
    assert library["shared"].stages["a"].body.tool == "own"
    assert load_library(built_in)["shared"].stages["a"].body.tool == "built_in"


def test_faults_name_the_file(tmp_path):
    (tmp_path / "bad.yaml").write_text("name: a\nstages: {x: {toool: t}}", encoding="utf-8")
    assert refusal(lambda: load_folder(tmp_path)).startswith(
        "bad.yaml: stages.x.toool: is not a key of a stage; did you mean"
    )
    (tmp_path / "bad.yaml").write_bytes(b"name: \xff")
    assert refusal(lambda: load_folder(tmp_path)) == "bad.yaml: is not UTF-8 text"
    (tmp_path / "bad.yaml").write_text("a: " + "x" * (1 << 20), encoding="utf-8")
    assert refusal(lambda: load_folder(tmp_path)) == "bad.yaml: document: is longer than 1048576 bytes"
    assert refusal(lambda: load_file(tmp_path / "none.yaml")) == "none.yaml: cannot be read: No such file or directory"
    assert refusal(lambda: load_folder(tmp_path / "none")).endswith("none: is not a folder")


def test_one_name_twice_in_a_folder(tmp_path):
    write(tmp_path, "a.json", "same")
    write(tmp_path, "b.json", "same")
    assert refusal(lambda: load_folder(tmp_path)) == "b.json: name: 'same' is already the name in a.json"
