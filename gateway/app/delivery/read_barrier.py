"""Waits until this node knows of the topics what the grid knew at some moment (P6).

A node is behind the grid: mostly by a millisecond, by seconds if it was suspended or its stream was held up. That is no
matter to sessions that have been here all the time. But a session that another node has served may have seen there what
has not come here yet. Before it is sent a value, the ends of the streams are asked for once, and waited for. Consensus
protocols let a follower answer reads in the same way.

```text
claimed ─▶ ends of the streams, asked for by one round ─▶ copies have come there ─▶ values, updates
           for all who wait for these partitions
```
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from math import inf
from typing import Final

from gateway.app.context import Context
from gateway.app.delivery.replicas import RETRY_READ, Replicas
from gateway.catalogue import log_events as events
from gateway.ports import GridUnavailable

REST: Final = 0.01
"""Seconds between the begins of two rounds: the first one who comes waits for nothing but the grid, and in a storm many
share a round, which costs a command for each partition."""

NEVER: Final = -inf
"""The moment of sessions that no other node has served: they wait for nothing but copies that are whole."""


class ReadBarrier:
    """Knows how new the copies of partitions are, and waits until they are new enough.

    Args:
        context: of the node.
        replicas: the copies of partitions.

    Attributes:
        asked: how often the end of a stream was asked for.
    """

    def __init__(self, context: Context, replicas: Replicas) -> None:
        self._clock = context.clock
        self._log = context.log
        self._background = context.background
        self._topics = context.grid.topics
        self._replicas = replicas
        self._known: dict[int, float] = {}
        """By partition: the latest moment of which it is known that all that was in the grid has been applied here."""
        self._next: dict[int, asyncio.Future[None]] = {}
        """By partition: the end of the round that is to begin."""
        self._running: set[int] = set()
        self._begun = NEVER
        self._is_scheduled = False
        self.asked = 0

    def passed(self, numbers: Collection[int], moment: float) -> bool:
        """Tell whether copies of partitions are whole, and have all that the grid had at a moment.

        Args:
            numbers: of the partitions.
            moment: monotonic seconds; ``NEVER`` if it is enough that they are whole.
        """
        return all(self._is_passed(number, moment) for number in numbers)

    async def wait(self, numbers: Collection[int], moment: float) -> None:
        """Wait for what ``passed`` tells; for as long as the grid is unreachable.

        Args:
            numbers: of partitions that are held. Those that are given up meanwhile are not waited for.
            moment: not after now.
        """
        while behind := [
            number
            for number in numbers
            if self._replicas.get(number) is not None and not self._is_passed(number, moment)
        ]:
            await self._replicas.complete(behind)
            if moment > NEVER:
                await asyncio.wait([self._round(number) for number in behind])

    def _is_passed(self, number: int, moment: float) -> bool:
        return self._replicas.whole(number) is not None and self._known.get(number, NEVER) >= moment

    def _round(self, number: int) -> asyncio.Future[None]:
        """Return the end of the next round of a partition; that of one under way may know less than is waited for."""
        found = self._next.get(number)
        if found is None:
            found = self._next[number] = asyncio.get_running_loop().create_future()
            self._schedule()
        return found

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            rest = self._begun + REST - self._clock.monotonic()
            asyncio.get_running_loop().call_later(max(0.0, rest), self._begin)

    def _begin(self) -> None:
        self._is_scheduled = False
        self._begun = self._clock.monotonic()
        for number in self._next.keys() - self._running:
            self._running.add(number)
            self._background.once(self._run(number, self._next.pop(number)), "read-barrier")

    async def _run(self, number: int, passed: asyncio.Future[None]) -> None:
        try:
            while self._replicas.get(number) is not None:
                began = self._clock.monotonic()
                try:
                    await self._reach_end(number)
                except GridUnavailable:
                    await asyncio.sleep(RETRY_READ)
                except Exception as bug:  # noqa: BLE001 - sessions wait for this and must not wait for ever
                    self._log.emit(events.BACKGROUND_TASK_FAILED, task="read-barrier", error=repr(bug))
                    await asyncio.sleep(RETRY_READ)
                else:
                    self._known[number] = began
                    return
        finally:
            self._running.discard(number)
            passed.set_result(None)
            if number in self._next:
                self._schedule()

    async def _reach_end(self, number: int) -> None:
        self.asked += 1
        await self._replicas.reach(number, await self._topics.position(number))
