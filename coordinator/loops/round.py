"""A round of tuning: what is live is read, judged by `coordinator.tuner`, and the decision kept. Knows no RQ."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from common import clock
from common.errors import InvalidDocument
from common.model import Json
from common.settings import Settings
from common.store.cell import Cell
from coordinator.replay import LATEST, Replay, arrival_rate, burstiness, fitting
from coordinator.tuner import Decision, Limits, Memory, Situation, decide, is_due, pack_memory, read_memory
from coordinator.tuning import in_force

ARRIVALS = 4 * LATEST
log = logging.getLogger("hexgen.tuner")


@dataclass(frozen=True, slots=True)
class Plan:
    """How to tune. shadow: decide and tell, change nothing; interval_s between rounds, or longer where a round costs
    more than `share` of one core.
    """

    shadow: bool = False
    interval_s: float = 30.0
    share: float = 0.05
    limits: Limits = field(default_factory=Limits)


async def due(cell: Cell, plan: Plan) -> bool:
    """Whether it is time for a round: by the record of the last one, whoever made it."""
    last = await cell.tuning.history(1)
    if not last:
        return True
    now, times = await cell.traces.arrivals(ARRIVALS)
    (entry, told), rate = last[0], arrival_rate(times, now).per_s
    waited_s = (now - int(entry.partition("-")[0])) / 1000
    return is_due(told, waited_s, rate, plan.interval_s, plan.share)


async def tune_once(cell: Cell, settings: Settings, plan: Plan, counted_s: float) -> Json:
    """One round: what was decided, as it is kept in the record of decisions.

    counted_s: this process's CPU time up to which rounds before have been counted.
    """
    parameters = await cell.tuning.parameters()
    now, times = await cell.traces.arrivals(ARRIVALS)
    records = await cell.traces.window(max(settings.keep_traces, 1))
    profiles = [instance.profile for instance in await cell.instances.all() if instance.status == "ready"]
    policy = records[-1].policy if records else settings.policy
    records = [one for one in records if one.policy == policy]
    if parameters.policy != policy:  # nothing was ever chosen for it
        parameters = replace(parameters, values=records[-1].values if records else {}, since=0)
    rate, replayable = arrival_rate(times, now), fitting(records, profiles)
    situation = Situation(
        policy, in_force(policy, parameters.values), rate.per_s, len(replayable),
        [one for one in records if one.arrival_at >= parameters.since],
    )  # fmt: skip
    replay = Replay(replayable, profiles, policy, rate, burstiness(times)) if replayable else None
    decision = _decision(situation, read_memory(parameters.memory), plan.limits, replay, now // 1000)
    told = _told(decision, situation, plan, len(records)) | {"seed": now // 1000}
    told["cpu_s"] = round(clock.cpu_s() - counted_s, 3)
    return await _keep(cell, parameters.version, decision, told, policy)


def _decision(situation: Situation, memory: Memory, limits: Limits, replay: Replay | None, seed: int) -> Decision:
    if replay is None:
        return Decision("kept", "no workflow is recorded that the ready instances can run", memory)
    try:
        return decide(situation, memory, limits, replay.p95_s, seed)
    except InvalidDocument as error:
        return Decision("kept", f"the window cannot be replayed: {error}", memory)
    except Exception as error:  # told as any other round, so that the next one comes no sooner
        log.exception("a round has failed")
        return Decision("failed", f"internal error: {type(error).__name__}: {error}", Memory())


def _told(decision: Decision, situation: Situation, plan: Plan, recorded: int) -> dict[str, Json]:
    action = decision.action
    if plan.shadow and decision.values is not None:
        action = f"would be {action}"
    return {
        "action": action,
        "reason": decision.reason,
        "policy": situation.policy,
        "before": situation.values,
        "values": situation.values if decision.values is None else decision.values,
        "rate": round(situation.rate, 4),
        "recorded": recorded,
        "replayable": situation.recorded,
        **{name: round(value, 4) if isinstance(value, float) else value for name, value in decision.told.items()},
    }


async def _keep(cell: Cell, version: int, decision: Decision, told: dict[str, Json], policy: str) -> Json:
    """Tell the decision, and let it take effect unless it is not to or somebody else has decided."""
    changed = decision.values is not None and not told["action"].startswith("would")
    memory = pack_memory(decision.memory if changed or decision.values is None else Memory())
    effect: Mapping[str, Any] = {"policy": policy, "values": decision.values} if changed else {}
    if await cell.tuning.decide(version, told, memory, **effect) < 0:
        return told | {"action": "kept", "reason": "another tuner has decided meanwhile", "values": told["before"]}
    return told
