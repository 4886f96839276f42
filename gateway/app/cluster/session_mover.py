"""Moving one connected session to another node (protocol 4.6, P12).

Its client is told to go. If it will be handed over there, it is served here as before until the next node takes it: it
leaves when it likes, and nothing is missed. If it will not be, because there are no links or its client does not know
of handoffs, what is in flight is brought to its end first, and current values take the place of what it misses.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, Final

from gateway.app.cluster.handoff.giver import SessionGiver
from gateway.app.context import Context
from gateway.app.registry.sessions import Sessions
from gateway.app.runtime.portions import portions
from gateway.app.session.session import Session
from gateway.core.types import NodeId
from gateway.core.wire.codes import GOING_AWAY
from gateway.core.wire.packets import GoAway

POLL: Final = 0.01
"""Seconds between two looks whether a session has settled or left."""

LEAVE: Final = 5.0
"""Seconds a single client gets to leave after its go-away: it waits for its replies and hangs up, some round trips."""


CLOSED_AT_ONCE: Final = 100
"""Connections that are closed in one turn of the loop: some milliseconds. The node keeps its lease meanwhile."""


class SessionMover:
    """Moves sessions: all of them in a drain, or one that an administrator names.

    Args:
        context: of the node.
        sessions: the sessions held here.
        giver: hands sessions over; None if there are no links.
    """

    def __init__(self, context: Context, sessions: Sessions, giver: SessionGiver | None = None) -> None:
        self._giver = giver
        self._settle = context.parameters.drain.settle
        self._clock = context.clock
        self._sessions = sessions
        self._reconnect_advice = context.reconnect_advice
        # The event loop forgets a task that nobody else remembers.
        self._tasks: set[asyncio.Task[None]] = set()
        self._targets: dict[Session, NodeId] = {}

    def begin(self, session: Session, *, reason: str, after: float = 0.0) -> asyncio.Task[None]:
        """Begin a move that is finished even if whoever asked for it loses interest.

        Args:
            session: which.
            reason: why, for people.
            after: seconds until then the session is served as before.
        """
        return self._keep(self._later(session, reason, after))

    def send(self, session: Session, node: NodeId, *, reason: str) -> asyncio.Task[None]:
        """Begin to move one client to *node*; should it not leave, it is closed, and comes back wherever it likes."""
        task = self._keep(self._sent(session, node, reason))
        self._targets[session] = node
        task.add_done_callback(lambda _: self._targets.pop(session, None))
        return task

    def target(self, session: Session) -> NodeId | None:
        """Tell which node the client of a session is being sent to; None if it is not, or to no certain one."""
        return self._targets.get(session)

    async def finish(self) -> None:
        """Let the moves that have begun come to an end, and close the clients that were told to go and did not."""
        if self._tasks:
            await asyncio.wait(set(self._tasks))
        deadline = self._clock.monotonic() + LEAVE
        # Looked at again and again, as in a drain: clients leave for many reasons.
        while (left := self._staying()) and self._clock.monotonic() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(POLL)
        await self.hang_up(left)

    async def hang_up(self, sessions: Iterable[Session]) -> None:
        """Close the connections of sessions that are to go on elsewhere, some in a turn of the loop (P20)."""
        async for some in portions(sessions, CLOSED_AT_ONCE):
            for session in some:
                self._hang_up(session)

    def close(self) -> None:
        """Stop what is under way."""
        for task in self._tasks:
            task.cancel()

    def _keep(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name="move-session")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _later(self, session: Session, reason: str, after: float) -> None:
        await asyncio.sleep(after)
        await self._move(session, GoAway(reason, delay=0.0, backoff=self._reconnect_advice.advice()))

    async def _sent(self, session: Session, node: NodeId, reason: str) -> None:
        connection = session.connection
        await self._move(session, GoAway(reason, delay=0.0, node=node, backoff=self._reconnect_advice.advice()))
        deadline = self._clock.monotonic() + LEAVE
        while connection is not None and session.connection is connection and self._clock.monotonic() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(POLL)
        if connection is not None and session.connection is connection:
            self._hang_up(session)

    def _staying(self) -> list[Session]:
        return [session for session in self._sessions if session.moving and session.connected]

    def _hang_up(self, session: Session) -> None:
        connection = session.connection
        if connection is not None:
            self._sessions.close_connection(connection, GOING_AWAY)
            self._sessions.detach(session, connection)

    def hands_over(self, session: Session, to: NodeId | None = None) -> bool:
        """Tell whether a session that goes to another node will be handed over there; see ``SessionGiver.may_give``."""
        return self._giver is not None and self._giver.may_give(session, to)

    @property
    def handing_over(self) -> int:
        """How many sessions have been handed over whose clients were not heard at their new nodes yet."""
        return 0 if self._giver is None else self._giver.waiting

    async def _move(self, session: Session, go_away: GoAway) -> None:
        """Tell the client to go, with nothing in flight if that would be lost."""
        session.moving = True
        if not self.hands_over(session, go_away.node):
            await self._settle_down(session)
        if session.connected and not session.dropped:
            session.machine.send_link(go_away)
            self._sessions.flusher.mark(session)

    async def _settle_down(self, session: Session) -> None:
        """Flush what is in flight, and have it acknowledged."""
        session.muted = True
        # Without further updates the outbox can run dry; the next node begins with the full values.
        self._sessions.delivery.mute(session)
        if session.connected and not session.dropped:
            # Its answer acknowledges everything at once.
            session.machine.ping()
            self._sessions.flusher.mark(session)
        deadline = self._clock.monotonic() + self._settle
        while self._clock.monotonic() < deadline and session.connected and not session.dropped:
            if not len(session.lane) and session.machine.is_settled:
                break
            self._sessions.flusher.mark(session)
            await asyncio.sleep(POLL)
