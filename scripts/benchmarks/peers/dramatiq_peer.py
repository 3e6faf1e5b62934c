"""Dramatiq: its defaults (a message is acknowledged when its job has ended; there are no results)."""

import dramatiq
import noop_job
from dramatiq.brokers.redis import RedisBroker

dramatiq.set_broker(RedisBroker(url=noop_job.URL))


@dramatiq.actor
def noop(chain: int, step: int, length: int, payload: str) -> None:
    with noop_job.ending(chain, step, length) as enqueues:
        if enqueues:
            enqueue(chain, step + 1, length, payload)


def enqueue(chain: int, step: int, length: int, payload: str) -> None:
    noop.send(chain, step, length, payload)
