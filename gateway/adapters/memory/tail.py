"""The port of topic streams on the in-memory grid."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Final

from gateway.adapters.memory.connection import Connection
from gateway.ports import PositionLost, StreamPosition, TailBatch, TailItem

BATCH_ENTRIES: Final = 1000
"""Most entries of one batch; after each, other tasks get their turn."""


class MemoryTopicTail:
    """``TopicTail`` of one connection to the in-memory grid."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._followed: dict[int, StreamPosition] = {}
        self._paused: set[int] = set()
        # A dict, because it keeps the order: each partition gets its turn before one of them gets a second.
        self._waiting: dict[int, None] = {}
        self._wake = asyncio.Event()
        connection.listen(self._look_at)

    def follow(self, partition: int, position: StreamPosition) -> None:
        """See the port."""
        self._followed[partition] = position
        self._paused.discard(partition)
        self._look_at({partition})

    def unfollow(self, partition: int) -> None:
        """See the port."""
        self._followed.pop(partition, None)
        self._waiting.pop(partition, None)
        self._paused.discard(partition)

    def pause(self, partition: int) -> None:
        """See the port."""
        if partition in self._followed:
            self._paused.add(partition)
            self._waiting.pop(partition, None)

    def resume(self, partition: int) -> None:
        """See the port."""
        if partition in self._paused:
            self._paused.remove(partition)
            self._look_at({partition})

    async def items(self) -> AsyncIterator[TailItem]:
        """See the port. The iterator ends when the grid is closed."""
        while not self._connection.closed:
            item = self._next()
            if item is not None:
                yield item
                await asyncio.sleep(0)
            elif not (self._waiting and self._connection.readable):
                self._wake.clear()
                await self._wake.wait()

    def _look_at(self, partitions: set[int] | None) -> None:
        followed = self._followed.keys() - self._paused if self._paused else self._followed.keys()
        self._waiting.update(dict.fromkeys(followed if partitions is None else partitions & followed))
        self._wake.set()

    def _next(self) -> TailItem | None:
        """Read one partition that waits; None if none does, or if it had nothing new."""
        if not self._connection.readable or not self._waiting:
            return None
        partition = next(iter(self._waiting))
        del self._waiting[partition]
        read = self._connection.server.after(partition, self._followed[partition], BATCH_ENTRIES)
        if read is None:
            del self._followed[partition]
            return PositionLost(partition)
        values, position = read
        if not values:
            return None
        self._followed[partition] = position
        if len(values) == BATCH_ENTRIES:
            self._waiting[partition] = None
        return TailBatch(partition, tuple(values), position)
