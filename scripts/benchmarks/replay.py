"""Traced workflows as both sides of a comparison need them: documents to submit, arrays to simulate. The same calls,
lengths and arrivals on both. Pure: no processes, no Redis, no clock.

A traced workflow becomes a definition with one llm stage for each call. Prompts have four characters a token; what the
trace says is shared is the same text, all else begins with a mark of its own, so that nothing else is ever cached. The
last line of a prompt is the length of its answer: a note to the simulated engine that no coordinator reads.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

import numpy as np
from chains import BenchmarkError, prompt

from common.events import Outcome
from common.model import InstanceProfile, Usage
from coordinator.estimates import WINDOW, Estimates
from coordinator.language.compiler import compile_definition
from coordinator.simulator.expectation import Expectation
from coordinator.simulator.trace import Trace, TracedCall
from coordinator.simulator.workload import Workload, draw
from workers.engines.simulated import BLOCK_TOKENS

CHARS_PER_TOKEN = 4
LEAST_TOKENS = 16
"""Of a prompt, and of what follows a shared beginning: room for its mark and its last line."""
MOST_TOKENS = 100_000
LONGEST_S = 86_400
NAME = "replay"
Document = dict[str, Any]


def prepared(trace: Trace, profiles: Sequence[InstanceProfile], *, prefix_cache: bool) -> Trace:
    """What both sides can run: no tool calls, prompts long enough for their marks, shared beginnings of whole blocks.

    Raises BenchmarkError.
    """
    found = tuple(replace(workflow, calls=_runnable(workflow.calls, prefix_cache)) for workflow in trace)
    most = min(min(profile.context_tokens, profile.kv_tokens) for profile in profiles)
    longest = max(call.prompt_tokens + call.output_tokens for workflow in found for call in workflow.calls)
    if longest > most:
        raise BenchmarkError(f"the trace has a call of {longest} tokens; every instance must take it, one takes {most}")
    return found


def _runnable(calls: Sequence[TracedCall], prefix_cache: bool) -> tuple[TracedCall, ...]:
    """Without tools: whoever needs a tool needs what that needs."""
    places: list[tuple[int, ...]] = []
    kept: list[TracedCall] = []
    for call in calls:
        needs = tuple(sorted({place for before in call.needs for place in places[before]}))
        if call.tool_s:
            places.append(needs)
        else:
            places.append((len(kept),))
            kept.append(_marked(replace(call, needs=needs), prefix_cache))
    if not kept:
        raise BenchmarkError("the trace has a workflow without a call to a model")
    return tuple(kept)


def _marked(call: TracedCall, prefix_cache: bool) -> TracedCall:
    prompt_tokens = max(call.prompt_tokens, LEAST_TOKENS)
    prefix: list[tuple[str, int]] = []
    for key, shared in call.prefix if prefix_cache else ():
        end = shared // BLOCK_TOKENS * BLOCK_TOKENS
        if (prefix[-1][1] if prefix else 0) < end <= prompt_tokens - LEAST_TOKENS:
            prefix.append((key, end))
    return replace(call, prompt_tokens=prompt_tokens, prefix=tuple(prefix))


@dataclass(frozen=True, slots=True)
class Load:
    """What arrives: workflows of a trace drawn at random. Times are those of the real engines."""

    trace: Trace
    profiles: tuple[InstanceProfile, ...]
    count: int
    rate: float
    seed: int
    slo_s: float
    arrivals: str = "poisson"

    def workload(self) -> Workload:
        """For the simulator, which uses it up."""
        return draw(
            self.trace, Expectation(self.trace, self.profiles, paths="known"), count=self.count, rate=self.rate,
            seed=self.seed, slo_s=self.slo_s, arrivals=self.arrivals,
        )  # fmt: skip

    def arrivals_s(self) -> list[tuple[float, int]]:
        """When each workflow arrives, and which of the trace it is: those that the simulator has drawn."""
        workload = self.workload()
        known = {_lengths(workflow.calls): which for which, workflow in enumerate(self.trace)}
        owners = workload.calls["workflow"]
        lengths = zip(workload.calls["prompt_tokens"].tolist(), workload.calls["output_tokens"].tolist(), strict=True)
        drawn: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for owner, pair in zip(owners.tolist(), lengths, strict=True):
            drawn[owner].append(pair)
        times = workload.workflows["arrival"].tolist()
        return [(time, known[tuple(drawn[number])]) for number, time in enumerate(times)]


def _lengths(workflow: Sequence[TracedCall]) -> tuple[tuple[int, int], ...]:
    return tuple((call.prompt_tokens, call.output_tokens) for call in workflow)


def documents(trace: Trace) -> list[Document]:
    """A definition for each workflow of the trace. All have one name, and stages of the same names: what is learned of
    one holds for all.
    """
    calls: dict[str, list[TracedCall]] = defaultdict(list)
    for workflow in trace:
        for call in workflow.calls:
            calls[call.stage].append(call)
    means = {stage: fmean(call.output_tokens for call in found) for stage, found in calls.items()}
    text = prompt(CHARS_PER_TOKEN * max(call.prompt_tokens for found in calls.values() for call in found))
    return [_document(workflow.calls, means, text) for workflow in trace]


def _document(workflow: Sequence[TracedCall], means: dict[str, float], text: str) -> Document:
    names = stage_names(workflow)
    stages = {}
    for at, (name, call) in enumerate(zip(names, workflow, strict=True)):
        stages[name] = {
            "prompt": _template(call, at),
            "needs": [names[before] for before in call.needs],
            "max_tokens": MOST_TOKENS,
            "expect": {"output_tokens": max(1, round(means[call.stage]))},
            "timeout_s": LONGEST_S,
        }
    inputs = {"mark": {"type": "string"}, "text": {"type": "string", "default": text}}
    return {"name": NAME, "inputs": inputs, "stages": stages, "output": "1"}


def mark(number: int) -> str:
    """What sets the prompts of a workflow apart from those of all others, of one length for all."""
    return f"{number:06d}"


def stage_names(workflow: Sequence[TracedCall]) -> list[str]:
    """A name for each call: its stage, and the how manieth of it."""
    seen: Counter[str] = Counter()
    names = []
    for call in workflow:
        kind = re.sub(r"\W+", "_", call.stage.lower()).strip("_")
        names.append(f"{kind if kind[:1].isalpha() else 'stage_' + kind}_{seen[kind]}"[-64:])
        seen[kind] += 1
    return names


def _template(call: TracedCall, at: int) -> str:
    """The parts shared with others, each beginning with its key, then what is this call's own."""
    ends = [0, *(CHARS_PER_TOKEN * end for _, end in call.prefix), CHARS_PER_TOKEN * call.prompt_tokens]
    parts = [_part(key, end - start) for (key, _), start, end in zip(call.prefix, ends, ends[1:], strict=False)]
    own, last = f"{at:03d}", f"\n{call.output_tokens}"
    filling = ends[-1] - ends[-2] - len(mark(0)) - len(own) - len(last)
    return "".join(parts) + "{{ inputs.mark }}" + own + f"{{{{ inputs.text[:{filling}] }}}}" + last


