"""The port of revocations on the in-memory grid; the steps themselves are in ``revocation_table``."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

from gateway.adapters.memory.connection import Connection
from gateway.adapters.memory.state import NEVER_ADOPTED
from gateway.core.policy.revocations import Revocation
from gateway.ports import AllRevocations, RevocationChanges, RevocationNews


class MemoryRevocationStore:
    """``RevocationStore`` of one connection to the in-memory grid."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._wake = asyncio.Event()
        self._generation = NEVER_ADOPTED
        self._revision: int | None = None
        connection.watch_revocations(self._wake.set)

    async def add(self, revocation: Revocation) -> None:
        """See the port."""
        await self._connection.run(lambda grid, _now: grid.revocations.add(revocation))

    async def lift(self, name: str) -> None:
        """See the port."""
        await self._connection.run(lambda grid, _now: grid.revocations.lift(name))

    async def restore(self, revocations: Sequence[Revocation]) -> int:
        """See the port."""
        return await self._connection.run(lambda grid, _now: grid.revocations.restore(revocations))

    async def forget(self, revocations: Sequence[Revocation]) -> None:
        """See the port."""
        await self._connection.run(lambda grid, _now: grid.revocations.forget(revocations))

    async def follow(self) -> AsyncIterator[RevocationNews]:
        """See the port. The iterator ends when the grid is closed."""
        self._revision = None
        while not self._connection.closed:
            news = self._next()
            if news is not None:
                yield news
                await asyncio.sleep(0)
                continue
            self._wake.clear()
            await self._wake.wait()

    def _next(self) -> RevocationNews | None:
        connection = self._connection
        if not connection.readable:
            return None
        table = connection.server.revocations
        changes = None
        if self._revision is not None and self._generation == connection.generation:
            changes = table.after(self._revision)
        self._revision = table.revision
        if changes is not None:
            return RevocationChanges(changes) if changes else None
        lost_writes = self._generation not in {NEVER_ADOPTED, connection.generation}
        self._generation = connection.generation
        return AllRevocations(table.all(), lost_writes)
