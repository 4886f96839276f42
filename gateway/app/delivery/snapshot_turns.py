"""All snapshots of a node together get a share of each turn of the loop, and take turns at it (P20).

A snapshot of many topics is made a few milliseconds at a time, but hundreds of sessions may want one together: if each
had its time in every turn, a turn would take as long as all of them. Whoever has had its time waits behind the others.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

from gateway.app.runtime.clock import Clock

SNAPSHOT_SECONDS: Final = 0.002
"""Seconds after which others get their turn: among many selectors made for it a topic is found slowly."""

SNAPSHOTS_SECONDS: Final = 2 * SNAPSHOT_SECONDS
"""Seconds of a turn of the loop for all snapshots, about: as for what sessions say. Who wants a small one does not wait
as long as that is not used up."""


class SnapshotTurns:
    """Says who goes on with its snapshot, and for how long.

    Whoever makes a snapshot calls ``begin``, works without waiting for anything else, and calls ``pause`` before it
    goes on for longer than it was told, or ``end``.

    Args:
        clock: time.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._began: float | None = None
        """When whoever works now began; None if nobody does."""
        self._spent = 0.0
        """Seconds since the begin of the turn, or of more of them if little was spent in each."""
        self._scheduled = False

    def __len__(self) -> int:
        return len(self._waiting)

    async def begin(self) -> float:
        """Wait until there is time for a snapshot, if there is none left in this turn.

        Returns:
            Until when it may be worked at, on the monotonic clock.
        """
        if self._spent >= SNAPSHOTS_SECONDS:
            await self._turn()
        return self._work()

    async def pause(self) -> float:
        """Let others have their turn; returns what ``begin`` does."""
        self.end()
        await self._turn()
        return self._work()

    def end(self) -> None:
        """Nothing more is worked at for now; no effect if nobody works, such as whoever is cancelled in a pause."""
        if self._began is None:
            return
        self._spent += self._clock.monotonic() - self._began
        self._began = None
        if self._spent < SNAPSHOTS_SECONDS:
            self._let_one_on()
        else:
            self._schedule()

    def _work(self) -> float:
        began = self._began = self._clock.monotonic()
        return began + SNAPSHOT_SECONDS

    async def _turn(self) -> None:
        come: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(come)
        self._schedule()
        await come

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._begin_turn)

    def _begin_turn(self) -> None:
        self._scheduled = False
        self._spent = 0.0
        self._let_one_on()
        if self._waiting:
            self._schedule()

    def _let_one_on(self) -> None:
        """Let the next one on; what it works at is counted when it has done so."""
        while self._waiting:
            come = self._waiting.popleft()
            if not come.done():  # whose session has ended meanwhile is not waited for
                come.set_result(None)
                return
