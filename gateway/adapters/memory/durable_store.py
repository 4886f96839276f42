"""Durable subscriptions as one connection of one node to the in-memory grid has them; see ``durable_table``."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.adapters.memory.grid_connection import GridConnection
from gateway.core.types import SessionId
from gateway.ports import Advance, Durable, DurableName, DurableTerms, InUse, OpenResult, Ownership


class MemoryDurableStore:
    """``DurableStore`` of one connection to the in-memory grid."""

    def __init__(self, connection: GridConnection) -> None:
        self._connection = connection

    async def open(
        self,
        ownership: Ownership,
        name: DurableName,
        terms: DurableTerms,
        *,
        start: str | None,
        instead_of: SessionId | None = None,
    ) -> OpenResult:
        """See the port."""
        return await self._connection.run(
            lambda grid, now: grid.open_durable(ownership, name, terms, start=start, instead_of=instead_of, now=now)
        )

    async def advance(self, ownership: Ownership, name: DurableName, position: str) -> Advance:
        """See the port."""
        return await self._connection.run(lambda grid, _now: grid.durables.advance(ownership, name, position))

    async def release(self, ownership: Ownership, name: DurableName) -> None:
        """See the port."""
        await self._connection.run(lambda grid, now: grid.durables.release(ownership, name, now))

    async def remove(self, name: DurableName, *, by: SessionId | None = None) -> InUse | bool:
        """See the port."""
        return await self._connection.run(lambda grid, _now: grid.durables.remove(name, by))

    async def due(self, partition: int, *, limit: int) -> Sequence[Durable]:
        """See the port."""
        return await self._connection.run(lambda grid, now: grid.durables.due(partition, limit, now))

    async def expire(self, name: DurableName) -> bool:
        """See the port."""
        return await self._connection.run(lambda grid, now: grid.durables.expire(name, now))

    async def begin_removal(self, name: DurableName, *, over: bool) -> bool:
        """See the port."""
        return await self._connection.run(lambda grid, now: grid.durables.begin_removal(name, now, over=over))

    async def prolong(self, name: DurableName, *, used: int | None = None) -> None:
        """See the port."""
        await self._connection.run(lambda grid, now: grid.durables.prolong(name, used, now))

    async def find(self, name: DurableName) -> Durable | None:
        """See the port."""
        return await self._connection.run(lambda grid, _now: grid.durables.find(name))

    async def page(self, partition: int, *, after: DurableName | None, count: int) -> Sequence[Durable]:
        """See the port."""
        return await self._connection.run(lambda grid, _now: grid.durables.page(partition, after, count))
