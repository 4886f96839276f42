"""A planned stop: every client is moved to another node, and nothing is lost by it (P12)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from gateway.app.context import Context
from gateway.app.persistence import Persistence
from gateway.app.session import Session
from gateway.app.sessions import Sessions
from gateway.catalogue import log_events as events
from gateway.core.codes import GOING_AWAY
from gateway.core.packets import GoAway
from gateway.ports import Fenced, GridUnavailable, SessionGone

POLL = 0.01
"""Seconds between two looks whether a session has settled or left."""


class Drain:
    """Moves the clients of a node elsewhere.

    Args:
        context: of the node.
        sessions: whom to move.
        persistence: starts the windows of those that are left.
        arriving: how many connections may still bring a session; no others begin while the node drains.
    """

    def __init__(
        self, context: Context, sessions: Sessions, persistence: Persistence, *, arriving: Callable[[], int]
    ) -> None:
        self._policy = context.policy
        self._clock = context.clock
        self._log = context.log
        self._sessions = sessions
        self._delivery = sessions.delivery
        self._persistence = persistence
        self._arriving = arriving

    async def run(self) -> bool:
        """Move everybody; returns when all have left or the time for it is over.

        Returns:
            True if the grid knows of every session that it is not connected here any more, so that nobody needs to
            take over.
        """
        plan = self._policy.drain
        end = self._clock.monotonic() + plan.timeout
        self._log.emit(events.DRAIN_STARTED, sessions=self._sessions.connected())
        moves: dict[Session, asyncio.Task[None]] = {}
        # Looked at again and again, because a hello or resume that is being answered now brings a session later, and
        # clients leave for many reasons: a look at all of them costs less than being told of each.
        while ((connected := self._connected()) or self._arriving()) and self._clock.monotonic() < end:
            # A session that came back over a connection accepted before has to be told again.
            batch = [each for each in connected if each not in moves or (moves[each].done() and not each.moving)]
            batch = batch[: plan.batch]
            moves |= {session: asyncio.create_task(self._move(session)) for session in batch}
            await asyncio.sleep(plan.interval * (0.5 + self._clock.random()) if batch else POLL)
        left = self._connected()
        moved = len(moves.keys() - set(left))
        for session in left:
            link = session.link
            if link is not None:
                self._sessions.close_link(link, GOING_AWAY)
                self._sessions.detach(session, link)
        await asyncio.gather(*moves.values())
        known = await self._start_windows()
        self._log.emit(events.DRAIN_FINISHED, moved=moved, left=len(left))
        return known and not self._arriving()

    def _connected(self) -> list[Session]:
        return [session for session in self._sessions if session.connected]

    async def _move(self, session: Session) -> None:
        """Flush what is in flight, have it acknowledged, then tell the client to go."""
        # The spreading is done here and not by the client, which is sent its updates until its turn has come: between
        # them and the next node's values lies no more than an acknowledgement and a handshake.
        await asyncio.sleep(self._policy.drain.jitter * self._clock.random())
        session.moving = True
        # Without further updates the outbox can run dry; the next node begins with the full values.
        self._delivery.mute(session)
        if session.connected and not session.dropped:
            # Its answer acknowledges everything at once.
            session.machine.ping()
            self._sessions.flusher.mark(session)
        deadline = self._clock.monotonic() + self._policy.drain.settle
        while self._clock.monotonic() < deadline and session.connected and not session.dropped:
            if not len(session.lane) and session.machine.is_settled:
                break
            self._sessions.flusher.mark(session)
            await asyncio.sleep(POLL)
        if session.connected and not session.dropped:
            session.machine.send_link(GoAway("the node drains", delay=0.0))
            self._sessions.flusher.mark(session)

    async def _start_windows(self) -> bool:
        """Nobody takes over from a node that leaves, so it puts its last sessions on the clock itself."""
        known = True
        for session in self._sessions:
            try:
                await self._persistence.disconnect(session)
            except (Fenced, SessionGone):
                continue
            except GridUnavailable:
                known = False
        return known
