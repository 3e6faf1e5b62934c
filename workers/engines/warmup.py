"""Measures a freshly started engine with a few prompts, so that the cluster's first estimates are sane.

Must not know which engine it is: it is given a way to run a prompt and hears of the iterations.
"""

from collections.abc import Awaitable, Callable

from common.enginefit import Iteration
from common.model import InstanceProfile
from workers.engines.fit import fit
from workers.engines.inflight import InFlight

OUTPUT_TOKENS = 8


async def measure(
    run: Callable[[int, int], Awaitable[None]], calls: InFlight, known: InstanceProfile
) -> InstanceProfile:
    """`known` with its four speeds measured on the idle engine: prompts from half a chunk to three chunks.

    `run(prompt_tokens, output_tokens)` runs one prompt that is in no prefix cache. Raises ValueError if the engine
    reports no iterations.
    """
    longest = min(known.context_tokens, known.kv_tokens) - OUTPUT_TOKENS
    chunk = min(known.chunk_tokens, longest)
    iterations: list[Iteration] = []
    await run(min(16, longest), OUTPUT_TOKENS)  # pays for what engines set up late; not measured
    for prompt_tokens in (chunk // 2, chunk, 3 * chunk):
        calls.listen(iterations.append)
        await run(max(1, min(prompt_tokens, longest)), OUTPUT_TOKENS)
        calls.listen(None)
    return fit(iterations, known)
