"""The sessions of the in-memory grid, as one connection of one node has them: implements ``SessionStore``."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Final

from gateway.adapters.memory.grid_connection import GridConnection
from gateway.core.types import Attempt, Epoch, NodeRef, SessionId, TokenGeneration
from gateway.core.wire.codes import ErrorCode
from gateway.ports import (
    ALL_SAVED,
    ClaimResult,
    Ended,
    GridUnavailable,
    Identity,
    LastWills,
    LeftSizes,
    Ownership,
    Reclaimed,
    Restored,
    SavedUntil,
    SessionChanges,
    SessionEnd,
    SessionPage,
    SessionRecord,
    WillExecutor,
)

LOOKS: Final = 10
"""Times that one call looks for sessions that can end, behind those that wait; as on Redis."""


class MemorySessionStore:
    """``SessionStore`` of one connection to the in-memory grid."""

    def __init__(self, connection: GridConnection) -> None:
        self._connection = connection

    async def create(self, record: SessionRecord) -> None:
        """See the port."""
        await self._connection.run(lambda grid, now: grid.sessions.create(record, now))

    async def claim(
        self,
        session: SessionId,
        *,
        by: NodeRef,
        token_generation: TokenGeneration,
        attempt: Attempt,
        now: float = 0.0,
        identity: Identity | None = None,
    ) -> ClaimResult:
        """See the port."""
        return await self._connection.run(
            lambda grid, time: grid.sessions.claim(
                session, by, token_generation, attempt, time, wall=now, identity=identity
            )
        )

    async def reclaim(
        self, held: Ownership, *, token_generation: TokenGeneration, attempt: Attempt, now: float = 0.0
    ) -> Reclaimed | ClaimResult:
        """See the port."""
        return await self._connection.run(
            lambda grid, time: grid.sessions.reclaim(held, token_generation, attempt, time, wall=now)
        )

    async def why_not_claimable(
        self, session: SessionId, *, by: NodeRef, token_generation: TokenGeneration, attempt: Attempt
    ) -> ErrorCode | None:
        """See the port."""
        return await self._connection.run(
            lambda grid, now: grid.sessions.why_not_claimable(session, by, token_generation, attempt, now)
        )

    async def change(self, ownership: Ownership, changes: SessionChanges) -> None:
        """See the port."""
        await self._connection.run(lambda grid, now: grid.sessions.change(ownership, changes, now))

    async def confirm(self, proofs: Sequence[tuple[Ownership, TokenGeneration]]) -> list[bool]:
        """See the port."""
        return await self._connection.run(
            lambda grid, now: [grid.sessions.confirm(ownership, proved, now) for ownership, proved in proofs]
        )

    async def disconnect(self, ownership: Ownership) -> None:
        """See the port."""
        await self._connection.run(lambda grid, now: grid.sessions.disconnect(ownership, now))

    async def pass_on(self, ownership: Ownership, *, to: NodeRef) -> None:
        """See the port."""
        await self._connection.run(lambda grid, now: grid.sessions.pass_on(ownership, to, now))

    async def end(
        self,
        ownership: Ownership,
        *,
        reason: ErrorCode,
        removed: bool = False,
        execute: WillExecutor | None = None,
    ) -> None:
        """See the port."""
        if await self._execute([SessionEnd(ownership, reason, removed)], execute):
            raise GridUnavailable("what the session has left cannot be published now; it is finished later")
        await self._connection.run(lambda grid, now: grid.end(ownership, reason, now))

    async def end_all(self, ends: Sequence[SessionEnd], *, execute: WillExecutor | None = None) -> list[bool]:
        """See the port."""
        waiting = await self._execute(ends, execute)
        return await self._connection.run(lambda grid, now: grid.end_all(ends, now, waiting))

    async def _execute(self, ends: Sequence[SessionEnd], execute: WillExecutor | None) -> set[SessionId]:
        """Have the wills of sessions executed that are marked for it; returns those that have to wait."""
        if execute is None:
            return set()
        left = await self._connection.run(lambda grid, now: grid.mark_all(ends, now))
        given = {each.session for each in left}
        try:
            return given - await self._executed(left, execute)
        except Exception:
            await self._connection.run(lambda grid, now: grid.end_all(ends, now, given))
            raise

    async def _executed(self, left: Sequence[LastWills], execute: WillExecutor) -> set[SessionId]:
        if not left:
            return set()
        receipts = await execute(left)
        await self._connection.run(lambda grid, now: grid.wills_executed(receipts, now))
        return set(receipts)

    async def restore(self, records: Sequence[SessionRecord], *, recreate: bool) -> list[Restored]:
        """See the port."""
        return await self._connection.run(
            lambda grid, now: [grid.sessions.restore(each, now, recreate=recreate) for each in records]
        )

    async def expire(
        self,
        partition: int,
        *,
        limit: int,
        execute: WillExecutor | None = None,
        saved: SavedUntil = ALL_SAVED,
        patience: float = 0.0,
    ) -> list[Ended]:
        """See the port."""
        spares = partial(saved.spares, horizon=self._connection.server.now() - patience)
        if execute is None:
            return await self._connection.run(lambda grid, now: grid.expire(partition, limit, now, spares=spares))
        all_ended: list[Ended] = []
        for _ in range(LOOKS):
            most = limit - len(all_ended)
            ended, waiting = await self._expire_some(partition, most, execute, spares)
            all_ended += ended
            # Those that wait are due again after a while, and keep nobody behind them.
            if not waiting or len(all_ended) >= limit:
                break
        return all_ended

    async def _expire_some(
        self, partition: int, limit: int, execute: WillExecutor, spares: Callable[[NodeRef, float], bool]
    ) -> tuple[list[Ended], int]:
        """End some; returns them, and how many have to wait until their wills are executed."""
        left = await self._connection.run(
            lambda grid, now: grid.sessions.mark_due(partition, limit, now, spares=spares)
        )
        try:
            executed = await self._executed(left, execute)
        finally:
            # Those that have left nothing do not wait for what others have left.
            ended = await self._connection.run(
                lambda grid, now: grid.expire(partition, limit, now, left, spares=spares)
            )
        return ended, len(left) - len(executed)

    async def find(self, session: SessionId) -> SessionRecord | None:
        """See the port."""
        return await self._connection.run(lambda grid, _now: grid.sessions.find(session))

    async def page(self, partition: int, *, after: SessionId | None, limit: int) -> SessionPage:
        """See the port."""
        return await self._connection.run(lambda grid, _now: grid.sessions.page(partition, after, limit))

    async def left(self, partition: int, *, besides: Collection[NodeRef], start: int, limit: int) -> LeftSizes:
        """See the port."""
        return await self._connection.run(lambda grid, _now: grid.sessions.left(partition, besides, start, limit))

    async def owned(self, owner: NodeRef, partition: int) -> Sequence[SessionId]:
        """See the port."""
        return await self._connection.run(lambda grid, _now: grid.sessions.owned(owner, partition))

    async def owners(self, partition: int) -> Sequence[NodeRef]:
        """See the port."""
        return await self._connection.run(lambda grid, _now: grid.sessions.owners(partition))

    async def prolong(
        self, expired: NodeRef, partition: int, *, after: SessionId | None, limit: int
    ) -> tuple[int, SessionId | None]:
        """See the port."""
        return await self._connection.run(lambda grid, now: grid.prolong(expired, partition, after, limit, now))

    async def orphan(self, expired: NodeRef, sessions: Sequence[SessionId]) -> list[Epoch | None]:
        """See the port."""
        return await self._connection.run(lambda grid, now: grid.orphan(expired, sessions, now))
