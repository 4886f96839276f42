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
from collections.abc import Collection, Sequence
from math import inf
from typing import Final

from gateway.app.context import Context
from gateway.app.delivery.replicas import RETRY_READ, Replicas
from gateway.catalogue import log_events as events
from gateway.ports import GridUnavailable

REST: Final = 0.01
"""Seconds between the begins of two rounds: the first one who comes waits for nothing but the grid, and in a storm many
share a round, which costs a command for each partition."""

PATIENCE: Final = 0.1
"""Seconds that ``catch_up`` waits: a hundred round trips to the grid."""

NEVER: Final = -inf
"""The moment of sessions that no other node has served: they wait for nothing but copies that are whole."""


class _Round:
    """Who waits for the next look at the end of a stream.

    Each has a future of its own, which costs less than a shield around a common one, and may be cancelled.

    Attributes:
        patient: those who wait until it is over.
        impatient: those who wait for ``PATIENCE`` at most.
    """

    __slots__ = ("impatient", "patient")

    def __init__(self) -> None:
        self.patient: list[asyncio.Future[None]] = []
        self.impatient: list[asyncio.Future[None]] = []

    def let_on(self) -> None:
        """Let those look again who are impatient."""
        for each in self.impatient:
            if not each.done():
                each.set_result(None)

    def end(self) -> None:
        """Let all look again."""
        self.let_on()
        for each in self.patient:
            if not each.done():
                each.set_result(None)


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
        self._next: dict[int, _Round] = {}
        """By partition: the round that is to begin."""
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
        whole, known = self._replicas.whole, self._known
        for number in numbers:  # noqa: SIM110 - for every resume, and a generator costs as much as the look
            if whole(number) is None or known.get(number, NEVER) < moment:
                return False
        return True

    async def wait(self, numbers: Collection[int], moment: float) -> None:
        """Wait for what ``passed`` tells; for as long as the grid is unreachable.

        Args:
            numbers: of partitions that are held. Those that are given up meanwhile are not waited for.
            moment: not after now.
        """
        while behind := [each for each in self._behind(numbers, moment) if self._replicas.get(each) is not None]:
            await self._replicas.complete(behind)
            if moment > NEVER:
                await self._look(behind, patient=True)

    async def catch_up(self, numbers: Collection[int], moment: float) -> None:
        """Wait for what ``passed`` tells, if that takes but a moment; the copies are whole, and held.

        Args:
            numbers: of the partitions.
            moment: not after now.
        """
        await self._look(self._behind(numbers, moment), patient=False)

    def _behind(self, numbers: Collection[int], moment: float) -> list[int]:
        return [number for number in numbers if not self.passed((number,), moment)]

    async def _look(self, numbers: Sequence[int], *, patient: bool) -> None:
        """Wait for the next round of partitions; that of one under way may know less than is needed."""
        loop = asyncio.get_running_loop()
        ends: list[asyncio.Future[None]] = []
        for number in numbers:
            following = self._next.get(number)
            if following is None:
                following = self._next[number] = _Round()
                self._schedule()
            if not patient and not following.impatient:
                loop.call_later(PATIENCE, following.let_on)
            end = loop.create_future()
            (following.patient if patient else following.impatient).append(end)
            ends.append(end)
        for end in ends:
            await end

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            rest = self._begun + REST - self._clock.monotonic()
            if rest > 0:
                asyncio.get_running_loop().call_later(rest, self._begin)
            else:
                asyncio.get_running_loop().call_soon(self._begin)

    def _begin(self) -> None:
        self._is_scheduled = False
        self._begun = self._clock.monotonic()
        for number in self._next.keys() - self._running:
            self._running.add(number)
            self._background.once(self._run(number, self._next.pop(number)), "read-barrier")

    async def _run(self, number: int, this: _Round) -> None:
        replicas, topics = self._replicas, self._topics
        try:
            while replicas.get(number) is not None:
                began = self._clock.monotonic()
                self.asked += 1
                try:
                    await replicas.reach(number, await topics.position(number))
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
            this.end()
            if number in self._next:
                self._schedule()
