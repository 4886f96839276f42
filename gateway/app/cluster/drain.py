"""A planned stop: every client is moved to another node, and no session and no request is lost by it (P12)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final

from gateway.app.cluster.handoff.offers import SessionOffers
from gateway.app.cluster.session_mover import POLL, SessionMover
from gateway.app.context import Context
from gateway.app.journal.node_events import DrainStarted
from gateway.app.registry.fenced_store import FencedStore
from gateway.app.registry.fencing import Fate
from gateway.app.registry.sessions import Sessions
from gateway.app.session.session import Session
from gateway.catalogue import log_events as events
from gateway.core.policy.system_roles import is_of_system

ON_THEIR_WAY: Final = 5.0
"""Seconds that a node stays when the last client has left: those who were told to go are back at once, elsewhere."""


class Drain:
    """Moves the clients of a node to other nodes.

    Args:
        context: of the node.
        sessions: whom to move.
        store: starts the windows of those that are left.
        moves: moves them.
        offers: offers those without a client to other nodes; None if there are no links.
        arriving: how many connections may still bring a session; no others begin while the node drains.
    """

    def __init__(
        self,
        context: Context,
        sessions: Sessions,
        store: FencedStore,
        *,
        moves: SessionMover,
        offers: SessionOffers | None,
        arriving: Callable[[], int],
    ) -> None:
        self._parameters = context.parameters
        self._clock = context.clock
        self._log = context.log
        self._announce = context.announce
        self._sessions = sessions
        self._store = store
        self._moves = moves
        self._offers = offers
        self._arriving = arriving
        self._reconnect_advice = context.reconnect_advice

    async def run(self) -> bool:
        """Move everybody; returns when all have left or the time for it is over.

        When it is cancelled, no further move begins and nobody is closed; moves that have begun are finished.

        Returns:
            True if the grid knows of every session that it is not connected here any more, so that nobody needs to
            take over.
        """
        plan = self._parameters.drain
        end = self._clock.monotonic() + plan.timeout
        self._announce(DrainStarted(self._sessions.connected()))
        moves: dict[Session, asyncio.Task[None]] = {}
        # Looked at again and again, because a hello or resume that is being answered now brings a session later, and
        # clients leave for many reasons: a look at all of them costs less than being told of each.
        while ((connected := self._connected()) or self._arriving()) and self._clock.monotonic() < end:
            # A session that came back over a connection accepted before has to be told again.
            batch = [each for each in connected if each not in moves or (moves[each].done() and not each.moving)]
            batch = batch[: plan.batch]
            moves |= {session: self._begin(session) for session in batch}
            await asyncio.sleep(self._clock.about(self._until_next(batch, end)) if batch else POLL)
        left = self._connected()
        moved = len(moves.keys() - set(left))
        await self._moves.hang_up(left)
        await asyncio.gather(*moves.values())
        await self._until_taken(moves)
        known = await self._start_windows()
        if self._offers is not None:
            await self._offers.offer(end)
        self._log.emit(events.DRAIN_FINISHED, moved=moved, left=len(left))
        return known and not self._arriving()

    async def _until_taken(self, moved: Iterable[Session]) -> None:
        """Stay for clients that have left and are on their way: another node will come for their sessions.

        Args:
            moved: who was told to go, or hung up.
        """
        end = self._clock.monotonic() + ON_THEIR_WAY
        expected = [session for session in moved if self._moves.hands_over(session)]
        while self._clock.monotonic() < end:
            expected = [session for session in expected if not session.dropped and not session.connected]
            if not expected and not self._moves.handing_over:
                return
            await asyncio.sleep(POLL)

    def _until_next(self, batch: Sequence[Session], end: float) -> float:
        """Tell how long to wait after *batch*: as long as the others need for it, unless the time would run out."""
        waiting = len(self._connected()) - len(batch)
        plan = self._parameters.drain
        left = max(0.0, end - self._clock.monotonic() - plan.jitter - plan.settle)
        in_time = left * len(batch) / waiting if waiting > 0 else left
        return min(max(plan.interval, len(batch) / self._reconnect_advice.capacity), max(POLL, in_time))

    async def let_consoles_go(self) -> bool:
        """Close the consoles, of a node that has drained and stops now.

        Until then they stay: who drains a node looks on from there, and may want to undrain it.

        Returns:
            True if the grid knows of it.
        """
        await self._moves.hang_up(self._sessions)
        return await self._start_windows()

    def _connected(self) -> list[Session]:
        """List whom to move: clients, and not consoles."""
        return [session for session in self._sessions if session.connected and not is_of_system(session.roles)]

    def _begin(self, session: Session) -> asyncio.Task[None]:
        # The spreading is done here and not by the client, which is sent its updates until its turn has come: between
        # them and the next node's values lies no more than an acknowledgement and a handshake.
        spread = self._parameters.drain.jitter * self._clock.random()
        return self._moves.begin(session, reason="the node drains", after=spread)

    async def _start_windows(self) -> bool:
        """Nobody takes over from a node that leaves, so it puts its last sessions on the clock itself."""
        known = True
        for session in self._sessions:
            if session.connected:
                continue  # a console
            if await self._store.attempt(partial(self._store.disconnect, session)) is Fate.UNKNOWN:
                known = False
        return known
