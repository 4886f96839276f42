"""The streams of the grid for all links of a node: each partition is read once, however many clusters want it.

A link that keeps up is handed what the tail has just brought. One that is behind reads pages from its own place.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final, TypeAlias

from gateway.app.context import Context
from gateway.core.zones.protocol import BATCH_EVENTS
from gateway.ports import GridUnavailable, PositionLost, StreamPosition, TailBatch

GRID_RETRY: Final = 0.5
"""Seconds before the grid is asked again that was unreachable."""

Wake: TypeAlias = Callable[[int], None]
"""Told of a partition that has something new; does not wait."""


class OutgoingStreams:
    """Follows partitions in which other clusters have interest.

    Args:
        context: of the node.
    """

    def __init__(self, context: Context) -> None:
        self._grid = context.grid
        self._holders: dict[int, dict[Wake, None]] = {}
        self._at: dict[int, StreamPosition] = {}
        self._last: dict[int, tuple[StreamPosition, TailBatch]] = {}
        self._to_follow: set[int] = set()
        self._asked = asyncio.Event()

    def hold(self, partition: int, wake: Wake) -> None:
        """Follow a partition from about now on, and tell *wake* of it, once at first."""
        holders = self._holders.setdefault(partition, {})
        if not holders:
            self._to_follow.add(partition)
            self._asked.set()
        holders[wake] = None

    def release(self, partition: int, wake: Wake) -> None:
        """Give up what ``hold`` asked for; no effect if it did not."""
        holders = self._holders.get(partition, {})
        holders.pop(wake, None)
        if not holders and self._holders.pop(partition, None) is not None:
            self._to_follow.discard(partition)
            self._at.pop(partition, None)
            self._last.pop(partition, None)
            self._grid.link_tail.unfollow(partition)

    async def after(self, partition: int, position: StreamPosition) -> TailBatch | PositionLost | None:
        """Return what follows a place; None if nothing does yet.

        Raises:
            GridUnavailable: see ``gateway.ports``.
        """
        at = self._at.get(partition)
        if at == position:
            return None
        start, batch = self._last.get(partition, (None, None))
        if batch is not None and start == position:
            return batch
        return await self._grid.origins.read_after(partition, position, BATCH_EVENTS)

    def behind(self, partition: int, position: StreamPosition) -> int:
        """Tell how many entries follow a place, as far as that is known."""
        at = self._at.get(partition)
        if at is None or at.grid_generation != position.grid_generation:
            return 0
        return max(0, at.sequence - position.sequence)

    async def run(self) -> None:
        """Take what the tail brings, for ever."""
        async for item in self._grid.link_tail.items():
            partition = item.partition
            if partition not in self._holders:
                continue
            if isinstance(item, PositionLost):
                self._at.pop(partition, None)
                self._last.pop(partition, None)
                self._to_follow.add(partition)
                self._asked.set()
            else:
                before = self._at.get(partition)
                if before is not None:
                    self._last[partition] = before, item
                self._at[partition] = item.position
                self._wake(partition)

    async def follow(self) -> None:
        """Begin to follow what is asked for, for ever."""
        while True:
            await self._asked.wait()
            self._asked.clear()
            while self._to_follow:
                partition = self._to_follow.pop()
                try:
                    position = await self._grid.topics.position(partition)
                except GridUnavailable:
                    self._to_follow.add(partition)
                    await asyncio.sleep(GRID_RETRY)
                    continue
                if partition in self._holders:
                    with suppress(KeyError):
                        del self._last[partition]
                    self._at[partition] = position
                    self._grid.link_tail.follow(partition, position)
                    self._wake(partition)

    def _wake(self, partition: int) -> None:
        for wake in tuple(self._holders.get(partition, ())):
            wake(partition)
