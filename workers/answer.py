"""One request on one engine: from a claim to its outcome. Knows the engine's protocol; nothing of queues and leases."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import aclosing

from common import clock, wire
from common.errors import InvalidDocument
from common.events import Outcome
from common.jsonschema_check import misfit
from common.model import Claim, Json, LlmCall, Usage
from workers.engines.protocol import Engine, EngineCall, EngineError

TOKENS_EVERY_S = 0.05
MAX_OUTPUT_CHARS = 1 << 20


async def answer(
    engine: Engine,
    claim: Claim,
    instance: str,
    on_chunk: Callable[[bool], None],
    tell: Callable[[str], Awaitable[None]],
) -> Outcome:
    """Run the call to its end. Raises EngineError.

    on_chunk is called for each piece of text, with True for the first: then the prompt has been prefilled. tell is
    awaited with pieces of text where the claim asks for a stream.
    """
    if not isinstance(claim.call, LlmCall):
        raise EngineError(f"stage {claim.stage} is a tool; this worker runs an engine", retryable=False)
    started = clock.monotonic_s()
    try:
        async with asyncio.timeout(claim.timeout_s):
            text, usage = await _stream(engine, claim, claim.call, on_chunk, tell)
    except TimeoutError:
        await engine.abort(claim.request)
        raise EngineError(f"ran longer than timeout_s = {claim.timeout_s:g}") from None
    return Outcome(
        output=parsed(text, claim.call.sampling.json_schema),
        instance=instance,
        queued_ms=max(0, claim.claimed_at - claim.enqueued_at),
        run_ms=round(1000 * (clock.monotonic_s() - started)),
        usage=usage,
        prompt_chars=len(claim.call.text()),
    )


async def _stream(
    engine: Engine,
    claim: Claim,
    call: LlmCall,
    on_chunk: Callable[[bool], None],
    tell: Callable[[str], Awaitable[None]],
) -> tuple[str, Usage]:
    pieces: list[str] = []
    told, told_at, size = 0, clock.monotonic_s(), 0
    usage, reason = Usage(), None
    # Closed here and now, however this ends: the engine's room must not wait for the garbage collector.
    async with aclosing(engine.generate(EngineCall(claim.request, call, claim.stage, claim.key_ms))) as chunks:
        async for chunk in chunks:
            on_chunk(not pieces)
            pieces.append(chunk.text)
            size += len(chunk.text)
            if size > MAX_OUTPUT_CHARS:
                raise EngineError(f"the output is longer than {MAX_OUTPUT_CHARS} characters", retryable=False)
            usage, reason = chunk.usage or usage, chunk.finish_reason or reason
            now = clock.monotonic_s()
            if claim.stream and (reason or now - told_at >= TOKENS_EVERY_S):
                await tell("".join(pieces[told:]))
                told, told_at = len(pieces), now
    if reason == "abort":
        raise EngineError("the engine aborted the request")
    return "".join(pieces), usage


def parsed(text: str, schema: dict[str, Json] | None) -> Json:
    """The output as its stage wants it: the text, or the value that must fit the schema. Raises EngineError."""
    if schema is None:
        return _kept(text)
    try:
        value = _kept(json.loads(text))
    except (ValueError, RecursionError) as error:
        raise EngineError(f"the output is not JSON: {error}") from None
    try:
        wrong = misfit(value, schema)
    except ValueError as error:
        raise EngineError(str(error), retryable=False) from None
    if wrong is not None:
        raise EngineError(f"the output does not fit json_schema at {wrong}")
    return value


def _kept(value: Json) -> Json:
    """The value, if it can be written down: Python reads more than JSON has, such as NaN."""
    try:
        wire.check_json(value)
    except InvalidDocument as error:
        raise EngineError(f"the output cannot be kept: {error}") from None
    return value
