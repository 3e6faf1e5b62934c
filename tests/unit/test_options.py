"""What the command line takes from people, before anything is started."""

import pytest
from click.testing import CliRunner

from hexgen_flow.cli import main


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--instance", "a b"], "'--instance': 'a b' must be 1 to 128 letters, digits, -, _, . and :"),
        (["--instance", "a" * 129], "'--instance': "),
        (["--instance", ""], "'--instance': '' must be"),
        (["--instance", "tools"], "not 'line' or 'tools', which are queues of their own"),
        (["--instance", "line"], "not 'line' or 'tools', which are queues of their own"),
        (["--label", "very fast"], "'--label': 'very fast' must be 1 to 128 letters"),
        (["--label", ""], "'--label': '' must be"),
        (["--model", ""], "'--model': '' must be 1 to 256 printable characters"),
        (["--model", " m"], "'--model': ' m' must be"),
        (["--model", "m\n"], "'--model': 'm\\n' must be"),
        (["--grace-s", "nan"], "'--grace-s': nan must be a finite number"),
        (["--stall-s", "0"], "'--stall-s': 0.0 is not in the range"),
        (["--time-scale", "inf"], "'--time-scale': inf must be a finite number"),
        (["--time-scale", "0"], "'--time-scale': 0.0 is not in the range"),
        (["--lease-s", "0.1"], "--lease-s / HEXGEN_LEASE_S: 0.1 must be at least 0.5"),
        (["--lease-s", "nan"], "--lease-s / HEXGEN_LEASE_S: nan must be a finite number"),
        (["--log-level", "banana"], "--log-level / HEXGEN_LOG_LEVEL: 'banana' must be one of DEBUG"),
        (["--redis", "redis://host/abc"], "--redis / HEXGEN_REDIS_URL: what follows the host must be"),
    ],
)
def test_a_worker_refuses_what_it_cannot_use(options: list[str], said: str) -> None:
    given = options if "--instance" in options else ["--instance", "a", *options]
    result = CliRunner().invoke(main, ["worker", "--engine", "noop", *given])
    assert result.exit_code > 0
    assert said in result.output


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("harm", "'--parameter': 'harm' must be a name, =, and a number"),
        ("harm=much", "'--parameter': 'harm=much' must be a name, =, and a number"),
        ("harm=inf", "--parameter / HEXGEN_PARAMETERS.harm: inf must be a finite number"),
        (
            "charm=1",
            "--parameter / HEXGEN_PARAMETERS: charm: is no parameter of policy flow: leave it out; it takes wait, ",
        ),
    ],
)
def test_a_coordinator_refuses_a_parameter_that_its_policy_does_not_have(given: str, said: str) -> None:
    result = CliRunner().invoke(main, ["coordinator", "--parameter", given])
    assert result.exit_code > 0
    assert said in result.output + str(result.exception)


def test_a_coordinator_refuses_an_alpha_for_a_policy_that_has_none() -> None:
    result = CliRunner().invoke(main, ["coordinator", "--policy", "vllm", "--alpha", "0.3"])
    said = "--alpha / HEXGEN_ALPHA: is no parameter of policy vllm: leave it out; it takes fairness, hopeless_last"
    assert (result.exit_code, result.output) == (2, f"Error: {said}\n")


def test_a_coordinator_refuses_an_alpha_that_is_no_number() -> None:
    result = CliRunner().invoke(main, ["coordinator", "--alpha", "nan"])
    assert "'--alpha': nan must be a finite number" in result.output
