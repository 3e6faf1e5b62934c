"""RQ: its defaults. Keeping each job and its result for a while, as it does, is faster than deleting them at once."""

import noop_job
from rq import Queue

queue = Queue("bench", connection=noop_job.connection)


def noop(chain: int, step: int, length: int, payload: str) -> None:
    with noop_job.ending(chain, step, length) as enqueues:
        if enqueues:
            enqueue(chain, step + 1, length, payload)


def enqueue(chain: int, step: int, length: int, payload: str) -> None:
    queue.enqueue(noop, chain, step, length, payload)
