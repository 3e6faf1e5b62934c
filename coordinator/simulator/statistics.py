"""What a trace holds, in figures. Draws nothing."""

from collections import Counter, defaultdict
from dataclasses import replace
from statistics import fmean

import numpy as np

from common.model import Json
from coordinator.simulator.prefixes import repeatable
from coordinator.simulator.trace import Trace, TracedCall


def statistics(trace: Trace) -> dict[str, Json]:
    """Counts and means of a trace as a document; `repeatable` is the share of prompt tokens that came before."""
    stages: dict[str, list[TracedCall]] = defaultdict(list)
    for workflow in trace:
        for call in workflow.calls:
            stages[call.stage].append(call)
    calls = [call for workflow in trace for call in workflow.calls]
    return {
        "workflows": len(trace),
        "distinct": len({tuple(replace(call, prefix=()) for call in workflow.calls) for workflow in trace}),
        "tenants": dict(Counter(workflow.tenant for workflow in trace)),
        "arrivals": trace[0].arrival_s is not None,
        "calls_per_workflow": len(calls) / len(trace),
        "prompt_tokens_per_workflow": sum(call.prompt_tokens for call in calls) / len(trace),
        "output_tokens_per_workflow": sum(call.output_tokens for call in calls) / len(trace),
        "repeatable": round(repeatable(trace), 4),
        "stages": {stage: _means(of) for stage, of in stages.items()},
    }


def _means(calls: list[TracedCall]) -> dict[str, Json]:
    return {
        "calls": len(calls),
        "prompt_tokens": fmean(call.prompt_tokens for call in calls),
        "output_tokens": fmean(call.output_tokens for call in calls),
        "output_tokens_p95": float(np.percentile([call.output_tokens for call in calls], 95)),
        "tool_s": fmean(call.tool_s for call in calls),
    }
