"""Celery: its defaults (a message is acknowledged when its job starts), but no results are kept."""

import noop_job
from celery import Celery

app = Celery("bench", broker=noop_job.URL)
app.conf.update(task_ignore_result=True, broker_connection_retry_on_startup=True)


@app.task
def noop(chain: int, step: int, length: int, payload: str) -> None:
    with noop_job.ending(chain, step, length) as enqueues:
        if enqueues:
            enqueue(chain, step + 1, length, payload)


def enqueue(chain: int, step: int, length: int, payload: str) -> None:
    noop.apply_async((chain, step, length, payload))
