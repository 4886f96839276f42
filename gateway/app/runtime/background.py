"""Tasks nobody waits for: kept alive, named, and never failing in silence."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

from gateway.catalogue import log_events as events
from gateway.ports import EventLog

RESTART_DELAY: Final = 0.5
"""Seconds before a background loop that met a bug is started again: it must not spin, and must not stay down."""

CANCEL_AGAIN: Final = 1.0
"""Seconds until a task that was cancelled and goes on is cancelled again. Tidying up takes less. Up to Python 3.11,
``asyncio.wait_for``, by which writes to Redis are bounded, loses a cancellation that meets the end of the write."""


class Background:
    """Owns a node's background tasks, and begins none after its end.

    Whoever still works when the node ends, such as a timer or a resume that waits for the grid, may leave work here
    that nobody would end any more.

    Args:
        log: where a failing task is told.
    """

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    def once(self, work: Coroutine[Any, Any, object], name: str) -> None:
        """Run *work* to its end."""
        if self._closed:
            work.close()
            return
        task = asyncio.create_task(self._guarded(work, name), name=name)
        # Python complains of a coroutine that was never begun, which is what a task cancelled early leaves behind.
        task.add_done_callback(lambda _: work.close())
        self._keep(task)

    def forever(self, work: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
        """Run *work* again and again, also after it failed."""
        if self._closed:
            return
        self._keep(asyncio.create_task(self._repeat(work, name), name=name))

    async def close(self) -> None:
        """Cancel everything and wait for it; nothing is begun from now on."""
        self._closed = True
        while tasks := [task for task in self._tasks if task is not asyncio.current_task()]:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks, timeout=CANCEL_AGAIN)

    def _keep(self, task: asyncio.Task[None]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _guarded(self, work: Coroutine[Any, Any, object], name: str) -> None:
        try:
            await work
        except Exception as error:  # noqa: BLE001 - the last resort of a task that nobody awaits
            self._log.emit(events.BACKGROUND_TASK_FAILED, task=name, error=repr(error))

    async def _repeat(self, work: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
        while True:
            await self._guarded(work(), name)
            await asyncio.sleep(RESTART_DELAY)
