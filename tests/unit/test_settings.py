"""Settings from the environment and flags, and what bad ones say."""

from typing import Any

import pytest

from common.errors import InvalidDocument
from common.policy.registry import policy
from common.settings import load


def test_flags_go_over_the_environment_over_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEXGEN_NAMESPACE", "from-env")
    monkeypatch.setenv("HEXGEN_LEASE_S", "7.5")
    found = load(namespace="from-flag", lease_s=None)
    assert (found.namespace, found.lease_ms, found.policy) == ("from-flag", 7500, "flow")


def test_databases_come_as_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEXGEN_DATABASES", '{"bank": "sqlite:///bank.sqlite"}')
    assert load().databases == {"bank": "sqlite:///bank.sqlite"}


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("HEXGEN_LEASE_S", "0.1", "--lease-s / HEXGEN_LEASE_S: 0.1 must be at least 0.5"),
        ("HEXGEN_LEASE_S", "nan", "--lease-s / HEXGEN_LEASE_S: nan must be a finite number"),
        ("HEXGEN_LEASE_S", "soon", "--lease-s / HEXGEN_LEASE_S: 'soon' must be a number"),
        ("HEXGEN_ALPHA", "1.5", "--alpha / HEXGEN_ALPHA: 1.5 must be at most 1"),
        ("HEXGEN_ALPHA", "nan", "--alpha / HEXGEN_ALPHA: nan must be a finite number"),
        ("HEXGEN_POLICY", "fifo", "--policy / HEXGEN_POLICY: 'fifo' is not one of vllm, ray, vtc, "
         "qlm, llf, llf-workflow, low, hexgen, hexgen-no-wb, hexgen-no-pq, flow"),
        ("HEXGEN_NAMESPACE", "a b", "--namespace / HEXGEN_NAMESPACE: 'a b' must be letters, digits, - and _"),
        ("HEXGEN_LOG_LEVEL", "banana", "--log-level / HEXGEN_LOG_LEVEL: 'banana' must be one of DEBUG, INFO, WARNING, "
         "ERROR; DEBUG,redis=DEBUG also shows a library's"),
        ("HEXGEN_REDIS_URL", "redis://host/abc", "--redis / HEXGEN_REDIS_URL: what follows the host must be a "
         "database's number: redis://HOST:PORT/0"),
        ("HEXGEN_DEFAULT_SLO_S", "nan", "HEXGEN_DEFAULT_SLO_S: nan must be a finite number"),
        ("HEXGEN_HOPELESS", "last", "HEXGEN_HOPELESS: 'last' must be 'accept' or 'refuse'"),
        ("HEXGEN_KEEP_DONE_S", "-1", "HEXGEN_KEEP_DONE_S: -1 must be above 0"),
        ("HEXGEN_LEASE_LOSSES", "1.5", "HEXGEN_LEASE_LOSSES: '1.5' must be a whole number"),
        ("HEXGEN_DATABASES", "bank=sqlite", 'HEXGEN_DATABASES: must be a JSON object such as '
         '{"bank": "sqlite:///bank.sqlite"}'),
        ("HEXGEN_DATABASES", '{"bank": 5}', "HEXGEN_DATABASES.bank: must be text"),
        ("HEXGEN_PARAMETERS", "[1]", '--parameter / HEXGEN_PARAMETERS: must be a JSON object such as {"harm": 2.5}'),
        ("HEXGEN_PARAMETERS", '{"harm": "much"}', "--parameter / HEXGEN_PARAMETERS.harm: 'much' must be a number"),
    ],
)  # fmt: skip
def test_a_bad_value_is_told_with_its_flag_and_its_variable(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, said: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(InvalidDocument) as caught:
        load()
    assert str(caught.value) == said


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"parameters": {"harm": -1}}, "--parameter / HEXGEN_PARAMETERS: harm: must be a number from 0, not -1.0"),
        ({"parameters": {"alpha": 0.5}}, "--parameter / HEXGEN_PARAMETERS: alpha: is no parameter of policy flow: "
         "leave it out; it takes wait, decode, harm, harm_decode, urgency, path, fairness, hopeless_last"),
        ({"policy": "hexgen", "parameters": {"wait": 1}}, "--parameter / HEXGEN_PARAMETERS: wait: is no parameter of "
         "policy hexgen: leave it out; it takes alpha, r, floor_s, fairness, hopeless_last"),
        ({"policy": "hexgen", "alpha": 0.3, "parameters": {"alpha": 2}},
         "--parameter / HEXGEN_PARAMETERS: alpha: 2.0 must be between 0 and 1"),
        ({"policy": "ray", "alpha": 0.3}, "--alpha / HEXGEN_ALPHA: is no parameter of policy ray: leave it out; "
         "it takes fairness, hopeless_last"),
    ],
)  # fmt: skip
def test_a_number_that_the_policy_does_not_take_is_refused_where_the_policy_is_used(
    settings: dict[str, Any], said: str
) -> None:
    found = load(**settings)  # a worker in the same environment does not care
    with pytest.raises(InvalidDocument) as caught:
        found.rules()
    assert str(caught.value) == said


def test_alpha_is_one_of_the_parameters() -> None:
    assert load(policy="hexgen", alpha=0.3).rules() == policy("hexgen", {"alpha": 0.3})
    assert load(policy="hexgen").rules() == policy("hexgen", {"alpha": 0.5})
    assert load(policy="hexgen", alpha=0.3, parameters={"floor_s": 2}).values == {"alpha": 0.3, "floor_s": 2}


def test_what_is_set_as_r_is_told_as_alpha_so_that_the_tuner_knows_what_is_in_force() -> None:
    found = load(policy="hexgen", alpha=0.3, parameters={"r": 10, "floor_s": 2})
    assert found.rules().r == 10
    assert found.values == {"alpha": pytest.approx(100 / 110), "floor_s": 2}
    assert policy("hexgen", found.values).r == pytest.approx(10)


def test_an_empty_variable_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ALPHA", "PARAMETERS", "REDIS_URL"):
        monkeypatch.setenv(f"HEXGEN_{name}", "")
    assert load() == load(redis_url="redis://127.0.0.1:6379/0")
