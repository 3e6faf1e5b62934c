"""Drives hexgen-flow through one run, from outside, as any client would; prints the figures as JSON.

Arguments: chains, length, payload bytes; environment: HEXGEN_REDIS_URL. A chain is a workflow. The server stamps events
with its clock in ms, the worker (`noop_worker`) its answers with the same host's, so gaps come in steps of 1 ms.
"""

import asyncio
import json
import sys
from dataclasses import asdict
from itertools import pairwise
from typing import Any

from chains import WARM_UP, Chains, Figures, Load, prompt

from common import clock, settings
from common.store.cell import Cell
from coordinator.language.compiler import compile_definition
from hexgen_flow import Client

SLO_S = 3600.0


def definition(length: int) -> dict[str, Any]:
    """A workflow of so many llm stages, each needing the one before; its output is what each of them gave."""
    names = [f"step{number}" for number in range(length)]
    stages: dict[str, Any] = {name: {"prompt": "{{ inputs.prompt }}", "max_tokens": 8} for name in names}
    for before, name in pairwise(names):
        stages[name]["needs"] = [before]
    return {
        "name": f"chain-of-{length}",
        "inputs": {"prompt": {"type": "string"}},
        "stages": stages,
        "output": f"[{', '.join(f'{name}.output' for name in names)}]",
    }


async def register(values: settings.Settings, length: int) -> str:
    """Make the chain a registered workflow; its name."""
    compiled = compile_definition(definition(length))
    cell = Cell.open(values.redis_url, values.namespace)
    try:
        await cell.records.register(compiled.name, compiled.digest, compiled.document, values.keep_definition_ms)
    finally:
        await cell.close()
    return compiled.name


def run(client: Client, workflow: str, load: Load) -> Figures:
    """Submit all chains and time them from the first submission to the last `completed` event."""
    chains, inputs = Chains(load), {"prompt": prompt(load.payload_bytes)}
    started_at = clock.wall_ms()
    submitted = [client.submit(workflow, inputs, slo_s=SLO_S) for _ in range(load.chains)]
    for identifier in submitted:
        client.wait(identifier)
    ended_at = 0
    for chain, identifier in enumerate(submitted):
        events = list(client.events(identifier))
        claimable_at = [_ms(event.id) for event in events if event.type == "stage_started"]
        completed_at = [int(answer) for answer in events[-1].data["output"]]
        gaps = zip(completed_at, claimable_at[1:], strict=False)
        chains.handed_on(chain, [(claimable - completed) / 1000 for completed, claimable in gaps])
        chains.ended(chain)
        ended_at = max(ended_at, _ms(events[-1].id))
    return chains.figures((ended_at - started_at) / 1000)


def _ms(event: str) -> int:
    return int(event.partition("-")[0])


def main(load: Load) -> Figures:
    values = settings.load()
    with Client(values.redis_url, values.namespace) as client:
        run(client, asyncio.run(register(values, WARM_UP.length)), WARM_UP)
        return run(client, asyncio.run(register(values, load.length)), load)


if __name__ == "__main__":
    print(json.dumps(asdict(main(Load(*map(int, sys.argv[1:]))))))
