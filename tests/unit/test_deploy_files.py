"""Procfile, Dockerfile and compose.yaml name services and commands that exist, with options that these take."""

import json
import os
import re
import shlex
import subprocess
import time
import tomllib
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from common.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
ROLES = {"coordinator", "worker", "tools", "tuner"}
Stage = list[list[str]]


def compose() -> Any:
    return yaml.safe_load((ROOT / "docker" / "compose.yaml").read_text())


def parts() -> dict[str, Any]:
    """The services that run our own images."""
    return {name: service for name, service in compose()["services"].items() if "build" in service}


def docker_stages() -> dict[str, Stage]:
    """The Dockerfile's instructions as words, by the name of their stage."""
    text = (ROOT / "docker" / "Dockerfile").read_text().replace("\\\n", " ")
    stages: dict[str, Stage] = {}
    for line in text.splitlines():
        words = line.split()
        if words and words[0] == "FROM":
            stages[words[3]] = [words]
        elif words and not words[0].startswith("#"):
            stages[list(stages)[-1]].append(words)
    return stages


def entrypoint(target: str) -> list[str]:
    words = docker_stages()[target][-1]
    assert words[0] == "ENTRYPOINT"
    command: list[str] = json.loads(" ".join(words[1:]))
    return command


def procfile() -> dict[str, list[str]]:
    lines = (ROOT / "Procfile").read_text().splitlines()
    named = (line.partition(": ") for line in lines if not line.startswith("#"))
    return {name: shlex.split(command) for name, _, command in named}


def parse(words: list[str]) -> str:
    """The command that these words run. Raises click.UsageError if it does not take them."""
    from hexgen_flow.cli import main

    assert words[0] == "hexgen-flow"
    with main.make_context("hexgen-flow", ["--help"], resilient_parsing=True) as root:
        command = main.get_command(root, words[1])
        assert command is not None, f"there is no command {words[1]}"
        with command.make_context(words[1], words[2:], parent=root):
            return words[1]


@pytest.fixture(autouse=True)
def _redis_url(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEXGEN_REDIS_URL", "redis://127.0.0.1:6379/0")


def test_the_procfile_runs_every_role_that_needs_no_extra() -> None:
    assert {parse(words) for words in procfile().values()} == ROLES - {"tuner"}  # when one ends, all do


def test_compose_runs_every_role() -> None:
    commands = [entrypoint(part["build"]["target"]) + part.get("command", []) for part in parts().values()]
    assert {parse(words) for words in commands} == ROLES


def test_a_wrong_option_would_be_seen() -> None:
    with pytest.raises(click.NoSuchOption):
        parse(["hexgen-flow", "worker", "--no-such-option"])


def test_workers_are_unequal_and_named_once() -> None:
    for commands in (
        [words for words in procfile().values() if words[1] == "worker"],
        [part["command"] for name, part in parts().items() if name.startswith("worker")],
    ):
        profiles = [words[words.index("--profile") + 1] for words in commands]
        instances = [words[words.index("--instance") + 1] for words in commands]
        assert len(commands) == len(set(profiles)) == len(set(instances)) == 2


def test_compose_runs_two_coordinators_on_a_durable_redis() -> None:
    services = compose()["services"]
    assert services["coordinator"]["scale"] == 2
    options = services["redis"]["command"]
    assert options[options.index("--appendonly") + 1] == "yes"
    assert options[options.index("--maxmemory-policy") + 1] == "noeviction"
    assert services["redis"]["volumes"] == ["redis-data:/data"]
    assert all(port.startswith("127.0.0.1:") for port in services["redis"]["ports"])


def test_every_part_waits_for_redis_and_knows_it() -> None:
    for name, part in parts().items():
        assert part["environment"]["HEXGEN_REDIS_URL"] == "redis://redis:6379/0", name
        assert set(part["environment"]) - {"HEXGEN_REDIS_URL"} == ({"HEXGEN_DATABASES"} if name == "tools" else set())
        assert part["depends_on"]["redis"]["condition"] == "service_healthy", name
        assert (ROOT / "docker" / part["build"]["context"]).resolve() == ROOT, name
        assert (ROOT / part["build"]["dockerfile"]).is_file(), name


def test_extras_exist_and_the_tuner_has_what_it_simulates_with() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    given = {name: part["build"]["args"]["EXTRAS"] for name, part in parts().items() if "args" in part["build"]}
    (default,) = [words[1] for words in docker_stages()["build"] if words[0] == "ARG"]
    assert {default.removeprefix("EXTRAS="), *given.values()} <= set(extras)
    assert given["tuner"] == "sim"
    assert any(wanted.startswith("numba") for wanted in extras["sim"])


def test_images_come_from_one_base_and_do_not_run_as_root() -> None:
    stages = docker_stages()
    assert {name for name in stages if stages[name][0][1] == "base"} == ROLES
    assert {stages[name][0][1] for name in ("build", "base")} == {"python:3.11-slim-bookworm"}
    user = next(words[1] for words in stages["base"] if words[0] == "USER")
    assert int(user.split(":")[0]) > 0


def test_the_health_check_looks_at_the_age_of_the_file(tmp_path: Path) -> None:
    text = (ROOT / "docker" / "Dockerfile").read_text().replace("\\\n", " ")
    (command,) = re.findall(r"^HEALTHCHECK .* CMD (.+)$", text, flags=re.MULTILINE)
    (variable,) = [word for words in docker_stages()["base"] for word in words if word.startswith("HEXGEN_")]
    name, _, place = variable.partition("=")
    assert name.removeprefix("HEXGEN_").lower() in Settings.model_fields
    assert Path(place).parent == Path("/dev/shm")  # a tmpfs in every container, also in one whose root is read-only
    file = tmp_path / "healthy"

    def code() -> int:
        own = os.environ | {name: str(file)}
        return subprocess.run(json.loads(command), env=own, stderr=subprocess.DEVNULL, check=False).returncode

    assert code() == 1
    file.touch()
    assert code() == 0
    os.utime(file, (time.time() - 20, time.time() - 20))
    assert code() == 1
    assert docker_stages()["tuner"][1] == ["HEALTHCHECK", "NONE"]  # it touches none


def test_the_image_is_given_all_that_the_wheel_is_built_from() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    rooms = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    needed = {*rooms, *project["project"]["license-files"], project["project"]["readme"], "pyproject.toml"}
    let_in = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert let_in == needed
