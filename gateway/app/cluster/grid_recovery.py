"""What a node does when the grid was unreachable, or when the node itself was: its sessions are written again (P10).

How a client gets its session back is told in ``gateway.app.connections.ladder``.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from functools import partial
from math import inf
from typing import Final

from gateway.app.cluster.lease import NodeLease
from gateway.app.context import Context
from gateway.app.journal.node_events import GridLost, GridRegained
from gateway.app.journal.session_events import SessionStrayed
from gateway.app.registry.fenced_store import RESTORE_BATCH, FencedStore
from gateway.app.registry.sessions import Sessions
from gateway.app.runtime.portions import portions
from gateway.app.session.session import Session
from gateway.catalogue import log_events as events
from gateway.core.topics.topics import SESSION_PARTITIONS
from gateway.core.types import SessionId
from gateway.ports import GridChange, GridState, GridUnavailable, LeaseLost

LOOKED_AT_ONCE: Final = 1_000
"""Sessions of which it is asked in one turn of the loop whether they have to be written again: less than a millisecond.
That is asked of all of them with each renewal of the lease."""

RETRY: Final = 0.2
"""Seconds before restoring is tried again after the grid became unreachable in the middle."""


class GridRecovery:
    """Brings the grid and this node's sessions together again.

    Args:
        context: of the node.
        sessions: the sessions held here.
        store: writes them.

    Attributes:
        lease: of this node.
    """

    def __init__(self, context: Context, sessions: Sessions, store: FencedStore) -> None:
        self.lease = NodeLease(context, store.lease_expired, self._saved_ago)
        self._me = context.me
        self._background = context.background
        self._grid = context.grid
        self._parameters = context.parameters
        self._clock = context.clock
        self._log = context.log
        self._announce = context.announce
        self._sessions = sessions
        self._store = store
        self._delivery = sessions.delivery
        self._lost = False
        self._saved_until = context.clock.monotonic()
        """Everything that happened to sessions before is in the grid, as far as it concerns their windows."""
        self._unreachable_since: float | None = None
        self._catching_up = False
        self._verifying = False
        self._verify_again = False
        self._on_loss: Callable[[], None] | None = None

    def tell_of_loss(self, on_loss: Callable[[], None]) -> None:
        """Have *on_loss* called as soon as the grid is back with less than it had."""
        self._on_loss = on_loss

    def has_lost(self) -> bool:
        """Tell whether the grid has lost writes since this node began to work."""
        return self._lost

    def is_recovering(self) -> bool:
        """Tell whether the grid lost writes so recently that living nodes may not have restored every session yet."""
        ago = self._grid.lost_writes_ago()
        return ago is not None and ago < self._parameters.restore_grace

    async def watch(self) -> None:
        """Follow the grid's state for ever."""
        async for change in self._grid.changes():
            self._tell(change)
            if change.state is not GridState.UP:
                continue
            if change.lost_writes:
                self._lost = True
                if self._on_loss is not None:
                    self._on_loss()
                # Nothing is awaited before it: so no answer of the grid and no update of the new generation is sent
                # before the token (P6).
                self._sessions.renew_tokens()
                # Whoever has been welcomed since then has been told then.
                await self._delivery.declare_loss_to_all(
                    each for each in self._sessions if each.declared < change.grid_generation and not each.dropped
                )
                self._background.once(self._store.end_again(), "end-again")
            if self.lease.taken:  # else whoever takes the first one is at it
                # Not waited for: what this takes seconds for may be out of date in the middle of it.
                self._background.once(self.rejoin(), "rejoin")

    def _saved_ago(self) -> float:
        if not len(self._sessions):
            self._saved_until = self._clock.monotonic()
        return self._clock.monotonic() - self._saved_until

    def _tell(self, change: GridChange) -> None:
        now = self._clock.monotonic()
        if change.state is GridState.UNREACHABLE:
            if self._unreachable_since is None:
                self._unreachable_since = now
            self._announce(GridLost())
            return
        since, self._unreachable_since = self._unreachable_since, None
        seconds = None if since is None else now - since
        self._announce(GridRegained(change.grid_generation, change.lost_writes, seconds))

    async def rejoin(self) -> None:
        """Have a lease again, whatever became of the last one, and make sure of every session."""
        try:
            await self.lease.keep()
        except (GridUnavailable, LeaseLost):
            return  # the next change, or the next renewal, brings another attempt
        await self.verify()

    async def verify(self) -> None:
        """Find out of each session that the grid may not hold as it is here whether it is still this node's (P3).

        Returns at once if somebody is at it, who will begin again when he has come to the end.
        """
        self._verify_again = True
        if self._verifying:
            return
        self._verifying = True
        try:
            while self._verify_again:
                self._verify_again = False
                await self.catch_up()
                await self._put_strays_on_the_clock()
        finally:
            self._verifying = False

    async def is_caught_up(self) -> bool:
        """Tell whether nothing has to be written again, and nobody is at it."""
        if self._verifying or self._catching_up:
            return False
        async for _ in self._outdated():
            return False
        return True

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
        is_done = False
        while not is_done and self._is_up():
            is_done = True
            saved_until = self._clock.monotonic()
            async for batch in self._outdated():
                is_done = False
                if not self._is_up():
                    break
                try:
                    again = await self._store.write_again(batch)
                except GridUnavailable:
                    await asyncio.sleep(RETRY)
                    break
                written += again.written
                fenced += again.lost
                await asyncio.sleep(len(batch) / self._parameters.restore_rate)
            if is_done:
                self._saved_until = min(saved_until, await self._first_untold())
        if written or fenced:
            self._log.emit(
                events.GRID_RESTORED, sessions=written, fenced=fenced, values=self._delivery.replicas.restored
            )

    async def _outdated(self) -> AsyncIterator[list[Session]]:
        """Go through all sessions once, some in a turn of the loop (P20); yields those that are to be written again."""
        found: list[Session] = []
        async for some in portions(self._sessions, LOOKED_AT_ONCE):
            found += filter(self._is_outdated, some)
            while len(found) >= RESTORE_BATCH:
                batch, found = found[:RESTORE_BATCH], found[RESTORE_BATCH:]
                if still := list(filter(self._is_outdated, batch)):  # others had their turn meanwhile
                    yield still
        if still := list(filter(self._is_outdated, found)):
            yield still

    async def _first_untold(self) -> float:
        """Tell when the first client left of which the grid is being told only now; infinity if there is none."""
        first = inf
        if self._store.replicated:
            async for some in portions(self._sessions, LOOKED_AT_ONCE):
                away = [each.left_at for each in some if not (each.connected or each.on_clock or each.dropped)]
                # Of one that never had a client here, such as one that is being handed over, the grid knows all.
                first = min([first, *(each for each in away if each > -inf)])
        return first

    def _is_up(self) -> bool:
        return self._grid.state is GridState.UP

    def _is_outdated(self, session: Session) -> bool:
        # Who ends a session writes it again himself, if that has to be; see ``FencedStore.end``.
        return self._store.must_restore(session) and not session.ending and not session.dropped

    async def _put_strays_on_the_clock(self) -> None:
        """Let go of what the grid holds for this node and this node does not serve (P7).

        A grid that has gone back to an older state holds sessions that have ended since then. As connected sessions
        of a living node they would stay for ever: they are on no clock, and nobody takes over. All that this node owns
        is listed for it, so it is done when there is a reason, and not time and again (P11).
        """
        if not self._store.replicated:
            return
        owned_in = partial(self._grid.sessions.owned, self._me)
        try:
            for owned in await asyncio.gather(*map(owned_in, range(SESSION_PARTITIONS))):
                for session in owned:
                    if self._sessions.get(session) is None:
                        await self._put_on_the_clock(session)
        except GridUnavailable:
            return  # a further change will come

    async def _put_on_the_clock(self, session: SessionId) -> None:
        epoch = await self._store.release(session, is_held=lambda: self._sessions.get(session) is not None)
        if epoch is not None:
            self._announce(SessionStrayed(session, epoch))
