"""The sessions of a node: attached, detached, timed and dropped."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from enum import Enum
from functools import partial
from itertools import chain
from math import ceil
from typing import Final, Protocol

from gateway.app.context import Context
from gateway.app.delivery.delivery import Delivery
from gateway.app.delivery.flusher import Flusher
from gateway.app.journal.session_events import (
    ConnectionReplaced,
    SessionDisconnected,
    SessionFenced,
    SlowConsumerClosed,
    ended,
)
from gateway.app.registry.connected_buffers import ConnectedBuffers
from gateway.app.registry.credential_expiry import Expiry
from gateway.app.registry.disconnected import Absences
from gateway.app.registry.fenced_store import FencedStore
from gateway.app.registry.fencing import Refusal
from gateway.app.registry.former_sessions import FormerSession, FormerSessions
from gateway.app.registry.readers import Readers
from gateway.app.registry.stale_sessions import StaleSessionSweeper
from gateway.app.runtime.batched import Batched
from gateway.app.runtime.portions import portions
from gateway.app.session.session import Session
from gateway.app.session.stream_session import StreamEnd, StreamSession
from gateway.catalogue import log_events as events
from gateway.catalogue import metrics as catalogue
from gateway.core.pacing.timers import Deadlines
from gateway.core.types import SessionId
from gateway.core.wire.codes import (
    CREDENTIALS_EXPIRED,
    FENCED,
    GOING_AWAY,
    INTERNAL_ERROR,
    PING_TIMEOUT,
    REVOKED,
    SESSION_CLOSED,
    SESSION_EXPIRED,
    SLOW_CONSUMER,
    TRY_LATER,
    CloseCode,
    ErrorCode,
)
from gateway.core.wire.packets import Bye, Error
from gateway.ports import Connection, Fenced, GridUnavailable, Ownership, TokenSigner, WillExecutor

LINGER: Final = 0.25
"""Seconds until the grid is told that a client has gone: most whose socket broke are back by then, here or elsewhere,
and then there is nothing to tell. The window in the grid is that much longer, should the node stand so long; if it
does not, survivors start the windows of all its sessions (P7)."""


DEADLINE_GRAIN: Final = 0.01
"""Seconds: deadlines that fall into the same are met together, at its end. Ten thousand idle sessions have a thousand
of them in a second; each by itself would wake the loop for it, and write by itself."""

TICKED_AT_ONCE: Final = 200
"""Sessions whose deadlines are seen to in one turn of the loop: some milliseconds. After a pause of the process, those
of all have come."""

GONE_AT_ONCE: Final = 100
"""Sessions for which it is begun to tell the grid that their clients have gone, in one turn of the loop: a task each, a
few milliseconds. When a load balancer restarts, all clients go at the same time."""

_CLOSES: Final = {ErrorCode.SESSION_CLOSED: SESSION_CLOSED, ErrorCode.REVOKED: REVOKED}
"""How the socket is closed of a session that is gone, by the reason; one that is not here has expired."""


class EndResult(Enum):
    """What became of the end of a session that this node was asked for."""

    CONFIRMED = "confirmed"
    """The grid holds nothing of it any more."""
    PENDING = "pending"
    """It is closed at this node, and its end in the grid is still to come; see ``Sessions.end``."""
    ELSEWHERE = "elsewhere"
    """It is another node's, and goes on there; only its copy here is dropped."""


class SessionObserver(Protocol):
    """Hears which sessions this node serves. Its methods return at once and raise nothing."""

    def served(self, session: Session) -> None:
        """A session has a connection now, a new one perhaps; or none, and is kept for its client."""

    def left(self, session: Session) -> None:
        """Nothing is done for a session here any more."""


