"""No part of a run waits for ever: each has a deadline, and who misses it says what it waited for."""

from __future__ import annotations

import asyncio
import gc
import inspect
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, Final, TypeVar

from tests.support.faults import eventually
from tests.support.times import scaled

GIVEN_UP: Final = 15.0
"""Seconds, on a quiet machine, in which what was cancelled must have ended."""

_AGAIN: Final = 1.0
"""Seconds between two cancellations of the same task."""

_FRAMES: Final = 4
"""Innermost places that are told of a task that waits."""

T = TypeVar("T")


class Stuck(Exception):
    """Something did not end in time; the message says what, and where it waits."""


async def bounded(work: Coroutine[Any, Any, T], what: str, within: float) -> T:
    """Wait for something, but not for ever.

    Args:
        work: that is done in a task of its own.
        what: for the message.
        within: seconds on a quiet machine.

    Returns:
        What the work returns; it raises what that raises.

    Raises:
        Stuck: it did not end in time; it was cancelled.
    """
    task = asyncio.create_task(work, name=f"chaos-{what}")
    try:
        await asyncio.wait([task], timeout=scaled(within))
        if not task.done():
            raise Stuck(f"{what} did not end within {scaled(within):g} s; it waited in {waits_in(task)}")
        return task.result()
    finally:
        if not task.done():
            await ended(task)


async def in_time(condition: Callable[[], bool | Awaitable[bool]], within: float) -> bool:
    """Tell whether *condition*, which may be a coroutine function, comes to hold within so many seconds, scaled."""
    try:
        await eventually(condition, "", within=within)
    except AssertionError:
        return False
    return True


async def ended(*tasks: asyncio.Task[Any], within: float = GIVEN_UP) -> list[BaseException | None]:
    """Cancel tasks until they end: a library that is about to time out may take the cancellation for its own.

    Args:
        tasks: which.
        within: seconds on a quiet machine after which they are left alone.

    Returns:
        What each ended with: an exception, ``Stuck`` if it did not end, or None.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + scaled(within)
    while (left := [task for task in tasks if not task.done()]) and loop.time() < deadline:
        for task in left:
            task.cancel()
        await asyncio.wait(left, timeout=_AGAIN)
    return [_end_of(task) for task in tasks]


def waits_in(task: asyncio.Task[Any]) -> str:
    """Tell the innermost places at which a task waits, the outer one first; empty if it has ended."""
    places = []
    awaited: Any = task.get_coro()
    while awaited is not None:
        frame = _first_of(awaited, "cr_frame", "gi_frame", "ag_frame")
        if frame is not None:
            places.append(f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno} {frame.f_code.co_name}")
        within = _first_of(awaited, "cr_await", "gi_yieldfrom", "ag_await")
        if within is None and frame is None:
            # One step of an asynchronous generator, such as the end of a context, leads to it in no other way.
            within = next((each for each in gc.get_referents(awaited) if inspect.isasyncgen(each)), None)
        awaited = within
    return " > ".join(places[-_FRAMES:])


def _end_of(task: asyncio.Task[Any]) -> BaseException | None:
    if not task.done():
        return Stuck(f"{task.get_name()} does not end though it was cancelled; it waits in {waits_in(task)}")
    if task.cancelled():
        return asyncio.CancelledError()
    return task.exception()


def _first_of(awaited: Any, *names: str) -> Any:
    return next((found for name in names if (found := getattr(awaited, name, None)) is not None), None)
