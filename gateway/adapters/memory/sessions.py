"""The port of sessions on the in-memory grid; the steps themselves are in ``session_table``."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.adapters.memory.connection import Connection
from gateway.core.types import Attempt, Epoch, NodeRef, SessionId, TokenGeneration
from gateway.core.wire.codes import ErrorCode
from gateway.ports import (
    ClaimResult,
    Ended,
    Identity,
    Ownership,
    Restored,
    SessionChanges,
    SessionPage,
    SessionRecord,
)


class MemorySessionStore:
    """``SessionStore`` of one connection to the in-memory grid."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def create(self, record: SessionRecord) -> None:
        """See the port."""
        await self._connection.run(lambda grid, now: grid.sessions.create(record, now))

    async def claim(
        self,
        session: SessionId,
        *,
        by: NodeRef,
        generation: TokenGeneration,
        attempt: Attempt,
        now: float = 0.0,
        identity: Identity | None = None,
    ) -> ClaimResult:
        """See the port."""
        return await self._connection.run(
            lambda grid, time: grid.sessions.claim(session, by, generation, attempt, time, wall=now, identity=identity)
        )

    async def why_not_claimable(
        self, session: SessionId, *, by: NodeRef, generation: TokenGeneration, attempt: Attempt
    ) -> ErrorCode | None:
        """See the port."""
        return await self._connection.run(
            lambda grid, now: grid.sessions.why_not_claimable(session, by, generation, attempt, now)
        )

    async def change(self, right: Ownership, changes: SessionChanges) -> None:
        """See the port."""
        await self._connection.run(lambda grid, now: grid.sessions.change(right, changes, now))

    async def confirm(self, proofs: Sequence[tuple[Ownership, TokenGeneration]]) -> list[bool]:
        """See the port."""
        return await self._connection.run(
            lambda grid, now: [grid.sessions.confirm(right, proved, now) for right, proved in proofs]
        )

    async def disconnect(self, right: Ownership) -> None:
        """See the port."""
        await self._connection.run(lambda grid, now: grid.sessions.disconnect(right, now))

    async def end(self, right: Ownership, *, reason: ErrorCode) -> None:
        """See the port."""
        await self._connection.run(lambda grid, now: grid.end(right, reason, now))

    async def end_all(self, ends: Sequence[tuple[Ownership, ErrorCode]]) -> list[bool]:
        """See the port."""
        return await self._connection.run(lambda grid, now: grid.end_all(ends, now))

    async def restore(self, records: Sequence[SessionRecord], *, recreate: bool) -> list[Restored]:
        """See the port."""
        return await self._connection.run(
            lambda grid, now: [grid.sessions.restore(each, now, recreate=recreate) for each in records]
        )

    async def expire(self, partition: int, *, limit: int) -> list[Ended]:
        """See the port."""
        return await self._connection.run(lambda grid, now: grid.expire(partition, limit, now))

    async def find(self, session: SessionId) -> SessionRecord | None:
        """See the port."""
        return await self._connection.run(lambda grid, _now: grid.sessions.find(session))

    async def page(self, partition: int, *, after: SessionId | None, limit: int) -> SessionPage:
        """See the port."""
        return await self._connection.run(lambda grid, _now: grid.sessions.page(partition, after, limit))

    async def owned(self, owner: NodeRef, partition: int) -> Sequence[SessionId]:
        """See the port."""
        return await self._connection.run(lambda grid, _now: grid.sessions.owned(owner, partition))

    async def owners(self, partition: int) -> Sequence[NodeRef]:
        """See the port."""
        return await self._connection.run(lambda grid, _now: grid.sessions.owners(partition))

    async def orphan(self, lapsed: NodeRef, sessions: Sequence[SessionId]) -> list[Epoch | None]:
        """See the port."""
        return await self._connection.run(lambda grid, now: grid.orphan(lapsed, sessions, now))