class Sessions:
    """Registry and life cycle of the sessions this node owns.

    Args:
        context: of the node.
        store: where disconnects and ends are written.
        signer: renews tokens of long connections.

    Attributes:
        flusher: writes for the sessions.
        delivery: sends them what they selected.
        expiry: watches the ends of their credentials.
        stale_sessions: asks the grid whose they are while their clients are away.
        absences: bounds what they take meanwhile.
        former: those that other nodes have claimed and may come for.
        observer: who hears of sessions that come and go; None for nobody.
        readers: the streams of events, which are no sessions of clients.
    """

    def __init__(self, context: Context, store: FencedStore, signer: TokenSigner) -> None:
        self._parameters = context.parameters
        self._clock = context.clock
        self._background = context.background
        self._metrics = context.metrics
        self._limits = context.limits
        self._memory = context.memory
        self._log = context.log
        self._grid = context.grid
        self._announce = context.announce
        self._store = store
        self._signer = signer
        self._sessions: dict[SessionId, Session] = {}
        self._deadlines: Deadlines[Session] = Deadlines()
        self._gone: Batched[Session, None] = Batched(
            context.background, "save-disconnects", delay=LINGER, work=self._save_disconnects
        )
        self._pending_ends: dict[SessionId, Session] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at: float | None = None
        self.flusher = Flusher(context, self._too_slow, self.fail)
        self.readers = Readers()
        self.connected_buffers = ConnectedBuffers(context, lambda: chain(self, self.readers), self._too_slow)
        self.delivery = Delivery(context, self.flusher)
        self.expiry = Expiry(context)
        self.stale_sessions = StaleSessionSweeper(context, store)
        self.former = FormerSessions(context)
        self.observer: SessionObserver | None = None
        self.absences = Absences(context, store, let_go=lambda session: self.drop(session, GOING_AWAY))
        self._when_leaving: list[Callable[[Session], None]] = []
        self._when_present: Callable[[Session], None] = lambda _session: None
        store.drop_by(self._lost)

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[Session]:
        return iter(list(self._sessions.values()))

    def get(self, session: SessionId) -> Session | None:
        """Return a session this node holds."""
        return self._sessions.get(session)

    def connected(self) -> int:
        """Count the sessions with a client."""
        return sum(session.connection is not None for session in self._sessions.values())

    def add(self, session: Session) -> None:
        """Take a session in; no effect if it is here."""
        if self._sessions.get(session.id) is session:
            return
        self._sessions[session.id] = session
        self.absences.found(session.id)
        self._limits.enter(session)

    def add_absent(self, session: Session) -> None:
        """Take a session in that has no client, and whose window runs in the grid."""
        self.add(session)
        self._store.served(session)
        session.on_clock = True
        self._wait_for_client(session)
        if self.observer is not None:
            self.observer.served(session)

    def tell_of_leaving(self, when_leaving: Callable[[Session], None]) -> None:
        """Have *when_leaving* called with each session for which nothing is done here any more."""
        self._when_leaving.append(when_leaving)

    def tell_of_presence(self, when_present: Callable[[Session], None]) -> None:
        """Have *when_present* called when the client of a session that handles questions has come or gone."""
        self._when_present = when_present

    # --- Attached and detached ----------------------------------------------------------------------------------------

    def attach(self, session: Session, connection: Connection) -> None:
        """Serve the session over *connection*; its machine has been opened, reattached or restarted just before."""
        session.connection = connection
        session.on_clock = False
        self._store.served(session)
        self.former.forget(session.id)
        self.stale_sessions.forget(session)
        self.absences.forget(session)
        self._limits.recount(session)
        session.moving = session.muted = False
        session.paused = False
        session.conflated = session.deduplicated = 0
        session.renew_at = self._clock.monotonic() + self._parameters.token_renewal
        self.expiry.arm(session)
        self.reschedule(session)
        if session.handlers:
            self._when_present(session)
        if self.observer is not None:
            self.observer.served(session)

    def refreshed(self, session: Session) -> None:
        """The client has shown fresh credentials, which are in force already."""
        self.expiry.arm(session)
        if session.connected:
            self.reschedule(session)

    def detach(self, session: Session, connection: Connection) -> None:
        """*connection* is over; unless the session has another one already, its window starts."""
        if session.connection is not connection:
            return
        self._announce(SessionDisconnected(session, connection.close_code))
        session.connection = None
        self.flusher.forget(session)
        if session.dropped:
            return
        session.machine.detach()
        self._wait_for_client(session)
        if self._store.replicated:
            self._gone.put(session, None)
            if session.handlers:
                self._when_present(session)

    def resumed_or_not(self, session: Session) -> None:
        """A resume is decided: if it came to nothing, the window of a session that was written as connected starts."""
        if self._store.replicated and not (session.connected or session.on_clock or session.dropped):
            self._gone.put(session, None)

    def _wait_for_client(self, session: Session) -> None:
        """Keep a session for its window, within the bounds for those without clients."""
        session.left_at = self._clock.monotonic()
        self._deadlines.schedule(session, session.left_at + session.window)
        self._arm()
        self.stale_sessions.watch(session)
        self.absences.watch(session)

    async def _save_disconnects(self, gone: dict[Session, None]) -> None:
        async for some in portions(gone, GONE_AT_ONCE):
            for session in some:
                if not session.connected and not session.dropped:
                    self._save_disconnect(session)

    def _save_disconnect(self, session: Session) -> None:
        self._background.once(self._store.attempt(partial(self._store.disconnect, session)), "save-disconnect")

    # --- Ends ---------------------------------------------------------------------------------------------------------

    def drop(self, session: Session, code: CloseCode, *, last_packet: Bye | Error | None = None) -> None:
        """Give the session up here and now, without touching the grid."""
        if session.dropped:
            return
        self._leave(session)
        if last_packet is not None:
            self.flusher.flush(session)  # the answers to what came before a bye
        session.machine.close()
        session.lane.abandon()
        if session.connection is not None:
            if last_packet is not None:
                session.machine.send_link(last_packet)
            self.flusher.flush(session)
            self.close_connection(session.connection, code)
            session.connection = None
        self.flusher.forget(session)

    def _leave(self, session: Session) -> None:
        """Nothing is done for a session here any more."""
        session.dropped = True
        if self._sessions.get(session.id) is session:
            del self._sessions[session.id]
            self._limits.leave(session)
        self.stale_sessions.forget(session)
        self.absences.forget(session)
        self._deadlines.cancel(session)
        if self.observer is not None:
            self.observer.left(session)
        for leave in self._when_leaving:
            leave(session)
        self.delivery.forget(session)

    def fence(self, session: Session) -> None:
        """Another node owns the session: stop serving it, and close its socket with its own code (P3).

        What it was is kept for that node if it may come for it, else it is dropped.
        """
        if session.dropped:
            return
        self._announce(SessionFenced(session))
        if self.former.wants(session):
            self._set_aside(session)
        else:
            self.drop(session, FENCED)

    def _set_aside(self, session: Session) -> None:
        """Stop serving a session in this turn of the loop, and keep it as it is now; nothing is executed for it."""
        cuts = self.delivery.cuts(session)
        connection, session.connection = session.connection, None
        self._leave(session)
        session.lane.leave()
        session.machine.detach()
        self.flusher.forget(session)
        self.former.keep(FormerSession(session, cuts))
        if connection is not None:
            self.close_connection(connection, FENCED)

    def _lost(self, session: Session, refusal: Refusal) -> None:
        """The session is not this node's any more, as ``fencing`` has found: drop the copy here."""
        if isinstance(refusal, Fenced):
            self.fence(session)
        else:
            self.drop(session, _CLOSES.get(refusal.reason, SESSION_EXPIRED))

    def claimed_elsewhere(self, claim: Ownership) -> None:
        """Another node says that it has claimed a session."""
        self.absences.found(claim.session)
        session = self._sessions.get(claim.session)
        if session is not None:
            self._store.claimed_elsewhere(session, claim.epoch)

    def fail(self, session: Session, bug: Exception) -> None:
        """A bug was met in serving the session: drop it here, so that no other is harmed; its client fails over.

        Likewise if there was no memory for what had to be written, which is nobody's bug.
        """
        if isinstance(session, StreamSession):
            self._log.emit(events.CONNECTION_FAILED, session=session.id, error=repr(bug))
            session.stop(StreamEnd.INTERNAL)
            return
        code = INTERNAL_ERROR
        if isinstance(bug, MemoryError):
            code = TRY_LATER
            self._memory.exhausted("to write to a client")
        else:
            self._log.emit(events.CONNECTION_FAILED, session=session.id, error=repr(bug))
        connection = session.connection
        if connection is not None:
            self._announce(ConnectionReplaced(session, code.code))
            session.connection = None  # first of all, as nothing more can be written for it
            self.close_connection(connection, code)
        if not session.dropped:
            if self._store.replicated:
                self.absences.left_to_grid(session)
            self.drop(session, code)
            if self._store.replicated:
                self._save_disconnect(session)

    async def end(self, session: Session, reason: ErrorCode, code: CloseCode, *, removed: bool = False) -> EndResult:
        """End the session everywhere (P7); while the grid is unreachable it is closed here now, and ended there later.

        Until then its end is *pending*: another node that reaches the grid may be shown its token, and serve it on; and
        if this node dies first, nobody ends it. So it is announced as ended when the grid has confirmed it, and not
        before. Whoever can wait for that calls ``end_for_good``; *removed* says that an administrator has asked for it.
        """
        try:
            ended = await self.end_for_good(session, reason, code, removed=removed)
        except GridUnavailable:
            if self._pending_ends.get(session.id) is not session:
                if not session.dropped:
                    self._close_until_confirmed(session, reason, code)
                self._background.once(self._end_later(session, reason, code, removed), "end-session")
            return EndResult.PENDING
        return EndResult.CONFIRMED if ended else EndResult.ELSEWHERE

    @property
    def execute_wills(self) -> WillExecutor | None:
        """What executes the wills of sessions that are ended by somebody else than this registry."""
        return self._store.execute_wills

    def is_end_pending(self, session: SessionId) -> bool:
        """Tell whether a session was closed here whose end the grid has not confirmed yet."""
        return session in self._pending_ends

    async def end_for_good(
        self, session: Session, reason: ErrorCode, code: CloseCode, *, removed: bool = False
    ) -> bool:
        """End the session everywhere (P7), or not yet.

        Returns:
            False if it is another node's, and only its copy here is dropped.

        Raises:
            GridUnavailable: the grid may hold it still, and so does this node; to be tried again.
        """
        session.ending = True
        if not await self._store.end(session, reason, removed=removed):
            return False
        self._ended(session, reason, code)
        return True

    def _ended(self, session: Session, reason: ErrorCode, code: CloseCode) -> None:
        """The grid has confirmed the end of a session; this is told once, however many have asked for it."""
        was_pending = self._pending_ends.get(session.id) is session
        if session.dropped and not was_pending:
            return
        if was_pending:
            del self._pending_ends[session.id]
        self._announce(ended(session, reason))
        self.drop(session, code, last_packet=_last_packet(reason))

    def _close_until_confirmed(self, session: Session, reason: ErrorCode, code: CloseCode) -> None:
        """Close a session here, whose end the grid has yet to be told of."""
        self._pending_ends[session.id] = session
        if session.connected:
            self._announce(SessionDisconnected(session, code.code))
        if reason is not ErrorCode.SESSION_EXPIRED:
            # The grid, or whoever takes over from this node, ends an expired one in any case.
            self._log.emit(events.SESSION_END_PENDING, session=session.id)
        self.drop(session, code, last_packet=_last_packet(reason))

    def revoke(self, session: Session) -> bool:
        """Give a session up that was revoked: its socket is closed here and now, whatever the grid does (P8).

        Returns:
            Whether the caller has to end it in the grid; False if it is not held here any more.
        """
        if session.dropped:
            return False
        session.ending = True
        self._announce(ended(session, ErrorCode.REVOKED))
        self.drop(session, REVOKED, last_packet=Error(ErrorCode.REVOKED, REVOKED.meaning))
        return True

    async def _end_later(self, session: Session, reason: ErrorCode, code: CloseCode, removed: bool) -> None:
        try:
            await self._store.until_available()
            if await self._store.until_known(lambda: self._store.end(session, reason, removed=removed)):
                self._ended(session, reason, code)
            elif self._pending_ends.get(session.id) is session:
                # It was claimed meanwhile, and did not end after all.
                self._log.emit(events.SESSION_NOT_ENDED, session=session.id)
        finally:
            if self._pending_ends.get(session.id) is session:
                del self._pending_ends[session.id]

    async def _expire(self, session: Session) -> None:
        async with session.resuming:
            # The client may have come back in the moment between the deadline and this.
            if not session.connected and not session.dropped:
                await self.end(session, ErrorCode.SESSION_EXPIRED, SESSION_EXPIRED)

    def close_connection(self, connection: Connection, code: CloseCode) -> None:
        """Close a connection and count it."""
        self._metrics.add(catalogue.CLOSES, label=str(code.code))
        if code in {SLOW_CONSUMER, PING_TIMEOUT}:
            self._metrics.add(catalogue.SLOW_CLOSES, label=str(code.code))
        connection.close(code.code, code.name)

    def _part(self, session: Session, connection: Connection) -> None:
        """The credentials have ended: the session waits for its client to come back with fresh ones."""
        self._log.emit(events.CREDENTIALS_EXPIRED, session=session.id)
        session.machine.send_link(
            Error(ErrorCode.CREDENTIALS_EXPIRED, "the session's credentials have ended; resume with fresh ones")
        )
        self.flusher.flush(session)
        self.close_connection(connection, CREDENTIALS_EXPIRED)
        self.detach(session, connection)

    def _too_slow(self, session: Session) -> None:
        if isinstance(session, StreamSession):
            session.stop(StreamEnd.SLOW)
            return
        connection = session.connection
        if connection is None:
            return
        self._announce(SlowConsumerClosed(session))
        self.close_connection(connection, SLOW_CONSUMER)
        self.detach(session, connection)

    # --- Time ---------------------------------------------------------------------------------------------------------

    def reschedule(self, session: Session) -> None:
        """The session's next deadline may have moved nearer; later ones are noticed when the old one is due."""
        deadline = session.machine.next_deadline()
        if deadline is not None and self._deadlines.schedule(session, min(deadline, session.credential_due)):
            self._arm()

    def close(self) -> None:
        """Stop the timers and what is being worked on."""
        for session in self:
            session.lane.abandon()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.flusher.close()
        self.former.close()

    def _arm(self) -> None:
        nearest = self._deadlines.next()
        if nearest is None:
            return
        at = ceil(nearest / DEADLINE_GRAIN) * DEADLINE_GRAIN
        if self._timer is not None:
            if self._timer_at is not None and self._timer_at <= at:
                return
            self._timer.cancel()
        self._timer_at = at
        delay = max(0.0, at - self._clock.monotonic())
        self._timer = asyncio.get_running_loop().call_later(delay, self._fire)

    def _fire(self) -> None:
        self._timer = self._timer_at = None
        now = self._clock.monotonic()
        for session in self._deadlines.due(now, most=TICKED_AT_ONCE):
            try:
                self._tick(session, now)
            except Exception as bug:  # noqa: BLE001 - one session must not stop the clock of the others
                self.fail(session, bug)
        self._arm()

    def _tick(self, session: Session, now: float) -> None:
        connection = session.connection
        if connection is None:
            self._background.once(self._expire(session), f"expire-{session.id}")
            return
        if session.paused:
            # What the client says is not read at the moment, so its silence means nothing.
            session.machine.receive((), now)
        if session.machine.tick(now):
            self.close_connection(connection, PING_TIMEOUT)
            self.detach(session, connection)
            return
        if now >= session.credential_due and self.expiry.is_over(session):
            self._part(session, connection)
            return
        if now >= session.renew_at:
            self._renew_token(session, now)
        machine = session.machine
        if machine.has_output:
            self.flusher.mark(session)
        deadline = machine.next_deadline()
        if deadline is not None:
            # Nearly every client answers a ping, which brings the deadline from the end of its patience to the next
            # ping. To look again by then in any case spares an entry for every answer.
            soon = now + machine.parameters.ping_interval
            self._deadlines.schedule(session, min(deadline, soon, session.credential_due))

    # --- Tokens -------------------------------------------------------------------------------------------------------

    def token(self, session: Session) -> str:
        """Make a token of the session's newest token generation, as its client may have it now.

        Two things of the grid go into it: up to where the client has been told of losses (P2), and that it may have
        seen something of the generation that this node has adopted, so that no node that is behind serves it (P6).
        """
        return self._signer.sign(
            session.id,
            session.token_generation,
            now=self._clock.wall(),
            grid_generation=session.known_generation,
            seen_generation=self._grid.generation,
        )

    def renew_tokens(self) -> None:
        """Hand all connected clients a token of the generation of the grid that has just been adopted.

        To be called before anything of that generation can reach them: what is queued first is written first, so that
        whoever has seen something of it has the token (P6).
        """
        now = self._clock.monotonic()
        for session in self._sessions.values():
            if session.connected:
                self._renew_token(session, now)
                self.flusher.mark(session)

    def _renew_token(self, session: Session, now: float) -> None:
        session.renew_at = now + self._parameters.token_renewal
        session.machine.ping(self.token(session))


def _last_packet(reason: ErrorCode) -> Bye:
    """Make what the client of a session is told when it ends."""
    return Bye("expired" if reason is ErrorCode.SESSION_EXPIRED else "closed")
