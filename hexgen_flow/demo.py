"""The demo: a stream of text2sql workflows over unequal instances, every part a real process, and what came of it."""

import asyncio
import json
import random
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from common import clock, tasks
from common.errors import HexgenError
from common.model import TOOLS, Json
from common.policy.registry import DEFAULT
from common.settings import Settings, load
from common.store.cell import Cell
from common.store.embedded import EmbeddedServer
from coordinator.language.library import load_file
from hexgen_flow.client import ENDS
from hexgen_flow.processes import Processes
from hexgen_flow.text2sql.accuracy import execution_accuracy
from hexgen_flow.text2sql.dataset import Dataset, Question, load_dataset

WORKFLOW = Path(__file__).parent / "workflows" / "text2sql.yaml"
SIMULATED = ("a100", "a100", "a6000", "l40s")
VLLM_COUNT = 2


@dataclass(frozen=True, slots=True)
class Plan:
    """What to run.

    rate in workflows/s of this machine's time; error_rate: share of mistakes in simulated answers; max_tokens caps
    every answer, for a small model that does not know when to stop.
    """

    engine: str = "simulated"
    workflows: int = 40
    rate: float = 1.0
    time_scale: float = 20.0
    slo_s: float = 15.0
    policy: str = DEFAULT
    seed: int = 1
    error_rate: float = 0.3
    tool_workers: int = 1
    max_tokens: int | None = None
    give_up_s: float = 1200.0
    data: Path | None = None
    model_dir: Path | None = None


@dataclass(slots=True)
class Run:
    """What happened: per workflow its question and how it ended; per instance how many requests it served."""

    questions: dict[str, Question] = field(default_factory=dict)
    ends: dict[str, dict[str, Any]] = field(default_factory=dict)
    served: dict[str, int] = field(default_factory=dict)
    elapsed_s: float = 0.0


def run(
    plan: Plan, directory: Path, tell: Callable[[str], None], progress: Callable[[int, int], None]
) -> dict[str, Json]:
    """Run the plan with all state in `directory`; the report. Leaves no process behind. Raises HexgenError."""
    data = load_dataset(plan.data, directory / "databases")
    with EmbeddedServer.start(directory / "redis") as server:
        tell(f"embedded server ({server.version}), for trying and tests only: {server.url}")
        settings = load(redis_url=server.url, namespace="demo", policy=plan.policy)
        with Processes(directory / "logs", environment(settings, data)) as processes:
            names = start(plan, processes, workflows(plan, directory))
            done = asyncio.run(drive(plan, settings, data, processes, names, tell, progress))
    return report(plan, data, done)


def environment(settings: Settings, data: Dataset) -> dict[str, str]:
    return {
        "HEXGEN_REDIS_URL": settings.redis_url,
        "HEXGEN_NAMESPACE": settings.namespace,
        "HEXGEN_DATABASES": json.dumps(dict(data.databases)),
        "HEXGEN_ALPHA": "",  # of the user's own policy
        "HEXGEN_PARAMETERS": "",
    }


def workflows(plan: Plan, directory: Path) -> list[str]:
    """The coordinator's options for workflows: none, or a folder with a version whose answers are capped."""
    if plan.max_tokens is None:
        return []
    document = load_file(WORKFLOW).document
    _cap(document["stages"], plan.max_tokens)
    folder = directory / "workflows"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "text2sql.json").write_text(json.dumps(document), "utf-8")
    return ["--workflows", str(folder)]


def _cap(stages: dict[str, Any], max_tokens: int) -> None:
    for stage in stages.values():
        if "stages" in stage:
            _cap(stage["stages"], max_tokens)
        elif "tool" not in stage:
            stage["max_tokens"] = min(max_tokens, stage.get("max_tokens", max_tokens))


def start(plan: Plan, processes: Processes, workflows: Sequence[str] = ()) -> list[str]:
    """Start coordinator, tool workers and instances; the instances' names."""
    processes.start("coordinator", ["coordinator", "--policy", plan.policy, *workflows])
    for number in range(plan.tool_workers):
        processes.start(f"tools-{number}", ["tools"])
    return _start_vllm(plan, processes) if plan.engine == "vllm" else _start_simulated(plan, processes)


def _start_simulated(plan: Plan, processes: Processes) -> list[str]:
    names: list[str] = []
    responder = f"text2sql:error_rate={plan.error_rate},seed={plan.seed}" + (f",data={plan.data}" if plan.data else "")
    for profile in SIMULATED:
        name = f"{profile}-{sum(other.startswith(f'{profile}-') for other in names)}"
        names.append(name)
        processes.start(
            name,
            ["worker", "--instance", name, "--engine", "simulated", "--profile", profile, "--time-scale",
             str(plan.time_scale), "--responder", responder, "--grace-s", "1"],
        )  # fmt: skip
    return names


def _start_vllm(plan: Plan, processes: Processes) -> list[str]:
    if plan.model_dir is None or not plan.model_dir.is_dir():
        raise HexgenError("--model-dir: name a model folder, such as one made by `hexgen-flow model smollm2 DIR`")
    names = [f"vllm-{number}" for number in range(VLLM_COUNT)]
    for name in names:
        processes.start(
            name,
            ["worker", "--instance", name, "--engine", "vllm", "--grace-s", "1", "--", "--model", str(plan.model_dir)],
        )
    return names


