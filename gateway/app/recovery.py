"""What a node does when the grid was away, or when the node itself was (P10)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from gateway.app.context import Context
from gateway.app.persistence import Persistence
from gateway.app.session import Session
from gateway.app.sessions import Sessions
from gateway.catalogue import log_events as events
from gateway.catalogue import metrics as catalogue
from gateway.core.codes import SESSION_EXPIRED
from gateway.core.packets import Notice, NoticeCode
from gateway.core.topics import SESSION_PARTITIONS
from gateway.core.types import SessionId
from gateway.ports import Fenced, GridState, GridUnavailable, LeaseLost, Ownership, Restored, SessionGone

RESTORE_BATCH: Final = 100
"""Sessions per restore step: some milliseconds of the grid's time, so that claims come through between two steps."""

RETRY: Final = 0.2
"""Seconds before restoring is tried again after the grid went away in the middle."""

GRID_LOST_WRITES = Notice(
    NoticeCode.GRID_LOST_WRITES,
    "The grid came back with less than it had. Sessions and the values known here have been restored; "
    "publishes acknowledged shortly before may be lost.",
)


class Recovery:
    """Brings the grid and this node's sessions together again.

    Args:
        context: of the node.
        sessions: the sessions held here.
        persistence: writes them.
    """

    def __init__(self, context: Context, sessions: Sessions, persistence: Persistence) -> None:
        self._me = context.me
        self._grid = context.grid
        self._policy = context.policy
        self._clock = context.clock
        self._metrics = context.metrics
        self._log = context.log
        self._journal = context.journal
        self._sessions = sessions
        self._persistence = persistence
        self._delivery = sessions.delivery
        self._lost_at: float | None = None
        self._catching_up = False

    def is_recovering(self) -> bool:
        """Tell whether the grid lost writes so recently that living nodes may not have restored every session yet."""
        return self._lost_at is not None and self._clock.monotonic() - self._lost_at < self._policy.restore_grace

    async def watch(self) -> None:
        """Follow the grid's state for ever."""
        async for change in self._grid.changes():
            self._journal.grid_changed(change)
            if change.state is not GridState.UP:
                continue
            if change.lost_writes:
                self._lost_at = self._clock.monotonic()
                self._metrics.add(catalogue.LOSSES_DECLARED, len(self._sessions), label="grid")
                self._delivery.notify(self._sessions, GRID_LOST_WRITES)
            await self._rejoin(lost_writes=change.lost_writes)

    async def regain_lease(self) -> None:
        """The lease was lost, and every session may be another node's or on the clock: take one again; then ``verify``.

        Raises:
            GridUnavailable: the grid is away; this will be asked for again.
        """
        self._log.emit(events.LEASE_LOST, node=str(self._me))
        self._metrics.add(catalogue.LEASE_LOST)
        self._journal.lease_lost()
        # First of all, because with the lease comes the right to write (P3).
        for session in self._sessions:
            session.unsaved = True
        await self._grid.nodes.join(self._me, lease=self._policy.lease)

    async def verify(self) -> None:
        """Find out of each session that the grid may not hold as it is here whether it is still this node's (P3)."""
        await self.catch_up()
        await self._put_strays_on_the_clock()

    async def _rejoin(self, *, lost_writes: bool) -> None:
        try:
            if lost_writes:
                # The lease may be gone with the rest, which means nothing; every session is written again anyway.
                await self._grid.nodes.join(self._me, lease=self._policy.lease)
            else:
                await self._renew()
        except GridUnavailable:
            return  # a further change will come
        await self.verify()

    async def _renew(self) -> None:
        """Find out whether the lease has lapsed while the grid, or this node, was away."""
        try:
            await self._grid.nodes.renew(self._me, lease=self._policy.lease)
        except LeaseLost:
            await self.regain_lease()

    async def catch_up(self) -> None:
        """Write again whatever the grid may not hold, until nothing is left; asks nothing of the grid if so (P11).

        Returns at once if somebody is at it: whoever is looks at all sessions again until there is nothing left, and
        two would write at twice the rate that was set.
        """
        if self._catching_up:
            return
        self._catching_up = True
        try:
            await self._write_again()
        finally:
            self._catching_up = False

    async def _write_again(self) -> None:
        written = fenced = 0
        while self._grid.state is GridState.UP:
            batch = [session for session in self._sessions if self._persistence.must_restore(session)][:RESTORE_BATCH]
            if not batch:
                break
            rights = [session.right for session in batch]
            try:
                results = await self._persistence.restore(batch)
            except GridUnavailable:
                await asyncio.sleep(RETRY)
                continue
            written += results.count(Restored.WRITTEN)
            fenced += self._drop_refused(batch, rights, results)
            await asyncio.sleep(len(batch) / self._policy.restore_rate)
        if written or fenced:
            self._log.emit(
                events.GRID_RESTORED, sessions=written, fenced=fenced, values=self._delivery.replicas.restored
            )

    async def _put_strays_on_the_clock(self) -> None:
        """Let go of what the grid holds for this node and this node does not serve (P7).

        A grid that has gone back to an older state holds sessions that have ended since then. As connected sessions
        of a living node they would stay for ever: they are on no clock, and nobody takes over. All that this node owns
        is listed for it, so it is done when there is a reason, and not time and again (P11).
        """
        if not self._persistence.replicated:
            return
        store = self._grid.sessions
        try:
            for owned in await asyncio.gather(*(store.owned(self._me, each) for each in range(SESSION_PARTITIONS))):
                for session in owned:
                    if self._sessions.get(session) is None:
                        await self._put_on_the_clock(session)
        except GridUnavailable:
            return  # a further change will come

    async def _put_on_the_clock(self, session: SessionId) -> None:
        record = await self._grid.sessions.find(session)
        # The grid answers in order. If the record tells of a claim or an opening by this node, whoever asked for that
        # has had his answer and has taken the session in by now; a later one has a higher epoch and fences this.
        if record is None or record.owner != self._me or self._sessions.get(session) is not None:
            return
        with suppress(Fenced, SessionGone):
            await self._grid.sessions.disconnect(Ownership(session, self._me, record.epoch))
            self._log.emit(events.SESSION_DISCONNECTED, session=session, code=None)
            self._journal.strayed(session, record.epoch)

    def _drop_refused(
        self, sessions: Sequence[Session], rights: Sequence[Ownership], results: Sequence[Restored]
    ) -> int:
        dropped = 0
        for session, right, result in zip(sessions, rights, results, strict=True):
            # A claim by this very node, for a client that came back meanwhile, is no reason to drop a session.
            if session.dropped or session.right != right or result is Restored.WRITTEN:
                continue
            dropped += 1
            if result is Restored.FENCED:
                self._sessions.fence(session)
            else:
                self._sessions.drop(session, SESSION_EXPIRED)
        return dropped
