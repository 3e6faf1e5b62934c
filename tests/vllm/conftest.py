"""Only for the tests on a real vLLM: it leaves a ZeroMQ context to the garbage collector, which is not our leak."""

import pytest


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("filterwarnings", "ignore:Unclosed context <zmq:ResourceWarning")
