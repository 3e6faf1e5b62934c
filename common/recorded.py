"""What is kept of a workflow that completed, to be replayed: its calls, when it came, how long it took. No Redis."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from common import wire


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """One request. `needs`: positions of calls before it; a tool has seconds, and no tokens.

    cached_tokens of the prompt came from the engine's prefix cache; queued_s, run_s: how long it waited and ran.
    """

    stage: str
    prompt_tokens: int
    output_tokens: int
    cached_tokens: int
    needs: tuple[int, ...]
    queued_s: float
    run_s: float

    @property
    def tool_s(self) -> float:
        """Seconds of a tool; 0 for a call of a model."""
        return 0.0 if self.prompt_tokens else max(self.run_s, 0.001)


@dataclass(frozen=True, slots=True)
class Recorded:
    """One workflow. Times in ms of Redis time; `values`: the parameters its policy had at its end."""

    name: str
    tenant: str
    arrival_at: int
    deadline_at: int
    ended_at: int
    policy: str
    values: Mapping[str, float]
    calls: tuple[RecordedCall, ...]

    @property
    def latency_s(self) -> float:
        """From arrival to end."""
        return (self.ended_at - self.arrival_at) / 1000

    @property
    def slo_s(self) -> float:
        """From arrival to deadline."""
        return (self.deadline_at - self.arrival_at) / 1000


def pack(record: Recorded) -> bytes:
    """A record in a few bytes a call: stages are told once."""
    stages = list(dict.fromkeys(call.stage for call in record.calls))
    place = {stage: at for at, stage in enumerate(stages)}
    calls = [
        (
            place[call.stage], call.prompt_tokens, call.output_tokens, call.cached_tokens, call.needs,
            round(1000 * call.queued_s), round(1000 * call.run_s),
        )
        for call in record.calls
    ]  # fmt: skip
    times = (record.arrival_at, record.deadline_at, record.ended_at)
    return wire.pack((record.name, record.tenant, *times, record.policy, dict(record.values), stages, calls))


def unpack(data: bytes) -> Recorded:
    """The record of `pack`; an error of any class where it is none."""
    name, tenant, arrival_at, deadline_at, ended_at, policy, values, stages, calls = wire.unpack(data)[:9]
    return Recorded(
        name, tenant, arrival_at, deadline_at, ended_at, policy, values, tuple(_call(stages, *call) for call in calls)
    )


def _call(stages: list[str], at: int, *rest: Any) -> RecordedCall:
    prompt, output, cached, needs, queued_ms, run_ms = rest[:6]
    return RecordedCall(stages[at], prompt, output, cached, tuple(needs), queued_ms / 1000, run_ms / 1000)