def _part(key: str, size: int) -> str:
    """Text of so many characters that all calls with this key share; a key that begins with "." is of one workflow."""
    own = key.startswith(".")
    room = size - len(mark(0)) if own else size
    # Braces would be read as a template's.
    word = re.sub(r"[{}#%]", "", key)[: max(0, room)]
    return ("{{ inputs.mark }}" if own else "") + word + f"{{{{ inputs.text[:{max(0, room - len(word))}] }}}}"


def lessons(trace: Trace, known: Sequence[Document]) -> dict[str, tuple[float, ...]]:
    """What a coordinator has learned that has seen many of these workflows: mean lengths by stage."""
    prompts: dict[str, list[int]] = defaultdict(list)
    outputs: dict[str, list[int]] = defaultdict(list)
    for workflow in trace:
        for call in workflow.calls:
            prompts[call.stage].append(call.prompt_tokens)
            outputs[call.stage].append(call.output_tokens)
    estimates, taught = Estimates(), set()
    for workflow, document in zip(trace, known, strict=True):
        stages = compile_definition(document).stages
        for name, call in zip(stage_names(workflow.calls), workflow.calls, strict=True):
            if name not in taught:
                taught.add(name)
                usage = Usage(round(fmean(prompts[call.stage])), max(1, round(fmean(outputs[call.stage]))))
                outcome = Outcome(None, usage=usage, prompt_chars=CHARS_PER_TOKEN * usage.prompt_tokens)
                estimates.learn(NAME, stages[name], outcome)
    return {name: tuple(WINDOW * value for value in sums) for name, sums in estimates.take_added().items()}


def percentile(values: Sequence[float], percent: float) -> float:
    """As the simulator takes it."""
    return float(np.percentile(values, percent))
