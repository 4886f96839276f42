"""The requests of one session, in the order in which its client sent them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from gateway.app.session import Session
from gateway.core.packets import Bye, ClientRequest
from gateway.core.types import RequestNumber

Work: TypeAlias = ClientRequest | Bye


class RequestLane:
    """The unanswered requests of one session, in order.

    It does not hold the session, which holds it: the two would stay, once the session has ended, until the collector of
    cycles comes round, which is seldom (``gateway.garbage``).

    Args:
        execute: executes the first requests of a queue and removes them from it.
    """

    __slots__ = ("_execute", "_queue", "_space", "_task")

    def __init__(self, execute: Callable[[Session, deque[Work]], Awaitable[None]]) -> None:
        self._execute = execute
        self._queue: deque[Work] = deque()
        self._task: asyncio.Task[None] | None = None
        self._space: asyncio.Event | None = None

    def __len__(self) -> int:
        return len(self._queue)

    @property
    def oldest_open(self) -> RequestNumber | None:
        """Number of the oldest request without an answer; None if there is none."""
        if self._queue and not isinstance(self._queue[0], Bye):
            return self._queue[0].request
        return None

    def put(self, session: Session, work: Work) -> None:
        """Add a request of the session whose lane this is at the end."""
        self._queue.append(work)
        if self._task is None:
            self._task = asyncio.create_task(self._run(session), name=f"requests-{session.id}")

    async def idle(self) -> None:
        """Wait until every request has been answered."""
        if self._task is not None:
            await asyncio.wait([self._task])

    async def below(self, limit: int) -> None:
        """Wait until fewer than *limit* requests are unanswered."""
        while len(self._queue) >= limit:
            if self._space is None:
                self._space = asyncio.Event()
            self._space.clear()
            await self._space.wait()

    def abandon(self) -> None:
        """The session is dropped here: what is unanswered will be asked again elsewhere, or never."""
        self._queue.clear()
        if self._space is not None:
            self._space.set()
        if self._task is not None and self._task is not asyncio.current_task():
            self._task.cancel()

    async def _run(self, session: Session) -> None:
        try:
            while self._queue:
                await self._execute(session, self._queue)
                if self._space is not None:
                    self._space.set()
                # Not every step waits for the grid, and one client's requests must not hold up everybody else.
                await asyncio.sleep(0)
        finally:
            self._task = None
