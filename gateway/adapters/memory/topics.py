"""The port of topics on the in-memory grid; the steps themselves are in ``topic_table``."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Final

from gateway.adapters.memory.connection import Connection
from gateway.core.types import TopicPath
from gateway.ports import PublishCommand, Published, PublishResult, StreamPosition, TopicPage, TopicValue

PAGE_VALUES: Final = 1000
"""Values read in one step: some milliseconds of copying, and others get their turn between two pages."""


class MemoryTopicStore:
    """``TopicStore`` of one connection to the in-memory grid."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def publish(self, commands: Sequence[PublishCommand]) -> list[PublishResult]:
        """See the port."""
        server = self._connection.server
        return await self._connection.run(
            lambda grid, now: grid.publish(commands[: server.publishes_to_execute(len(commands))], now)
        )

    async def position(self, partition: int) -> StreamPosition:
        """See the port."""
        return await self._connection.run(lambda grid, _now: grid.topics.position(partition))

    async def values(self, partition: int) -> AsyncIterator[Sequence[TopicValue]]:
        """See the port; a topic that is new since the read began is missed."""
        topics = await self._connection.run(lambda grid, _now: grid.topics.topics(partition))
        for first in range(0, len(topics), PAGE_VALUES):
            wanted = topics[first : first + PAGE_VALUES]
            yield await self._read(partition, wanted)

    async def scan(self, partition: int, *, step: str | None, count: int) -> TopicPage:
        """See the port; a step is the last topic before it."""
        return await self._connection.run(lambda grid, _now: grid.topics.scan(partition, step, count, grid.generation))

    async def read(self, topics: Sequence[TopicPath]) -> list[TopicValue | None]:
        """See the port."""
        return await self._connection.run(
            lambda grid, _now: [grid.topics.read(topic, grid.generation) for topic in topics]
        )

    async def remove(self, topic: TopicPath, *, keep: float) -> Published | None:
        """See the port."""
        return await self._connection.run(lambda grid, now: grid.remove(topic, keep, now))

    async def restore(self, values: Sequence[TopicValue]) -> int:
        """See the port."""
        return await self._connection.run(lambda grid, now: grid.restore(values, now))

    async def _read(self, partition: int, topics: Sequence[TopicPath]) -> Sequence[TopicValue]:
        return await self._connection.run(lambda grid, _now: grid.topics.values(partition, topics, grid.generation))
