"""Zones in the in-memory grid, and what crosses between clusters, as one connection sees them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import aclosing
from dataclasses import replace
from typing import Generic, TypeVar

from gateway.adapters.memory.grid_connection import GridConnection
from gateway.adapters.memory.state import NEVER_ADOPTED, GridData
from gateway.core.topics.selectors import Selector
from gateway.core.types import NodeRef
from gateway.core.zones.records import Join, Member, Record, Zone, ZoneUid
from gateway.core.zones.routes import ClusterId
from gateway.core.zones.stamps import Mark
from gateway.ports import (
    Carrier,
    ForwardedEvent,
    GridUnavailable,
    LeavingEvent,
    LinkName,
    PositionLost,
    StreamPosition,
    TailBatch,
    TakeResult,
    ZoneTable,
    check_stamps,
)

T = TypeVar("T")


class _WholeFollower(Generic[T]):
    """Follows something that is told as a whole after each change.

    Args:
        connection: of the node.
        read: tells a number that changes with it, and what it is.
    """

    def __init__(self, connection: GridConnection, read: Callable[[GridData], tuple[int, T]]) -> None:
        self._connection = connection
        self._read = read
        self._wake = asyncio.Event()
        connection.watch_tables(self._wake.set)

    async def follow(self) -> AsyncGenerator[tuple[T, bool], None]:
        """Yield it, and whether writes may have been lost before, until the grid is closed; for one listener."""
        connection = self._connection
        revision: int | None = None
        generation = NEVER_ADOPTED
        while not connection.closed:
            if connection.readable:
                number, whole = self._read(connection.server.data)
                if generation != connection.generation or number != revision:
                    lost = generation not in {NEVER_ADOPTED, connection.generation}
                    revision, generation = number, connection.generation
                    yield whole, lost
                    await asyncio.sleep(0)
                    continue
            self._wake.clear()
            await self._wake.wait()


class MemoryZoneStore:
    """``ZoneStore`` of one connection to the in-memory grid."""

    def __init__(self, connection: GridConnection) -> None:
        self._connection = connection
        self._tables = _WholeFollower(connection, lambda grid: (grid.zones.revision, grid.zones.table()))
        self._interests = _WholeFollower(connection, lambda grid: (grid.zones.interest_revision, grid.zones.interest()))

    async def follow(self) -> AsyncIterator[ZoneTable]:
        """See the port. The iterator ends when the grid is closed."""
        async with aclosing(self._tables.follow()) as tables:
            async for table, lost in tables:
                yield replace(table, lost_writes=lost)

    async def read(self) -> ZoneTable:
        """See the port."""
        return await self._connection.run(lambda grid, _now: grid.zones.table())

    async def put(self, *records: Zone | Member | Join) -> int:
        """See the port."""
        return await self._connection.run(lambda grid, _now: grid.zones.put(records))

    async def remove_join(self, name: str) -> bool:
        """See the port."""
        return await self._connection.run(lambda grid, _now: grid.zones.remove_join(name))

    async def enter(self, zone: Zone, member: Member, *, made: float) -> None:
        """See the port."""
        await self._connection.run(lambda grid, _now: grid.zones.enter(zone, member, made))

    async def leave(self, cluster: ClusterId, *, made: float) -> ZoneUid | None:
        """See the port."""
        return await self._connection.run(lambda grid, _now: grid.zones.leave(cluster, made))

    async def merge(self, members: Sequence[Member], *, own: ClusterId) -> int:
        """See the port."""
        return await self._connection.run(lambda grid, _now: grid.zones.merge(members, own))

    async def restore(self, records: Sequence[Record]) -> int:
        """See the port."""
        return await self._connection.run(lambda grid, _now: grid.zones.restore(records))

    async def put_interest(self, node: NodeRef, selectors: Collection[Selector], *, keep: float) -> None:
        """See the port."""
        await self._connection.run(lambda grid, _now: grid.zones.put_interest(node, selectors, keep, grid.leases))

    async def change_interest(
        self, node: NodeRef, *, added: Collection[Selector], dropped: Collection[Selector], keep: float
    ) -> None:
        """See the port."""
        await self._connection.run(
            lambda grid, _now: grid.zones.change_interest(node, added, dropped, keep, grid.leases)
        )

    async def follow_interest(self) -> AsyncIterator[Mapping[NodeRef, AbstractSet[Selector]]]:
        """See the port. The iterator ends when the grid is closed."""
        async with aclosing(self._interests.follow()) as interests:
            async for interest, _ in interests:
                yield interest

    async def sweep_interest(self) -> int:
        """See the port."""
        return await self._connection.run(lambda grid, now: grid.zones.sweep_interest(grid.leases, now))

    async def carry(self, node: NodeRef, names: Collection[LinkName], *, lease: float) -> Mapping[LinkName, Carrier]:
        """See the port."""
        return await self._connection.run(lambda grid, now: grid.zones.carry(node, names, lease, grid.generation, now))

    async def release(self, node: NodeRef, names: Collection[LinkName]) -> None:
        """See the port."""
        await self._connection.run(lambda grid, _now: grid.zones.release(node, names))

    async def carriers(self) -> Mapping[LinkName, Carrier]:
        """See the port."""
        return await self._connection.run(lambda grid, now: grid.zones.carriers(now))

    async def cursors(self, link: LinkName) -> Mapping[int, StreamPosition]:
        """See the port."""
        return await self._connection.run(lambda grid, _now: grid.zones.cursors(link))

    async def advance(self, link: LinkName, term: int, positions: Mapping[int, StreamPosition]) -> bool:
        """See the port."""
        return await self._connection.run(lambda grid, _now: grid.zones.advance(link, term, positions))

    async def forget_link(self, link: LinkName) -> None:
        """See the port."""
        await self._connection.run(lambda grid, _now: grid.zones.forget_link(link))


class MemoryOriginStore:
    """``OriginStore`` of one connection to the in-memory grid."""

    def __init__(self, connection: GridConnection) -> None:
        self._connection = connection

    async def stamp(self, partition: int, events: Sequence[LeavingEvent], *, cluster: ClusterId) -> list[Mark | None]:
        """See the port."""
        server = self._connection.server
        return await self._connection.run(
            lambda grid, _now: grid.topics.stamp(partition, events, cluster, server.wall())
        )

    async def note_times(self) -> None:
        """See the port."""
        server = self._connection.server
        await self._connection.run(lambda grid, _now: grid.topics.note_times(server.wall()))

    async def apply(self, events: Sequence[ForwardedEvent], *, cluster: ClusterId) -> list[TakeResult]:
        """See the port."""
        check_stamps(events)
        server = self._connection.server

        def take(grid: GridData, now: float) -> list[TakeResult]:
            chosen = events[: server.publishes_to_execute(len(events))]
            wall = server.wall()
            return [grid.topics.take(each, grid.generation, now, cluster=cluster, wall=wall) for each in chosen]

        results = await self._connection.run(take)
        if len(results) < len(events):
            raise GridUnavailable("the answer was lost on its way")
        return results

    async def read_after(self, partition: int, position: StreamPosition, limit: int) -> TailBatch | PositionLost | None:
        """See the port."""

        def read(grid: GridData, _now: float) -> TailBatch | PositionLost | None:
            found = grid.topics.after(partition, position, limit)
            if found is None:
                return PositionLost(partition)
            values, end = found
            if not values:
                return None
            return TailBatch(partition, tuple(values), end, grid.topics.arrived(partition, end, len(values)))

        return await self._connection.run(read)
