"""RQ: its defaults, but no result is kept, which it does faster."""

import noop_job
from rq import Queue

queue = Queue("bench", connection=noop_job.connection)


def noop(chain: int, step: int, length: int, payload: str) -> None:
    with noop_job.ending(chain, step, length) as enqueues:
        if enqueues:
            enqueue(chain, step + 1, length, payload)


def enqueue(chain: int, step: int, length: int, payload: str) -> None:
    queue.enqueue(noop, chain, step, length, payload, result_ttl=0)
