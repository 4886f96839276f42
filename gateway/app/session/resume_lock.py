"""Held while it is decided what becomes of a session that comes back, so that two connections cannot both get it."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

from gateway.core.types import Attempt

_HAD: Final = True
_OVERTAKEN: Final = False
"""What those are told who wait for their turn."""

_NONE: Final[deque[asyncio.Future[bool]]] = deque(maxlen=0)
"""Of the locks for which nobody waits, which are nearly all."""


class ResumeLock:
    """A lock whose holders take turns in the order in which they came; but of resumes only the newest waits.

    How long it is held is up to who holds it, and the client of a resume has a say in that. So whoever needs something
    that is short asks ``locked`` before, and does not keep it while it waits. The lock goes from hand to hand: if it is
    not ``locked``, it is had at once.

    By ``async with`` it is taken for what is no resume. A resume takes it by ``enter``, and leaves it by ``leave``.
    """

    __slots__ = ("_is_held", "_resume", "_waiting")

    def __init__(self) -> None:
        self._is_held = False
        self._waiting: deque[asyncio.Future[bool]] = _NONE
        self._resume: tuple[Attempt, asyncio.Future[bool]] | None = None

    def locked(self) -> bool:
        """Tell whether whoever comes now has to wait."""
        return self._is_held

    async def __aenter__(self) -> None:
        """Wait for one's turn."""
        if self._is_held:
            await self._wait(asyncio.get_running_loop().create_future())
        self._is_held = True

    async def __aexit__(self, *_: object) -> None:
        """See ``leave``."""
        self.leave()

    def enter_at_once(self) -> bool:
        """Take it if nobody has it; a coroutine less than ``enter``.

        Returns:
            Whether it is had now.
        """
        if self._is_held:
            return False
        self._is_held = True
        return True

    async def enter(self, attempt: Attempt) -> bool:
        """Take it for a resume; an older one that waits, or another one of the same attempt, waits no more.

        Args:
            attempt: which one, as its client counts them.

        Returns:
            Whether it is had now; if not, a newer one waits, or has waited, in place of this one.
        """
        if self.enter_at_once():
            return True
        if self._resume is not None:
            newest, turn = self._resume
            if newest > attempt:
                return False
            if not turn.done():
                turn.set_result(_OVERTAKEN)
                self._waiting.remove(turn)
        turn = asyncio.get_running_loop().create_future()
        mine = self._resume = attempt, turn
        try:
            return await self._wait(turn)
        finally:
            if self._resume is mine:
                self._resume = None

    def leave(self) -> None:
        """Hand it on to whoever has waited for longest."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(_HAD)
                return
        self._waiting = _NONE
        self._is_held = False

    async def _wait(self, turn: asyncio.Future[bool]) -> bool:
        if self._waiting is _NONE:
            self._waiting = deque()
        self._waiting.append(turn)
        try:
            return await turn
        except asyncio.CancelledError:
            if not turn.cancelled() and turn.result() is _HAD:
                self.leave()  # it was handed over in the same moment
            raise
