"""Workflows for the chaos: fan-out, loop, tool, a join that needs not all; submitted all the time; their answers."""

import sqlite3
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import redis

from common.store.keys import Keys
from hexgen_flow.client import Client, ClientError, Unreachable

MOST_LIVE = 16
PER_S = 5.0
CANCELLED_SHARE = 0.04
AMENDED_SHARE = 0.2
SLO_S = 3600.0
SLOS_S = (900.0, 7200.0)
"""Earlier or later, and none that is over by then: a request that nobody can take for a while would fail."""
TEXT = {"text": {"type": "string"}}
WORKFLOWS: tuple[dict[str, Any], ...] = (
    {
        "name": "fan",
        "inputs": TEXT,
        "stages": {
            "plan": {"prompt": "{{ inputs.text }}"},
            "parts": {"needs": ["plan"], "for_each": [1, 2, 3, 4], "prompt": "{{ plan.output }} part {{ item }}"},
            "merge": {"needs": ["parts"], "prompt": "{{ parts.output | join(', ') }}"},
        },
        "output": "merge.output",
    },
    {
        "name": "loop",
        "inputs": TEXT,
        "stages": {
            "draft": {"prompt": "{{ inputs.text }} round {{ round }}", "repeat": {"while": "round < 2", "max": 5}}
        },
        "output": "draft.output",
    },
    {
        "name": "tool",
        "inputs": TEXT,
        "stages": {
            "ask": {"prompt": "{{ inputs.text }}"},
            "mend": {
                "needs": ["ask"],
                "repeat": {"while": "round < 1", "max": 3},
                "stages": {
                    "query": {
                        "tool": "sql.execute",
                        "args": {"database": "shop", "sql": "SELECT '{{ ask.output }} ' || {{ round }} AS answer"},
                        "timeout_s": 20,
                        "retries": 4,
                    }
                },
            },
        },
        "output": "mend.output.query.rows",
    },
    {
        "name": "race",
        "inputs": TEXT,
        "stages": {
            "tries": {"for_each": [1, 2, 3], "join": {"quorum": 2}, "prompt": "{{ inputs.text }} try {{ item }}"},
            "extra": {"prompt": "{{ inputs.text }} extra", "optional": True},
            "end": {"needs": ["tries", "extra"], "prompt": "{{ inputs.text }} is over"},
        },
        "output": "end.output",
    },
)


def answer(name: str, text: str) -> Any:
    """What the workflow of that name must answer."""
    answers: dict[str, Any] = {
        "fan": ", ".join(f"{text} part {part}" for part in (1, 2, 3, 4)),
        "loop": f"{text} round 2",
        "tool": [[f"{text} 1"]],
        "race": f"{text} is over",
    }
    return answers[name]


def databases(folder: Path) -> dict[str, str]:
    """The tools' databases, made in `folder`: name -> URL."""
    path = folder / "shop.sqlite"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE item (name TEXT)")
    connection.close()
    return {"shop": f"sqlite:///{path}"}


class Load(threading.Thread):
    """Submits under ids of its own, again until Redis has answered, so that each is there once; cancels and amends few.

    amended: the SLOs asked for, by workflow, in ms.
    """

    def __init__(self, url: str, store: "redis.Redis", keys: Keys, seed: int) -> None:
        super().__init__(name="load", daemon=True)
        self._url, self._store, self._keys, self._random = url, store, keys, Random(f"load {seed}")
        self._stopped = threading.Event()
        self.answers: dict[str, Any] = {}
        self.cancelled: set[str] = set()
        self.amended: dict[str, list[int]] = {}
        self._failed: Exception | None = None

    def stop(self) -> None:
        """Submit nothing more; what is being submitted is submitted. Raises what has ended it before."""
        self._stopped.set()
        self.join()
        if self._failed is not None:
            raise self._failed

    def run(self) -> None:
        try:
            self._go_on()
        except Exception as error:
            self._failed = error

    def _go_on(self) -> None:
        with Client(self._url, self._keys.namespace) as client:
            while not self._stopped.wait(self._random.expovariate(PER_S)):
                if self._room():
                    self._submit(client)

    def _room(self) -> bool:
        with suppress(redis.RedisError):
            waiting: Any = self._store.xlen(self._keys.submissions)
            live: Any = self._store.zcard(self._keys.live)
            return bool(waiting + live < MOST_LIVE)
        return False

    def _submit(self, client: Client) -> None:
        workflow, number = self._random.choice(WORKFLOWS), len(self.answers)
        text, tenant = f"question {number}", f"tenant-{self._random.randrange(3)}"
        submission: Mapping[str, Any] = {"id": f"chaos.{number}", "tenant": tenant, "slo_s": SLO_S}
        while True:
            with suppress(Unreachable):
                client.submit(workflow["name"], {"text": text}, **submission)
                break
            self._stopped.wait(0.05)
        self.answers[f"chaos.{number}"] = answer(workflow["name"], text)
        if self._random.random() < CANCELLED_SHARE:
            victim = self._one_of_the_last()
            self.cancelled.add(victim)
            with suppress(ClientError):  # asked for or not: it may end in either way
                client.cancel(victim)
        if self._random.random() < AMENDED_SHARE:
            victim, slo_ms = self._one_of_the_last(), round(1000 * self._random.uniform(*SLOS_S))
            self.amended.setdefault(victim, []).append(slo_ms)
            with suppress(ClientError):  # as above; asked once, so that it must be told once at most
                client.amend(victim, slo_s=slo_ms / 1000)

    def _one_of_the_last(self) -> str:
        number = len(self.answers) - 1
        return f"chaos.{self._random.randrange(max(0, number - MOST_LIVE), number + 1)}"
