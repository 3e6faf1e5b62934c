"""scripts/compare engines: two unequal real vLLM engines on CPU, text2sql workflows, one policy against another.

Both instances serve SmolLM2-135M with one thread each: one in bfloat16, the other in --dtype, which is what makes them
unequal. Each run has new engines, the same questions and the same arrivals; answers are cut at --max-tokens, as so
small a model does not know when to stop. Tokens from cache are those that vLLM itself reports.
"""

import asyncio
import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import click
from processes import end_in_order

from common.errors import HexgenError
from common.policy.registry import names as live_policies
from common.settings import load
from common.store.embedded import EmbeddedServer
from hexgen_flow import demo
from hexgen_flow.cli import MODEL
from hexgen_flow.processes import Processes
from hexgen_flow.text2sql.dataset import load_dataset

ROOT = Path(__file__).resolve().parents[2]
FAST = "bfloat16"


def instances(model: Path, dtype: str) -> dict[str, list[str]]:
    """Names and command lines of the workers."""
    common = ["--engine", "vllm", "--grace-s", "1", "--", "--model", str(model)]
    return {
        name: ["worker", "--instance", name, *common, "--dtype", kind]
        for name, kind in (("fast", FAST), ("slow", dtype))
    }


def run(plan: demo.Plan, model: Path, dtype: str, tell: Callable[[str], None]) -> dict[str, Any]:
    """One run with new engines; the demo's figures. Raises HexgenError."""
    with tempfile.TemporaryDirectory(prefix="engines-") as scratch:
        directory = Path(scratch)
        data = load_dataset(None, directory / "databases")
        with EmbeddedServer.start(directory / "redis") as server:
            settings = load(redis_url=server.url, namespace="demo", policy=plan.policy)
            environment = demo.environment(settings, data) | {"OMP_NUM_THREADS": "1"}
            with Processes(directory / "logs", environment) as processes:
                processes.start(
                    "coordinator", ["coordinator", "--policy", plan.policy, *demo.workflows(plan, directory)]
                )
                processes.start("tools", ["tools"])
                workers = instances(model, dtype)
                for name, command in workers.items():
                    processes.start(name, command)
                driving = demo.drive(plan, settings, data, processes, list(workers), tell, lambda _done, _all: None)
                return demo.report(plan, data, asyncio.run(driving))


def figures(found: dict[str, Any]) -> dict[str, Any]:
    """What is compared of a run: times in s, the share of prompt tokens that came from cache, who served how many."""
    if found["failed"]:
        raise HexgenError(f"{found['failed']} of {found['workflows']} workflows failed: {'; '.join(found['errors'])}")
    usage = found["usage"].values()
    cached, prompts = (sum(stage[name] for stage in usage) for name in ("cached_tokens", "prompt_tokens"))
    return {
        "p50_s": found["p50_s"],
        "p95_s": found["p95_s"],
        "cached_tokens": cached,
        "prompt_tokens": prompts,
        "cached_share": round(cached / prompts, 4),
        "instances": found["instances"],
    }


def means(runs: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Over the seeds of a policy."""
    return {name: round(fmean(one[name] for one in runs), 3) for name in ("p50_s", "p95_s", "cached_share")}


def compare(
    plan: demo.Plan, policies: Sequence[str], seeds: int, model: Path, dtype: str, tell: Callable[[str], None]
) -> list[dict[str, Any]]:
    """All runs, policy by policy within a seed."""
    runs = []
    for seed in range(seeds):
        for policy in policies:
            found = figures(run(replace(plan, policy=policy, seed=seed), model, dtype, tell))
            runs.append({"policy": policy, "seed": seed, **found})
            tell(
                f"seed {seed}, {policy}: P95 {found['p95_s']:.1f} s, {found['cached_share']:.1%} of prompts from cache"
            )
    return runs


@click.command(help=__doc__)
@click.option("--policies", default="vllm,flow", show_default=True, help="two or more, with commas between them")
@click.option("--workflows", type=click.IntRange(1, 1000), default=12, show_default=True)
@click.option("--rate", type=click.FloatRange(0, min_open=True), default=0.1, show_default=True, help="arrivals/s")
@click.option("--max-tokens", type=click.IntRange(1), default=32, show_default=True, help="cap of every answer")
@click.option("--seeds", type=click.IntRange(1, 100), default=2, show_default=True)
@click.option("--dtype", default="float32", show_default=True, help="of the slower instance")
@click.option("--model-dir", type=click.Path(exists=True, file_okay=False, path_type=Path), default=ROOT / MODEL)
@click.option("--json", "as_json", is_flag=True, help="print one JSON object on stdout and nothing else")
def main(
    policies: str, workflows: int, rate: float, max_tokens: int, seeds: int, dtype: str, model_dir: Path, as_json: bool
) -> None:
    names = [name.strip() for name in policies.split(",")]
    if unknown := [name for name in names if name not in live_policies()]:
        known = ", ".join(live_policies())
        raise click.BadParameter(f"{unknown[0]!r} is not one of {known}", param_hint="--policies")
    plan = demo.Plan(engine="vllm", workflows=workflows, rate=rate, time_scale=1.0, slo_s=600.0, max_tokens=max_tokens)
    try:
        runs = compare(plan, names, seeds, model_dir, dtype, lambda line: click.echo(line, err=True))
    except HexgenError as error:
        raise click.ClickException(str(error)) from None
    rows = {name: means([one for one in runs if one["policy"] == name]) for name in names}
    if as_json:
        asked = {"workflows": workflows, "rate": rate, "max_tokens": max_tokens, "dtype": dtype}
        click.echo(json.dumps({"policies": rows, "runs": runs, **asked}))
        return
    click.echo(f"{'means over seeds':16} {'P50 s':>8} {'P95 s':>8} {'from cache':>11}")
    for name, row in rows.items():
        click.echo(f"{name:16} {row['p50_s']:8.1f} {row['p95_s']:8.1f} {row['cached_share']:11.1%}")


if __name__ == "__main__":
    end_in_order()
    main()
