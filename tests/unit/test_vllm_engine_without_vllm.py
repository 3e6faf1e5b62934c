"""The vLLM engine where vLLM is not installed, and its settings, which do not need it."""

import sys
from types import SimpleNamespace

import pytest

from common.model import LlmCall, Sampling
from workers.engines import vllm_settings
from workers.engines.protocol import EngineCall, EngineError
from workers.engines.vllm_engine import VllmEngine


async def test_start_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vllm", None)
    for name in vllm_settings.ENVIRONMENT:
        monkeypatch.setenv(name, "as it was")
    engine = VllmEngine((), ["--model", "any"])
    with pytest.raises(EngineError, match=r"vLLM cannot be imported .* pip install 'hexgen-flow\[vllm\]'") as caught:
        await engine.start()
    assert not caught.value.retryable


async def test_before_start_it_serves_nobody_and_close_is_harmless() -> None:
    engine = VllmEngine(("m",), [])
    with pytest.raises(EngineError, match="not running"):
        await engine.health()
    with pytest.raises(EngineError, match="not running"):
        await anext(engine.generate(EngineCall("r", LlmCall("hello", None, "m", Sampling()), "w/s")))
    assert engine.load().running == 0
    await engine.abort("r")
    await engine.close()


def arguments(tensor_parallel: int = 1, backend: str | None = None) -> SimpleNamespace:
    return SimpleNamespace(
        tensor_parallel_size=tensor_parallel, pipeline_parallel_size=1, distributed_executor_backend=backend
    )


def test_engines_share_cores_without_being_told() -> None:
    parsed, environment = arguments(), dict[str, str]()
    vllm_settings.share_cpu(parsed, environment)
    assert parsed.distributed_executor_backend == "uni"
    assert environment == {
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "OMP_WAIT_POLICY": "PASSIVE",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    }


def test_threads_bound_by_the_user_are_left_to_vllm() -> None:
    parsed, environment = arguments(), {"VLLM_CPU_OMP_THREADS_BIND": "0-7"}
    vllm_settings.share_cpu(parsed, environment)
    assert parsed.distributed_executor_backend is None
    assert environment == {"VLLM_CPU_OMP_THREADS_BIND": "0-7"}


@pytest.mark.parametrize("parsed", [arguments(tensor_parallel=2), arguments(backend="mp")])
def test_more_than_one_process_stays_more_than_one(parsed: SimpleNamespace) -> None:
    backend, environment = parsed.distributed_executor_backend, dict[str, str]()
    vllm_settings.share_cpu(parsed, environment)
    assert parsed.distributed_executor_backend == backend
    assert "VLLM_ENABLE_V1_MULTIPROCESSING" not in environment


def test_the_users_environment_wins() -> None:
    environment = {"VLLM_LOGGING_LEVEL": "DEBUG"}
    vllm_settings.set_environment(environment)
    assert environment["VLLM_LOGGING_LEVEL"] == "DEBUG"
    assert environment["VLLM_NO_USAGE_STATS"] == "1"
