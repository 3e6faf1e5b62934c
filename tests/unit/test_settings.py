"""Settings from the environment and flags, and what bad ones say."""

import pytest

from common.errors import InvalidDocument
from common.settings import load


def test_flags_go_over_the_environment_over_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEXGEN_NAMESPACE", "from-env")
    monkeypatch.setenv("HEXGEN_LEASE_S", "7.5")
    found = load(namespace="from-flag", lease_s=None)
    assert (found.namespace, found.lease_ms, found.policy) == ("from-flag", 7500, "hexgen")


def test_databases_come_as_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEXGEN_DATABASES", '{"bank": "sqlite:///bank.sqlite"}')
    assert load().databases == {"bank": "sqlite:///bank.sqlite"}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("HEXGEN_DATABASES", "bank=sqlite"),
        ("HEXGEN_LEASE_S", "0"),
        ("HEXGEN_LEASE_S", "soon"),
        ("HEXGEN_ALPHA", "1.5"),
        ("HEXGEN_DEFAULT_SLO_S", "nan"),
        ("HEXGEN_KEEP_DONE_S", "-1"),
    ],
)
def test_a_bad_value_names_its_setting(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(InvalidDocument) as caught:
        load()
    assert caught.value.field == name.removeprefix("HEXGEN_").lower()
