"""Work that nobody waits for, and its end."""

from __future__ import annotations

import asyncio

import pytest

from gateway.adapters.memory import MemoryEventLog
from gateway.app.runtime import background as background_module
from gateway.app.runtime.background import Background
from gateway.app.runtime.batched import Batched
from tests.support.times import time_limit


async def test_a_cancellation_that_gets_lost_does_not_hold_up_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in ``asyncio.wait_for`` of Python 3.11, if what it waits for is done at the same moment."""
    monkeypatch.setattr(background_module, "CANCEL_AGAIN", 0.01)
    monkeypatch.setattr(background_module, "RESTART_DELAY", 0.0)
    background = Background(MemoryEventLog())
    lost = 0
    begun = asyncio.Event()

    async def work() -> None:
        nonlocal lost
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if lost == 3:
                raise
            lost += 1

    background.forever(work, "work")
    await begun.wait()

    async with time_limit(20):
        await background.close()
    assert lost == 3
    assert not background._tasks


async def test_nothing_is_begun_after_the_end() -> None:
    """A resume that the grid answers while the node ends leaves work, and so do timers."""
    begun: list[str] = []

    async def work(name: str) -> None:
        begun.append(name)

    background = Background(MemoryEventLog())
    await background.close()
    pieces: Batched[str, None] = Batched(background, "gathered", delay=0.0, work=lambda keys: work(next(iter(keys))))

    background.once(work("once"), "once")
    background.forever(lambda: work("forever"), "forever")
    pieces.put("gathered", None)
    for _ in range(5):
        await asyncio.sleep(0)

    assert not begun
    assert not background._tasks
    assert asyncio.all_tasks() == {asyncio.current_task()}
