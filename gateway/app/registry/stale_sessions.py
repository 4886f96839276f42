"""Stale sessions: their clients have gone, and another node may have claimed them without telling this one (P3).

Fencing keeps such a copy harmless, because its first write is refused. But a session without a client writes nothing,
so that nobody would notice until its window ends: for that long it would count here, and keep its buffers. A former
owner is therefore told of a claim (``Claims``), and asks by itself in case that was lost: the claimant may have died
before it could tell, or have had no answer to its claim, or more may have been told than an inbox holds.

Clients that come back mostly do so soon. So a node asks after some seconds, and again each time that the client has
been away for twice as long: no copy is kept for more than twice as long as it should be, and in a window of an hour a
session is asked for ten times. A session with a client is never asked for (P11): if that client is elsewhere, its
connection here ends by its silence, and then it is one without.
"""

from __future__ import annotations

import asyncio
from typing import Final

from gateway.app.context import Context
from gateway.app.registry.fenced_store import FencedStore
from gateway.app.session.session import Session
from gateway.core.pacing.timers import Deadlines
from gateway.ports import GridUnavailable

FIRST_LOOK: Final = 5.0
"""Seconds that a client is away when the grid is first asked: most are back by then, and what is told has been told."""

PACE: Final = 1.0
"""Seconds between two rounds, on average: short against the first look."""

BATCH: Final = 100
"""Sessions asked for in one step: about a millisecond of the grid's time."""


class StaleSessionSweeper:
    """Lets go of sessions that are another node's, or have ended elsewhere.

    Args:
        context: of the node.
        store: asks the grid, and drops what is not this node's.
    """

    def __init__(self, context: Context, store: FencedStore) -> None:
        self._clock = context.clock
        self._store = store
        self._since: dict[Session, float] = {}
        self._looks: Deadlines[Session] = Deadlines()

    def watch(self, session: Session) -> None:
        """The client of a session has gone."""
        if self._store.replicated:
            now = self._since[session] = self._clock.monotonic()
            self._looks.schedule(session, now + FIRST_LOOK)

    def forget(self, session: Session) -> None:
        """It is back, or the session is not held here any more."""
        if self._since.pop(session, None) is not None:
            self._looks.cancel(session)

    async def run(self) -> None:
        """Ask for ever."""
        while True:
            await asyncio.sleep(self._clock.about(PACE))
            await self.look()

    async def look(self) -> None:
        """Ask for all sessions that are due; if the grid is unreachable, for those that are left in the next round."""
        now = self._clock.monotonic()
        while due := self._looks.due(now, most=BATCH):
            for session in due:
                # Later than now: nobody is met twice.
                self._looks.schedule(session, 2 * now - self._since[session])
            try:
                await self._store.drop_taken(due)
            except GridUnavailable:
                for session in due:
                    if session in self._since:
                        self._looks.schedule(session, now)
                return
