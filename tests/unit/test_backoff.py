"""Loops that outlive trouble."""

import asyncio
import logging

import pytest

from common.backoff import keep, patiently, pause_s
from common.errors import StoreRefused, StoreUnavailable, Superseded


async def test_keep_goes_on_after_any_error_and_logs_once_per_change(caplog: pytest.LogCaptureFixture) -> None:
    turns = [
        StoreUnavailable("away"),
        StoreUnavailable("away"),
        None,
        ValueError("a bad entry"),
        None,
        Superseded("later"),
    ]
    caplog.set_level(logging.INFO)

    async def turn() -> None:
        what = turns.pop(0)
        if what is not None:
            raise what

    good: list[str] = []
    with pytest.raises(Superseded):
        await asyncio.wait_for(keep("loop", turn, good.append), 10)
    assert good == ["loop", "loop"]
    told = [record.getMessage() for record in caplog.records]
    assert told == [
        "loop: away; trying again",
        "loop: back after 2 failed turns",
        "loop: unexpected error; going on",
        "loop: back after 1 failed turns",
    ]


async def test_patiently_waits_for_the_store_only(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    answers: list[Exception | str] = [StoreUnavailable("away"), StoreUnavailable("away"), "here"]

    async def call() -> str:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    assert await patiently(call, "call") == "here"
    told = [record.getMessage() for record in caplog.records]
    assert told == ["call: away; trying again", "call: back after 2 failed tries"]
    answers.append(StoreRefused("no rights"))
    with pytest.raises(StoreRefused):
        await patiently(call, "call")


async def test_patience_may_have_an_end() -> None:
    turns = 0

    async def call() -> None:
        nonlocal turns
        turns += 1
        raise StoreUnavailable("away")

    with pytest.raises(StoreUnavailable):
        await patiently(call, "call", lambda: turns == 3)
    assert turns == 3


def test_pauses_grow_to_a_bound_with_jitter() -> None:
    for failures in range(1, 50):
        longest = min(2.0, 0.05 * 2 ** min(failures, 10))
        assert longest / 2 <= pause_s(failures) <= longest
