"""taskiq on its stream broker (a message is acknowledged when its job has ended; there are no results)."""

import noop_job
from taskiq_redis import RedisStreamBroker

# From id 0: the driver may be earlier than the worker, which makes the consumer group.
broker = RedisStreamBroker(noop_job.URL, consumer_id="0")


@broker.task
async def noop(chain: int, step: int, length: int, payload: str) -> None:
    with noop_job.ending(chain, step, length) as enqueues:
        if enqueues:
            await enqueue(chain, step + 1, length, payload)


async def enqueue(chain: int, step: int, length: int, payload: str) -> None:
    await noop.kiq(chain, step, length, payload)
