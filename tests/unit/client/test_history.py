"""Values that every listener sees from the beginning."""

from __future__ import annotations

import asyncio

import pytest

from gateway.client.history import History
from gateway.core.client.errors import SessionRefused
from gateway.core.client.history import KEPT
from gateway.core.wire.codes import ErrorCode


async def test_every_listener_sees_everything_whenever_it_begins() -> None:
    history: History[int] = History()
    early = asyncio.create_task(_all(history))
    await asyncio.sleep(0)
    history.append(1)
    history.append(2)
    late = asyncio.create_task(_all(history))
    await asyncio.sleep(0)
    history.append(3)
    history.end(None)
    history.append(4)

    assert await early == await late == [1, 2, 3]
    assert len(history) == 3


async def _all(history: History[int]) -> list[int]:
    return [value async for value in history.listen()]


async def test_a_listener_that_is_too_slow_goes_on_with_the_oldest_that_is_kept() -> None:
    history: History[int] = History()
    listener = history.listen()
    history.append(0)
    assert await anext(listener) == 0
    for value in range(1, KEPT + 11):
        history.append(value)

    assert await anext(listener) == 11
    assert await anext(listener) == 12


async def test_the_end_comes_after_what_is_kept_and_says_why() -> None:
    history: History[int] = History()
    history.append(1)
    history.end(SessionRefused("no such session", code=ErrorCode.SESSION_UNKNOWN))
    history.end(None)
    listener = history.listen()

    assert await anext(listener) == 1
    for _ in range(2):
        with pytest.raises(SessionRefused, match="no such session") as caught:
            await anext(listener)
        assert caught.value.code is ErrorCode.SESSION_UNKNOWN


async def test_a_listener_that_is_cancelled_is_forgotten() -> None:
    history: History[int] = History()
    listening = asyncio.create_task(_all(history))
    await asyncio.sleep(0)
    listening.cancel()
    await asyncio.wait([listening])

    assert not history._news
    history.append(1)