async def drive(
    plan: Plan, settings: Settings, data: Dataset, processes: Processes, names: Sequence[str],
    tell: Callable[[str], None], progress: Callable[[int, int], None],
) -> Run:  # fmt: skip
    """Submit, and watch until all have ended. Raises HexgenError at once when a process has ended by itself."""
    cell = Cell.open(settings.redis_url, settings.namespace)
    done = Run()
    try:
        await _ready(plan, cell, processes, names)
        tell(f"{len(names)} instances are ready: {', '.join(names)}")
        started = clock.monotonic_s()
        submitting = asyncio.create_task(_submit(plan, cell, data, done))
        following = asyncio.create_task(_follow(plan, cell, processes, done, progress))
        try:
            await asyncio.gather(submitting, following)
        finally:
            await tasks.end(submitting, following)
        done.elapsed_s = clock.monotonic_s() - started
        done.served = await cell.instances.served()
    finally:
        await cell.close()
    return done


async def _ready(plan: Plan, cell: Cell, processes: Processes, names: Sequence[str]) -> None:
    """Until every instance and the workflow are registered, and the tool workers offer their tools."""
    until = clock.monotonic_s() + plan.give_up_s
    while clock.monotonic_s() < until:
        processes.check()
        known = {instance.id for instance in await cell.instances.all()}
        tools = len(await cell.offers.all()) >= plan.tool_workers
        if known >= set(names) and tools and await cell.records.digest_of("text2sql"):
            return
        await clock.sleep(0.1)
    raise HexgenError(f"the instances and tool workers were not ready within {plan.give_up_s:g} s")


async def _submit(plan: Plan, cell: Cell, data: Dataset, done: Run) -> None:
    """Poisson arrivals, the questions in an order of the seed's."""
    rng = random.Random(plan.seed)
    order = rng.sample(data.questions, len(data.questions))
    due = clock.monotonic_s()
    for number in range(plan.workflows):
        question = order[number % len(order)]
        document = {
            "workflow": "text2sql",
            "inputs": {"question": question.text, "database": question.database, "evidence": question.evidence},
            "slo_s": plan.slo_s,
        }
        done.questions[await cell.records.submit(document)] = question
        due += rng.expovariate(plan.rate)
        await clock.sleep(max(0.0, due - clock.monotonic_s()))


async def _follow(
    plan: Plan, cell: Cell, processes: Processes, done: Run, progress: Callable[[int, int], None]
) -> None:
    """Collect ends until all workflows have one."""
    until = clock.monotonic_s() + plan.give_up_s
    seen: dict[str, str] = {}
    while len(done.ends) < plan.workflows and clock.monotonic_s() < until:
        processes.check()
        for name in done.questions:
            seen.setdefault(name, "0")
        open_now = {name: after for name, after in seen.items() if name not in done.ends}
        for name, after, kind, data in await cell.records.look(open_now, 0.2):
            seen[name] = after
            if kind in ENDS:
                done.ends[name] = {"status": kind, **data}
        progress(len(done.ends), plan.workflows)
        if not open_now:
            await clock.sleep(0.05)


def report(plan: Plan, data: Dataset, done: Run) -> dict[str, Json]:
    """The figures, times in s of this machine. A workflow that has not ended counts as failed."""
    completed = {name: end for name, end in done.ends.items() if end["status"] == "completed"}
    times = sorted(end["elapsed_s"] for end in completed.values())
    answers = [
        (question, (completed[name]["output"] or {}).get("sql") if name in completed else None)
        for name, question in done.questions.items()
    ]
    return {
        "engine": plan.engine,
        "policy": plan.policy,
        "time_scale": plan.time_scale if plan.engine == "simulated" else 1.0,
        "answers": _answers(plan),
        "workflows": plan.workflows,
        "completed": len(completed),
        "failed": plan.workflows - len(completed),
        "errors": sorted({str(end.get("error")) for end in done.ends.values() if end["status"] != "completed"}),
        "p50_s": round(statistics.median(times), 3) if times else None,
        "p95_s": round(times[min(len(times) - 1, int(0.95 * len(times)))], 3) if times else None,
        "slo_s": plan.slo_s,
        "slo_attainment": sum(bool(end["slo_met"]) for end in completed.values()) / plan.workflows,
        "execution_accuracy": execution_accuracy(answers, data.databases).mean,
        "instances": {name: count for name, count in sorted(done.served.items()) if name != TOOLS},
        "tool_requests": done.served.get(TOOLS, 0),
        "usage": _usage(done.ends.values()),
        "elapsed_s": round(done.elapsed_s, 3),
    }


def _usage(ends: Iterable[dict[str, Any]]) -> dict[str, dict[str, int]]:
    """Requests and tokens of all workflows together, by stage."""
    totals: dict[str, Counter[str]] = {}
    for end in ends:
        for stage, cost in end.get("usage", {}).items():
            totals.setdefault(stage, Counter()).update(cost)
    return {stage: dict(total) for stage, total in sorted(totals.items())}


def _answers(plan: Plan) -> str:
    if plan.engine == "vllm":
        return f"generated by the model, at most {plan.max_tokens} tokens each"
    return (
        f"from gold SQL with a stated error rate of {plan.error_rate:g} (a simulated engine writes no text of its own)"
    )
