"""Hello: how a client gets a new session (protocol 4.1)."""

from __future__ import annotations

from typing import Final

from gateway.app.admission.handshake_limiter import HandshakeLimiter, HandshakePlace
from gateway.app.admission.refusals import ClientGone, HandshakeRefused, grid_unavailable, refusal
from gateway.app.connections.claimer import SessionClaimer
from gateway.app.connections.session_factory import CREATED, SessionFactory
from gateway.app.context import Context
from gateway.app.journal.session_events import SessionOpened
from gateway.app.registry.fenced_store import FencedStore
from gateway.app.registry.fencing import SessionLost
from gateway.app.registry.sessions import Sessions
from gateway.app.security.authentication import Authentication
from gateway.app.security.authorisation import Authorisation
from gateway.app.security.enforcement import Enforcement
from gateway.app.security.revocations import Revocations
from gateway.app.session.session import CLIENT_TYPE_PROPERTY, Session
from gateway.catalogue import log_events as events
from gateway.catalogue import metrics as catalogue
from gateway.core.wire.codes import FORBIDDEN, PROTOCOL_ERROR, ErrorCode
from gateway.core.wire.errors import RequestRefused
from gateway.core.wire.packets import Hello
from gateway.core.wire.properties import check_properties
from gateway.ports import Authenticator, Connection, Credentials, GridUnavailable, Identity, SessionRecord

MAX_CLIENT_TYPE: Final = 64
"""Longest ``client`` of a hello, in characters; the rest is cut off."""


class HelloHandler:
    """Opens sessions.

    Args:
        context: of the node.
        store: writes new sessions.
        sessions: the sessions held here.
        authentication: says who clients are, by their credentials.
        authorisation: what they may do.
        revocations: who is refused, whatever they show.
        enforcement: ends the sessions of those who are.
        claimer: sees to sessions of which it is not known whether they were written.
        session_factory: makes sessions and welcomes.
        handshake_limiter: says when the grid may be asked.
    """

    def __init__(
        self,
        context: Context,
        *,
        store: FencedStore,
        sessions: Sessions,
        authentication: Authentication,
        authorisation: Authorisation,
        revocations: Revocations,
        enforcement: Enforcement,
        claimer: SessionClaimer,
        session_factory: SessionFactory,
        handshake_limiter: HandshakeLimiter,
    ) -> None:
        self._me = context.me
        self._parameters = context.parameters
        self._clock = context.clock
        self._limits = context.limits
        self._metrics = context.metrics
        self._log = context.log
        self._announce = context.announce
        self._store = store
        self._sessions = sessions
        self._authentication = authentication
        self._authorisation = authorisation
        self._revocations = revocations
        self._enforcement = enforcement
        self._claimer = claimer
        self._session_factory = session_factory
        self._handshake_limiter = handshake_limiter

    async def open(self, packet: Hello, connection: Connection, administrators: Authenticator | None = None) -> Session:
        """Open a new session (protocol 4.1).

        Args:
            packet: what the client says.
            connection: where it said it.
            administrators: knows who may come in at the admin port; None for the client port.

        Raises:
            HandshakeRefused: with the error to send and the close code.
            ClientGone: the client has closed the connection before anything was done for it.
        """
        began = self._clock.monotonic()
        if (self._store.replicated and not self._store.available) or not self._revocations.loaded:
            raise grid_unavailable()
        try:
            check_properties(dict(packet.properties))
        except RequestRefused as error:
            raise HandshakeRefused(error.code, str(error), PROTOCOL_ERROR) from None
        identity = await self._authentication.admit(
            Credentials(
                principal=packet.principal,
                secret=packet.secret,
                address=connection.address,
                abandoned=lambda: connection.is_closing,
            ),
            administrators,
        )
        # Only now: nobody whose credentials are not good takes a place of those whose are, or keeps it for long. Those
        # who come in at the admin port do not queue: they are few, and want to look at the storm.
        place = HandshakePlace(self._handshake_limiter if administrators is None else None, returning=False)
        async with place:
            if connection.is_closing:
                raise ClientGone("the client has closed the connection")
            session = await self._open(packet, connection, identity, at_admin_port=administrators is not None)
        self._metrics.observe(catalogue.HELLO_SECONDS, self._clock.monotonic() - began - place.waited)
        return session

    async def _open(self, packet: Hello, connection: Connection, identity: Identity, *, at_admin_port: bool) -> Session:
        # While the credentials were verified, or waited for their turn, they may have been revoked.
        self._authentication.refuse_revoked(identity, connection.address)
        self._limits.open(identity.principal, at_admin_port=at_admin_port)
        longest = self._parameters.window if self._limits.crowded else self._parameters.max_window
        window = self._parameters.window if packet.window is None else min(packet.window, longest)
        record = SessionRecord(
            id=self._clock.session_id(),
            principal=identity.principal,
            properties={**packet.properties, CLIENT_TYPE_PROPERTY: packet.client[:MAX_CLIENT_TYPE]},
            window=window,
            owner=self._me,
        ).shows(identity)
        session = self._session_factory.make(record, self._store.writes_under)
        try:
            self._authorisation.check_properties(session.permissions, packet.properties)
        except RequestRefused as error:
            raise HandshakeRefused(error.code, str(error), FORBIDDEN) from None
        with self._limits.opening(session, at_admin_port=at_admin_port):
            try:
                await self._store.create(session)
            except (GridUnavailable, SessionLost):
                self._claimer.disown(session.id)
                raise grid_unavailable() from None
            # Once more: what was revoked, or reviewed, while the grid was asked could not find the session here.
            if self._revocations.refuses(session):
                self._log.emit(events.REVOKED_REFUSED, principal=session.principal, address=connection.address)
                self._enforcement.end_claimed(session.ownership)
                raise refusal(ErrorCode.REVOKED)
            self._authorisation.enforce(session)
            self._sessions.add(session)
        session.machine.open(self._clock.monotonic(), generation=session.token_generation)
        self._session_factory.welcome(session, connection, CREATED, supports=packet.supports)
        self._sessions.flusher.flush(session)
        self._announce(SessionOpened(session, session.properties[CLIENT_TYPE_PROPERTY]))
        return session
