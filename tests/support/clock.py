"""Time in tests: a clock that is moved by hand, and waiting for a condition instead of sleeping."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import Final

from tests.support.times import PATIENCE, scaled

DEADLINE: Final = PATIENCE
"""Seconds, on a quiet machine, until a condition counts as broken."""

_POLL: Final = 0.005
"""Seconds between looks at a condition."""


class VirtualClock:
    """A clock that stands still until it is moved; call it to read it.

    Args:
        start: its first reading, in seconds.
    """

    def __init__(self, start: float = 1000.0) -> None:
        self.now = start

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> float:
        """Move it forward and return the new reading."""
        assert seconds >= 0, "time does not go back"
        self.now += seconds
        return self.now


async def eventually(
    condition: Callable[[], bool | Awaitable[bool]], *, deadline: float = DEADLINE, message: str = ""
) -> None:
    """Wait until *condition* holds.

    Args:
        condition: a function or coroutine function without arguments.
        deadline: seconds of real time to wait at most, on a quiet machine.
        message: what was hoped for, for the failure.

    Raises:
        AssertionError: it did not come to hold in time.
    """
    longest = scaled(deadline)
    end = time.monotonic() + longest
    while True:
        holds = condition()
        if inspect.isawaitable(holds):
            holds = await holds
        if holds:
            return
        assert time.monotonic() < end, f"not within {longest:g} s: {message or condition}"
        await asyncio.sleep(_POLL)
