"""How vLLM is set up here where its own defaults do not suit; vllm itself is not imported.

The engine arguments override all of it: priority scheduling, prefix caching, chunked prefill with 512 tokens per
iteration. Environment variables are set for this process and its children, each unless it is set already:
`VLLM_LOGGING_LEVEL=WARNING`, `VLLM_LOGGING_STREAM=ext://sys.stderr`, `VLLM_NO_USAGE_STATS=1`.

On CPU: 2 GiB of KV room (`--kv-cache-memory-bytes`; `VLLM_CPU_KVCACHE_SPACE`, in GiB, outdoes it) and no compilation
(`--no-enforce-eager` brings it back: tokens come a fifth faster, after more than a minute of start). vLLM would bind
its threads to cores, to the same ones in every instance of a host, and let them spin. Here they are left to the kernel
and sleep (`VLLM_CPU_OMP_THREADS_BIND=nobind`, `OMP_WAIT_POLICY=PASSIVE`), and the engine core computes
itself (`--distributed-executor-backend uni`, `VLLM_ENABLE_V1_MULTIPROCESSING=0`) where vLLM would start one process
more: two instances on two cores gave twice the tokens and took half the start. `OMP_NUM_THREADS` and `taskset` count.
Whoever sets `VLLM_CPU_OMP_THREADS_BIND` otherwise (`auto`, `0-7`) gets vLLM's ways in all this. A call's `seed` has no
effect on CPU (see `vllm_engine`).
"""

from collections.abc import MutableMapping
from typing import Any

DEFAULTS = {"scheduling_policy": "priority", "enable_prefix_caching": True, "max_num_batched_tokens": 512}
CPU_DEFAULTS = {"enforce_eager": True, "kv_cache_memory_bytes": 2 << 30}
ENVIRONMENT = {
    "VLLM_LOGGING_LEVEL": "WARNING",
    "VLLM_LOGGING_STREAM": "ext://sys.stderr",
    "VLLM_NO_USAGE_STATS": "1",
}


def set_environment(environment: MutableMapping[str, str]) -> None:
    """Must come before the first import of vllm, which reads some of it then."""
    for name, value in ENVIRONMENT.items():
        environment.setdefault(name, value)


def share_cpu(parsed: Any, environment: MutableMapping[str, str]) -> None:
    """Let several engines share a host's cores. Both are changed in place; `parsed` are engine arguments."""
    if environment.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind") != "nobind":
        return
    environment.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    alone = parsed.tensor_parallel_size == parsed.pipeline_parallel_size == 1
    if alone and parsed.distributed_executor_backend is None:
        parsed.distributed_executor_backend = "uni"
        environment["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"  # or vLLM turns uni into mp again
