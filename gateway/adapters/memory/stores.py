"""The ports of the in-memory grid, as one connection of one node has them; the steps themselves are in the tables."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from typing import Final

from gateway.adapters.memory.grid_connection import GridConnection
from gateway.adapters.memory.table_news import Changes, TableFollower
from gateway.core.destinations.destination import Destination, Origin
from gateway.core.destinations.limits import HistoryLimits
from gateway.core.policy.revocations import Revocation
from gateway.core.types import NodeRef, SessionId, TopicPath
from gateway.ports import (
    AllDestinations,
    AllRevocations,
    Appended,
    Applied,
    Backup,
    DestinationChanges,
    DestinationNews,
    DestinationRemoved,
    ExpiredLease,
    HistoryPage,
    HistoryQuestion,
    JournalBatch,
    KeptTopics,
    LeaseTable,
    LostNode,
    MasterWish,
    NodeEntry,
    NodeReport,
    Ownership,
    PositionLost,
    PublishCommand,
    Published,
    PublishResult,
    RevocationChanges,
    RevocationNews,
    StreamPosition,
    TailBatch,
    TailItem,
    Takeover,
    TakeoverProgress,
    TopicPage,
    TopicValue,
    Unblocked,
)


class MemoryNodeDirectory:
    """``NodeDirectory`` of one connection to the in-memory grid."""

    def __init__(self, connection: GridConnection) -> None:
        self._connection = connection

    async def join(self, node: NodeRef, *, lease: float, saved_ago: float | None = None) -> None:
        """See the port."""
        saved = self._saved_until(saved_ago)
        await self._connection.run(lambda grid, now: grid.leases.join(node, lease, now, saved))

    def time_in_doubt(self) -> bool:
        """See the port: nobody sets this clock."""
        return False

    async def renew(
        self,
        node: NodeRef,
        *,
        lease: float,
        watch: float = 0.0,
        wish: MasterWish = MasterWish.KEEP,
        saved_ago: float | None = None,
    ) -> LeaseTable:
        """See the port."""
        saved = self._saved_until(saved_ago)
        return await self._connection.run(
            lambda grid, now: grid.leases.renew(node, lease, now, watch, wish, saved=saved)
        )

    def _saved_until(self, ago: float | None) -> float | None:
        return None if ago is None else self._connection.server.now() - ago

    async def leave(self, node: NodeRef) -> None:
        """See the port."""
        await self._connection.run(lambda grid, now: grid.leases.leave(node, now))

    async def take_over(self, expired: NodeRef, *, by: NodeRef, within: float) -> ExpiredLease | None:
        """See the port."""
        return await self._connection.run(lambda grid, now: grid.leases.take_over(expired, by, within, now))

    async def keep_takeover(self, expired: NodeRef, *, by: NodeRef, within: float, progress: TakeoverProgress) -> bool:
        """See the port."""
        return await self._connection.run(
            lambda grid, now: grid.leases.keep_takeover(expired, by, within, progress, now)
        )

    async def clean(self, expired: NodeRef, *, by: NodeRef, within: float) -> TakeoverProgress | None:
        """See the port."""
        return await self._connection.run(lambda grid, now: grid.leases.clean(expired, by, within, now))

    async def takeovers(self) -> list[Takeover]:
        """See the port."""
        return await self._connection.run(lambda grid, now: grid.leases.takeovers(now))

    async def look(self, *nodes: NodeRef) -> list[float | None]:
        """See the port."""
        return await self._connection.run(lambda grid, now: grid.leases.look(nodes, now))

    async def finish_takeover(self, expired: NodeRef, *, by: NodeRef, clean_after: float = 0.0) -> None:
        """See the port."""
        await self._connection.run(lambda grid, now: grid.leases.finish_takeover(expired, by, now, clean_after))

    async def grant(self, nodes: Sequence[NodeRef], *, lease: float) -> Sequence[NodeRef]:
        """See the port."""
        return await self._connection.run(lambda grid, now: grid.leases.grant(nodes, lease, now))

    async def report(self, node: NodeRef, report: NodeReport) -> None:
        """See the port."""
        await self._connection.run(lambda grid, _now: grid.leases.report(node, report))

    async def tell_backup(self, node: NodeRef, backup: Backup | None, *, keep: float) -> bool:
        """See the port."""
        return await self._connection.run(lambda grid, now: grid.leases.tell_backup(node, backup, keep, now))

    async def backups(self, *nodes: NodeRef) -> Mapping[NodeRef, Backup]:
        """See the port."""
        return await self._connection.run(lambda grid, now: grid.leases.backups(nodes, now))

    async def cluster(self, suggested: str) -> str:
        """See the port."""
        return await self._connection.run(lambda grid, _now: grid.cluster(suggested))

    async def entries(self) -> Sequence[NodeEntry]:
        """See the port."""
        return await self._connection.run(lambda grid, now: grid.leases.entries(now))

    async def lost(self) -> Sequence[LostNode]:
        """See the port."""
        return await self._connection.run(lambda grid, now: grid.leases.lost(now))

    async def tell_claimed(self, to: NodeRef, *ownerships: Ownership) -> None:
        """See the port."""

        def tell(_grid: object, _now: float) -> None:
            for ownership in ownerships:
                self._connection.server.tell(to, ownership)

        await self._connection.run(tell)

    def claimed_elsewhere(self, node: NodeRef) -> AsyncIterator[Ownership]:
        """See the port. What is told from this call on is kept for the reader; the iterator ends with ``close``."""
        return self._connection.mailbox(node)


PAGE_VALUES: Final = 1000
"""Values read in one step: some milliseconds of copying, and others get their turn between two pages."""


class MemoryTopicStore:
    """``TopicStore`` of one connection to the in-memory grid."""

    def __init__(self, connection: GridConnection) -> None:
        self._connection = connection

    async def publish(self, commands: Sequence[PublishCommand]) -> list[PublishResult]:
        """See the port."""
        server = self._connection.server
        return await self._connection.run(
            lambda grid, now: grid.publish(commands[: server.publishes_to_execute(len(commands))], now)
        )

    async def position(self, partition: int) -> StreamPosition:
        """See the port."""
        return await self._connection.run(lambda grid, _now: grid.topics.position(partition, grid.generation))

    async def between(self, partition: int, after: StreamPosition, upto: StreamPosition) -> Sequence[TopicValue] | None:
        """See the port."""
        return await self._connection.run(lambda grid, _now: grid.topics.between(partition, after, upto))

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

    async def remove(self, topic: TopicPath, *, keep: float, history: HistoryLimits | None = None) -> Published | None:
        """See the port."""
        return await self._connection.run(lambda grid, now: grid.remove(topic, keep, now, history))

    async def due(self, partitions: Sequence[int], *, limit: int) -> Sequence[TopicPath]:
        """See the port."""
        return await self._connection.run(lambda grid, now: grid.topics.due(partitions, limit, now))

    async def end(self, topics: Sequence[tuple[TopicPath, HistoryLimits | None]], *, keep: float) -> int:
        """See the port."""
        return await self._connection.run(
            lambda grid, now: sum(grid.topics.end(each, grid.generation, keep, now, kept) for each, kept in topics)
        )

    async def restore(self, values: Sequence[TopicValue]) -> int:
        """See the port."""
        return await self._connection.run(lambda grid, now: grid.restore(values, now))

    async def _read(self, partition: int, topics: Sequence[TopicPath]) -> Sequence[TopicValue]:
        return await self._connection.run(lambda grid, _now: grid.topics.values(partition, topics, grid.generation))


class MemoryHistoryStore:
    """``HistoryStore`` of one connection to the in-memory grid."""

    def __init__(self, connection: GridConnection) -> None:
        self._connection = connection

    async def read(self, partition: int, questions: Sequence[HistoryQuestion]) -> list[HistoryPage]:
        """See the port."""
        return await self._connection.run(lambda grid, _now: grid.topics.read_histories(partition, questions))

    async def topics(self, partition: int, *, step: str | None, count: int) -> KeptTopics:
        """See the port."""
        return await self._connection.run(lambda grid, _now: grid.topics.histories(partition).topics(step, count))

    async def sweep(self, partition: int, topics: Sequence[tuple[TopicPath, HistoryLimits | None]]) -> int:
        """See the port."""
        return await self._connection.run(lambda grid, now: grid.topics.sweep(partition, topics, now))

    async def restore(self, topic: TopicPath, events: Sequence[TopicValue], limits: HistoryLimits) -> int:
        """See the port."""
        return await self._connection.run(lambda grid, now: grid.topics.restore_history(topic, events, limits, now))


BATCH_ENTRIES: Final = 1000
"""Most entries of one batch; after each, other tasks get their turn."""


class MemoryTopicTail:
    """``TopicTail`` of one connection to the in-memory grid."""

    def __init__(self, connection: GridConnection) -> None:
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
        arrived = self._connection.server.data.topics.arrived(partition, position, len(values))
        return TailBatch(partition, tuple(values), position, arrived)


class MemoryRevocationStore:
    """``RevocationStore`` of one connection to the in-memory grid."""

    def __init__(self, connection: GridConnection) -> None:
        self._connection = connection
        self._follower: TableFollower[Revocation, Revocation | Unblocked] = TableFollower(
            connection, lambda grid: grid.revocations
        )

    async def add(self, revocation: Revocation) -> None:
        """See the port."""
        await self._connection.run(lambda grid, _now: grid.revocations.add(revocation))

    async def unblock(self, name: str) -> None:
        """See the port."""
        await self._connection.run(lambda grid, _now: grid.revocations.unblock(name))

    async def restore(self, revocations: Sequence[Revocation]) -> int:
        """See the port."""
        return await self._connection.run(lambda grid, _now: grid.revocations.restore(revocations))

    async def forget(self, revocations: Sequence[Revocation]) -> None:
        """See the port."""
        await self._connection.run(lambda grid, _now: grid.revocations.forget(revocations))

    async def follow(self) -> AsyncIterator[RevocationNews]:
        """See the port. The iterator ends when the grid is closed."""
        async with aclosing(self._follower.follow()) as news:
            async for each in news:
                yield RevocationChanges(each.made) if isinstance(each, Changes) else AllRevocations(*each)


class MemoryDestinationStore:
    """``DestinationStore`` of one connection to the in-memory grid."""

    def __init__(self, connection: GridConnection) -> None:
        self._connection = connection
        self._follower: TableFollower[Destination, Destination | DestinationRemoved] = TableFollower(
            connection, lambda grid: grid.destinations
        )

    async def put(self, destination: Destination) -> bool:
        """See the port."""
        return await self._connection.run(lambda grid, _now: grid.destinations.put(destination))

    async def remove(self, name: str) -> bool:
        """See the port."""
        return await self._connection.run(lambda grid, _now: grid.destinations.remove(name))

    async def apply(self, origin: Origin, destinations: Sequence[Destination]) -> Applied:
        """See the port."""
        return await self._connection.run(lambda grid, _now: grid.destinations.apply(origin, destinations))

    async def restore(self, destinations: Sequence[Destination]) -> int:
        """See the port."""
        return await self._connection.run(lambda grid, _now: grid.destinations.restore(destinations))

    async def follow(self) -> AsyncIterator[DestinationNews]:
        """See the port. The iterator ends when the grid is closed."""
        async with aclosing(self._follower.follow()) as news:
            async for each in news:
                yield DestinationChanges(each.made) if isinstance(each, Changes) else AllDestinations(*each)


class MemoryCallKeyStore:
    """``CallKeyStore`` of one connection to the in-memory grid."""

    def __init__(self, connection: GridConnection) -> None:
        self._connection = connection

    async def bind(self, publisher: SessionId, fingerprint: bytes) -> bytes:
        """See the port."""
        return await self._connection.run(lambda grid, now: grid.call_keys.bind(publisher, fingerprint, now))


class MemoryJournal:
    """``JournalStore`` of one connection to the in-memory grid.

    Args:
        connection: of the node.
        node: the node, whose batches are numbered.
    """

    def __init__(self, connection: GridConnection, node: NodeRef) -> None:
        self._connection = connection
        self._producer = node.incarnation

    async def append(self, batches: Sequence[JournalBatch]) -> list[Appended | Exception]:
        """See the port."""
        return await self._connection.run(
            lambda grid, now: [
                grid.journal.append(
                    *(each, self._producer, grid.generation, now), hooks=grid.hooks.has_cursor(each.partition)
                )
                for each in batches
            ]
        )
