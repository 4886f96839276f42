"""Queues as one connection of one node to the in-memory grid has them; the steps are in ``queue_table``."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence

from gateway.adapters.memory.grid_connection import GridConnection
from gateway.core.types import SessionId, TopicPath
from gateway.ports import (
    Attached,
    AttachRefused,
    DeadLetter,
    DeliveriesLost,
    DeliveryItem,
    DeliveryTag,
    Fed,
    Message,
    MessageId,
    Ownership,
    QueueBounds,
    QueueState,
    Removal,
    SendCommand,
    SendResult,
    SettleCommand,
    SettleResult,
    StreamPosition,
)


class MemoryQueueStore:
    """``QueueStore`` of one connection to the in-memory grid."""

    def __init__(self, connection: GridConnection) -> None:
        self._connection = connection
        self._followed: dict[int, StreamPosition] = {}
        self._items: deque[DeliveryItem] = deque()
        self._wake = asyncio.Event()
        connection.watch_deliveries(self._look)

    async def send(self, commands: Sequence[SendCommand]) -> list[SendResult]:
        """See the port."""
        return await self._connection.run(lambda grid, now: grid.send(commands, now))

    async def attach(
        self, ownership: Ownership, queue: TopicPath, *, credit: int, bounds: QueueBounds, most_consumers: int
    ) -> Attached | AttachRefused:
        """See the port."""
        return await self._connection.run(
            lambda grid, now: grid.attach(
                ownership, queue, credit=credit, bounds=bounds, most_consumers=most_consumers, now=now
            )
        )

    async def read(self, queue: TopicPath, messages: Sequence[MessageId]) -> list[Message | None]:
        """See the port."""
        return await self._connection.run(lambda grid, _now: grid.queues.read(queue, messages))

    async def settle(self, command: SettleCommand) -> list[SettleResult]:
        """See the port."""
        return await self._connection.run(lambda grid, now: grid.settle(command, now))

    async def leave(self, ownership: Ownership, queue: TopicPath, *, seen: DeliveryTag) -> None:
        """See the port."""
        await self._connection.run(lambda grid, now: grid.leave(ownership, queue, seen, now))

    async def fire(self, partition: int) -> int:
        """See the port."""
        return await self._connection.run(lambda grid, now: grid.queues.fire(partition, grid.generation, now))

    async def declare(
        self,
        queue: TopicPath,
        bounds: QueueBounds,
        *,
        owner: Ownership | None = None,
        most: int = 1,
        source: str = "",
        fed: str = "",
    ) -> bool:
        """See the port."""
        return await self._connection.run(
            lambda grid, now: grid.declare_queue(queue, bounds, owner=owner, most=most, source=source, fed=fed, now=now)
        )

    async def feed(
        self,
        queue: TopicPath,
        bounds: QueueBounds,
        *,
        after: str | None = None,
        upto: str = "",
        events: Sequence[tuple[bytes, bytes]] = (),
    ) -> Fed | None:
        """See the port."""
        return await self._connection.run(
            lambda grid, now: grid.queues.feed(
                queue, bounds, after=after, upto=upto, events=events, generation=grid.generation, now=now
            )
        )

    async def remove(self, queue: TopicPath, *, force: bool = False, unused: float = 0.0) -> Removal:
        """See the port."""
        return await self._connection.run(lambda grid, now: grid.queues.remove(queue, now, force=force, unused=unused))

    async def last_use(self, queue: TopicPath) -> int | None:
        """See the port."""
        return await self._connection.run(lambda grid, _now: grid.queues.last_use(queue))

    async def look(self, queue: TopicPath) -> QueueState | None:
        """See the port."""
        return await self._connection.run(lambda grid, _now: grid.queues.look(queue))

    async def consumers(self, queue: TopicPath) -> Sequence[SessionId]:
        """See the port."""
        return await self._connection.run(lambda grid, _now: grid.queues.consumers(queue))

    async def dismiss(self, queue: TopicPath, session: SessionId) -> bool:
        """See the port."""
        return await self._connection.run(lambda grid, now: grid.dismiss_consumer(queue, session, now))

    async def names(self, partition: int, *, after: TopicPath | None, count: int) -> Sequence[TopicPath]:
        """See the port."""
        return await self._connection.run(lambda grid, _now: grid.queues.names(partition, after, count))

    async def dead(self, queue: TopicPath, *, count: int, skip: int = 0) -> Sequence[DeadLetter]:
        """See the port."""
        return await self._connection.run(lambda grid, _now: grid.queues.dead(queue, count, skip))

    async def revive(self, queue: TopicPath, messages: Sequence[MessageId], *, drop: bool = False) -> int:
        """See the port."""
        return await self._connection.run(
            lambda grid, now: grid.queues.revive(queue, messages, grid.generation, now, drop=drop)
        )

    def follow(self, partition: int, position: StreamPosition) -> None:
        """See the port."""
        self._followed[partition] = position
        self._look()

    def unfollow(self, partition: int) -> None:
        """See the port."""
        self._followed.pop(partition, None)

    async def deliveries(self) -> AsyncIterator[DeliveryItem]:
        """See the port. The iterator ends when the grid is closed."""
        while not self._connection.closed:
            while self._items:
                yield self._items.popleft()
                await asyncio.sleep(0)
            self._wake.clear()
            await self._wake.wait()

    def _look(self) -> None:
        """Take in what was assigned in the followed partitions."""
        if self._connection.readable:
            for partition, position in list(self._followed.items()):
                # What was assigned before the grid went back is told anew to who attaches.
                is_known = position.grid_generation == self._connection.generation
                read = self._connection.server.deliveries_after(partition, position) if is_known else None
                if read is None:
                    del self._followed[partition]
                    self._items.append(DeliveriesLost(partition))
                elif read:
                    self._items.extend(read)
                    self._followed[partition] = read[-1].position
        self._wake.set()
