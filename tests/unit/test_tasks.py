"""Ending tasks that swallow a cancellation."""

import asyncio

from common.tasks import end


async def test_a_task_that_swallows_one_cancellation_is_ended() -> None:
    swallowed = asyncio.Event()

    async def stubborn() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            swallowed.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(stubborn())
    await asyncio.sleep(0)
    await asyncio.wait_for(end(task), 5)
    assert swallowed.is_set()
    assert task.cancelled()


async def test_errors_of_ended_tasks_are_taken_note_of() -> None:
    async def fails() -> None:
        raise ValueError("on its way")

    task = asyncio.create_task(fails())
    await asyncio.sleep(0)
    await end(task)
    assert isinstance(task.exception(), ValueError)
