"""What prompts share: assumed for recordings that do not tell, dropped, and counted. Reads no file."""

from collections.abc import Sequence
from dataclasses import replace

from coordinator.simulator.trace import Trace, TracedCall, TracedWorkflow

STATIC = {
    "generate_candidate": 0.55,
    "revise": 0.5,
    "Information Retriever": 0.8,
    "extract_keywords": 0.8,
    "unit_tester": 0.7,
    "generate_unit_test": 0.5,
    "evaluate": 0.4,
}
"""Families of the published traces' steps; which part of the shortest prompt of each all have in common is assumed."""
REPEATED = 0.85
"""Part of a revise prompt that the rounds of one loop share: assumed."""
Prefix = tuple[tuple[str, int], ...]


def without_prefixes(trace: Trace) -> Trace:
    """The same calls, of which none shares anything."""
    return tuple(_with(workflow, [()] * len(workflow.calls)) for workflow in trace)


def is_published(trace: Trace) -> bool:
    """Whether all stages are those of the published traces and no call tells what it shares."""
    calls = [call for workflow in trace for call in workflow.calls]
    return all(family(call.stage) is not None and not call.prefix for call in calls)


def family(stage: str) -> str | None:
    """The family of a published trace's step, None for any other stage."""
    return next((known for known in STATIC if stage.startswith(known)), None)


def assumed_prefixes(trace: Trace) -> Trace:
    """Prefixes by shares that are assumed: a template for each stage (candidates: each its own, by position), and what
    the rounds of a workflow's revise loop repeat. Stages of no known family get none.
    """
    shortest: dict[str, int] = {}
    for workflow in trace:
        for call, template in zip(workflow.calls, _templates(workflow.calls), strict=True):
            shortest[template] = min(call.prompt_tokens, shortest.get(template, call.prompt_tokens))
    shares = {template: int(STATIC.get(template.split("#")[0], 0.0) * tokens) for template, tokens in shortest.items()}
    return tuple(_with(workflow, _prefixes(workflow.calls, shares)) for workflow in trace)


def repeatable(trace: Trace) -> float:
    """Share of the prompt tokens that came before: what a prefix cache without bounds saves, in the trace's order."""
    seen: set[tuple[int, str]] = set()
    saved = total = 0
    for at, workflow in enumerate(trace):
        for call in workflow.calls:
            total += call.prompt_tokens
            keys = [(at if key.startswith(".") else -1, key) for key, _ in call.prefix]
            saved += max((end for key, (_, end) in zip(keys, call.prefix, strict=True) if key in seen), default=0)
            seen.update(keys)
    return saved / max(1, total)


def _with(workflow: TracedWorkflow, prefixes: Sequence[Prefix]) -> TracedWorkflow:
    calls = (replace(call, prefix=prefix) for call, prefix in zip(workflow.calls, prefixes, strict=True))
    return replace(workflow, calls=tuple(calls))


def _templates(calls: Sequence[TracedCall]) -> list[str]:
    """Each call's template: its family (or stage), candidates with their position among those of the workflow."""
    found, candidates = [], 0
    for call in calls:
        name = family(call.stage) or call.stage
        if name == "generate_candidate":
            candidates += 1
            name = f"{name}#{candidates}"
        found.append(name)
    return found


def _prefixes(calls: Sequence[TracedCall], shares: dict[str, int]) -> list[Prefix]:
    rounds = [call.prompt_tokens for call in calls if call.stage == "revise"]
    repeated = int(REPEATED * min(rounds)) if len(rounds) > 1 else 0
    found: list[Prefix] = []
    for call, template in zip(calls, _templates(calls), strict=True):
        static = shares[template]
        prefix: Prefix = ((template, static),) if static else ()
        if call.stage == "revise" and repeated > static:
            prefix += ((".revise", repeated),)
        found.append(prefix)
    return found
