"""What a scheduler knows of workflows it has seen many of: mean lengths by stage, and what still comes after a call.

The simulator gives policies these instead of the truth; only an oracle sees true lengths.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from statistics import fmean

from common.model import InstanceProfile
from common.policy.cost import exec_s
from coordinator.simulator.trace import Trace, TracedCall


class Expectation:
    """Means over a trace. Times are means over the cluster, in s."""

    def __init__(self, trace: Trace, profiles: Sequence[InstanceProfile]) -> None:
        self._profiles = profiles
        lengths: dict[str, list[TracedCall]] = defaultdict(list)
        for workflow in trace:
            for call in workflow:
                lengths[call.stage].append(call)
        self.tokens = {stage: fmean(call.output_tokens for call in calls) for stage, calls in lengths.items()}
        self.stage_s = {stage: self._mean_s(calls) for stage, calls in lengths.items()}
        after: dict[tuple[str, int], list[float]] = defaultdict(list)
        for workflow in trace:
            for call, times, path_s in zip(workflow, rounds(workflow), self._paths_s(workflow), strict=True):
                after[call.stage, times].append(path_s)
        self._rest_s = {known: fmean(paths) for known, paths in after.items()}
        self.workflow_s = fmean(self._whole_s(workflow) for workflow in trace)

    def rest_s(self, stage: str, times: int) -> float:
        """The longest path of what follows a call of this stage that is its workflow's so manieth (from 0)."""
        return self._rest_s[stage, times]

    def _mean_s(self, calls: Sequence[TracedCall]) -> float:
        prompt, output = fmean(call.prompt_tokens for call in calls), fmean(call.output_tokens for call in calls)
        tool_s = fmean(call.tool_s for call in calls)
        return tool_s or fmean(exec_s(profile, prompt, output) for profile in self._profiles)

    def _paths_s(self, workflow: Sequence[TracedCall]) -> list[float]:
        """For each call, the longest path of what needs it, itself left out."""
        paths = [0.0] * len(workflow)
        for at in range(len(workflow) - 1, -1, -1):
            for before in workflow[at].needs:
                paths[before] = max(paths[before], self.stage_s[workflow[at].stage] + paths[at])
        return paths

    def _whole_s(self, workflow: Sequence[TracedCall]) -> float:
        paths = self._paths_s(workflow)
        return max(self.stage_s[call.stage] + path for call, path in zip(workflow, paths, strict=True))


def rounds(workflow: Sequence[TracedCall]) -> list[int]:
    """For each call, how many times its stage ran before it; calls side by side count as one time."""
    seen: Counter[tuple[str, tuple[int, ...]]] = Counter()
    times: dict[str, dict[tuple[int, ...], int]] = defaultdict(dict)
    found = []
    for call in workflow:
        seen[call.stage, call.needs] += 1
        found.append(times[call.stage].setdefault(call.needs, len(times[call.stage])))
    return found


def alone_s(trace: Trace, profile: InstanceProfile) -> float:
    """U: the mean latency of a workflow by itself, with as many instances of this profile as it can use, in s."""
    latencies = []
    for workflow in trace:
        ends: list[float] = []
        for call in workflow:
            start = max((ends[before] for before in call.needs), default=0.0)
            ends.append(start + (call.tool_s or exec_s(profile, call.prompt_tokens, call.output_tokens)))
        latencies.append(max(ends))
    return fmean(latencies)
