"""`hexgen-flow worker --engine simulated`, but answers are as long as the prompt's last line says (see `replay`).

Arguments: instance, its profile as JSON, time scale, "cache" or "no-cache". Settings from the environment.
"""

import asyncio
import json
import sys

from common import logs, settings
from common.model import InstanceProfile
from workers import service
from workers.engines.protocol import EngineCall
from workers.engines.responders import Answer
from workers.engines.simulated import SimulatedEngine


class AsTold:
    """Says nothing, at the length that the trace gives."""

    def respond(self, call: EngineCall) -> Answer:
        return Answer("", int(call.call.text().rpartition("\n")[2]))


def engine(profile: InstanceProfile, time_scale: float, *, prefix_cache: bool) -> SimulatedEngine:
    """The engine that all contestants get."""
    return SimulatedEngine(
        profile, responder=AsTold(), models=("default",), time_scale=time_scale, prefix_cache=prefix_cache
    )


if __name__ == "__main__":
    instance, profile, time_scale, cache = sys.argv[1:]
    logs.configure("WARNING")
    made = engine(InstanceProfile(**json.loads(profile)), float(time_scale), prefix_cache=cache == "cache")
    asyncio.run(service.run(settings.load(), made, service.InstanceOptions(instance, grace_s=1.0)))
