"""What a scheduler knows of workflows it has seen many of: mean lengths by stage, and what still comes after a call.

The simulator gives policies these instead of the truth; only an oracle sees true lengths.
"""

from collections import defaultdict
from collections.abc import Sequence
from statistics import fmean
from typing import Literal, NamedTuple

from common.model import InstanceProfile
from common.policy.cost import exec_s
from coordinator.simulator.trace import Trace, TracedCall


class Expected(NamedTuple):
    """What is expected of a call: tokens of its answer, its own time and the longest path of what follows, in s."""

    tokens: float
    stage_s: float
    rest_s: float


class Expectation:
    """Means over a trace. Times are means over the cluster, in s.

    paths: what is known of a path. "learned": what on average comes after a call of its stage that is its workflow's so
    manieth; "known": the workflow's own calls, as of a definition without branches, each with the means of its stage.
    workflow_s: the longest path of a whole workflow.
    """

    def __init__(
        self, trace: Trace, profiles: Sequence[InstanceProfile], paths: Literal["learned", "known"] = "learned"
    ) -> None:
        self._profiles, self._known = profiles, paths == "known"
        lengths: dict[str, list[TracedCall]] = defaultdict(list)
        for workflow in trace:
            for call in workflow.calls:
                lengths[call.stage].append(call)
        self._tokens = {stage: fmean(call.output_tokens for call in calls) for stage, calls in lengths.items()}
        self._stage_s = {stage: self._mean_s(calls) for stage, calls in lengths.items()}
        after: dict[tuple[str, int], list[float]] = defaultdict(list)
        for workflow in trace:
            own = zip(workflow.calls, rounds(workflow.calls), self._by_stage(workflow.calls), strict=True)
            for call, times, path_s in own:
                after[call.stage, times].append(path_s)
        self._rest_s = {known: fmean(paths) for known, paths in after.items()}

        self.workflow_s = fmean(self._whole_s(workflow.calls) for workflow in trace)

    def of(self, calls: Sequence[TracedCall]) -> list[Expected]:
        """What a policy expects of each call of a workflow of the trace."""
        paths = self._by_stage(calls)
        if not self._known:
            paths = [self._rest_s[call.stage, times] for call, times in zip(calls, rounds(calls), strict=True)]
        return [
            Expected(self._tokens[call.stage], self._stage_s[call.stage], rest_s)
            for call, rest_s in zip(calls, paths, strict=True)
        ]

    def truth(self, calls: Sequence[TracedCall]) -> list[Expected]:
        """What an oracle knows of each: its true lengths, and those of all that follows."""
        times = [self._time_s(call.tool_s, call.prompt_tokens, call.output_tokens) for call in calls]
        rest = paths_s(calls, times)
        return [Expected(call.output_tokens, own, rest) for call, own, rest in zip(calls, times, rest, strict=True)]

    def _by_stage(self, calls: Sequence[TracedCall]) -> list[float]:
        return paths_s(calls, [self._stage_s[call.stage] for call in calls])

    def _whole_s(self, calls: Sequence[TracedCall]) -> float:
        paths = zip(calls, self._by_stage(calls), strict=True)
        return max(self._stage_s[call.stage] + path_s for call, path_s in paths)

    def _mean_s(self, calls: Sequence[TracedCall]) -> float:
        prompt, output = fmean(call.prompt_tokens for call in calls), fmean(call.output_tokens for call in calls)
        return self._time_s(fmean(call.tool_s for call in calls), prompt, output)

    def _time_s(self, tool_s: float, prompt: float, output: float) -> float:
        return tool_s or fmean(exec_s(profile, prompt, output) for profile in self._profiles)


def paths_s(calls: Sequence[TracedCall], times_s: Sequence[float]) -> list[float]:
    """For each call, the longest path of what needs it, itself left out, if each takes its time."""
    paths = [0.0] * len(calls)
    for at in range(len(calls) - 1, -1, -1):
        for before in calls[at].needs:
            paths[before] = max(paths[before], times_s[at] + paths[at])
    return paths


def rounds(calls: Sequence[TracedCall]) -> list[int]:
    """For each call, how many times its stage ran before it; calls side by side count as one time."""
    times: dict[str, dict[tuple[int, ...], int]] = defaultdict(dict)
    return [times[call.stage].setdefault(call.needs, len(times[call.stage])) for call in calls]


def alone_s(trace: Trace, profile: InstanceProfile) -> float:
    """U: the mean latency of a workflow by itself, with as many instances of this profile as it can use, in s.

    Workflows of a single call are left out where there are others: their slo_scale is relative to those.
    """
    workflows = [workflow.calls for workflow in trace if len(workflow.calls) > 1]
    return fmean(_alone_s(calls, profile) for calls in workflows or [workflow.calls for workflow in trace])


def _alone_s(calls: Sequence[TracedCall], profile: InstanceProfile) -> float:
    times = [call.tool_s or exec_s(profile, call.prompt_tokens, call.output_tokens) for call in calls]
    paths = paths_s(calls, times)
    return max(own + after for own, after in zip(times, paths, strict=True))
