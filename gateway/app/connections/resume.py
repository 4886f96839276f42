"""Resume: how a client goes on with its session, on the best rung there is (protocol 4.2, the recovery ladder)."""

from __future__ import annotations

from collections.abc import Callable

from gateway.app.admission.handshake_limiter import HandshakeLimiter, Turn
from gateway.app.admission.refusals import ClientGone, HandshakeRefused, grid_unavailable, refusal
from gateway.app.connections.claimer import SessionClaimer
from gateway.app.connections.session_factory import SessionFactory
from gateway.app.context import Context
from gateway.app.journal.session_events import ConnectionReplaced, ResumeRefused, SessionResumed
from gateway.app.registry.fenced_store import FencedStore
from gateway.app.registry.sessions import Sessions
from gateway.app.requests.dispatch import Requests
from gateway.app.security.authentication import Authentication
from gateway.app.security.authorisation import Authorisation
from gateway.app.security.enforcement import Enforcement
from gateway.app.security.revocations import Revocations
from gateway.app.session.session import Session
from gateway.catalogue import metrics as catalogue
from gateway.core.policy.system_roles import is_of_system
from gateway.core.types import GridGeneration, NodeRef
from gateway.core.wire.codes import SUPERSEDED, ErrorCode, FailoverReason, Outcome
from gateway.core.wire.packets import Resume
from gateway.ports import (
    Connection,
    Credentials,
    GridUnavailable,
    Identity,
    Ownership,
    TokenClaims,
    TokenRefused,
    TokenSigner,
)


class ResumeHandler:
    """Goes on with sessions.

    Args:
        context: of the node.
        store: knows whether sessions are replicated.
        sessions: the sessions held here.
        requests: makes lanes.
        authentication: says who clients are, by their credentials.
        signer: reads the tokens they come back with.
        authorisation: what they may do.
        revocations: who is refused, whatever they show.
        enforcement: ends the sessions of those who are.
        claimer: gets the right to serve sessions.
        session_factory: makes sessions and welcomes.
        handshake_limiter: says when the grid may be asked.
        has_lost: whether the grid has lost writes since this node began to work.
    """

    def __init__(
        self,
        context: Context,
        *,
        store: FencedStore,
        sessions: Sessions,
        requests: Requests,
        authentication: Authentication,
        signer: TokenSigner,
        authorisation: Authorisation,
        revocations: Revocations,
        enforcement: Enforcement,
        claimer: SessionClaimer,
        session_factory: SessionFactory,
        handshake_limiter: HandshakeLimiter,
        has_lost: Callable[[], bool],
    ) -> None:
        self._me = context.me
        self._clock = context.clock
        self._grid = context.grid
        self._reconnect_advice = context.reconnect_advice
        self._metrics = context.metrics
        self._announce = context.announce
        self._store = store
        self._sessions = sessions
        self._delivery = sessions.delivery
        self._requests = requests
        self._authentication = authentication
        self._signer = signer
        self._authorisation = authorisation
        self._revocations = revocations
        self._enforcement = enforcement
        self._claimer = claimer
        self._session_factory = session_factory
        self._handshake_limiter = handshake_limiter
        self._has_lost = has_lost

    async def resume(self, packet: Resume, connection: Connection, *, at_admin_port: bool, heard: float) -> Session:
        """Go on with a session, on the best rung there is (protocol 4.2, sections 5.4 and 5.5).

        Args:
            packet: what the client says.
            connection: where it said it.
            at_admin_port: whether it came in at the admin port, the only one that serves consoles.
            heard: when it was said, by the monotonic clock; it may have waited for its turn.

        Raises:
            HandshakeRefused: rung 5, with the reason; or the node cannot tell now.
            ClientGone: the client has closed the connection before anything was done for it.
        """
        began = self._clock.monotonic()
        # Those who come in at the admin port do not queue: they are few, and want to look at the storm.
        turn = Turn(None if at_admin_port else self._handshake_limiter, returning=True)
        token: TokenClaims | None = None
        try:
            token = self._read_token(packet)
            session = await self._resume(token, packet, connection, turn, heard=heard, at_admin_port=at_admin_port)
        except HandshakeRefused as refused:
            self._metrics.observe(catalogue.RESUME_SECONDS, self._spent(began, turn), label="refused")
            self._announce(
                ResumeRefused(
                    session=None if token is None else token.session,
                    reason=refused.error.code,
                    address=connection.address,
                    away=packet.away,
                    at_admin_port=at_admin_port,
                )
            )
            raise
        self._metrics.observe(catalogue.RESUME_SECONDS, self._spent(began, turn), label=session.outcome.value)
        return session

    def _spent(self, began: float, turn: Turn) -> float:
        return self._clock.monotonic() - began - turn.waited

    def _read_token(self, packet: Resume) -> TokenClaims:
        try:
            return self._signer.verify(packet.token, now=self._clock.wall())
        except TokenRefused as error:
            raise refusal(error.reason) from None

    async def _resume(
        self,
        token: TokenClaims,
        packet: Resume,
        connection: Connection,
        turn: Turn,
        *,
        heard: float,
        at_admin_port: bool,
    ) -> Session:
        if not self._revocations.loaded:
            raise grid_unavailable()
        if self._revocations.is_revoked(session=token.session):
            raise refusal(ErrorCode.REVOKED)
        identity: Identity | None = None
        # Those of a console do not end, and are no authenticator's matter.
        if packet.secret is not None and not at_admin_port:
            identity = await self._authentication.admit(
                Credentials(
                    principal=packet.principal or "",
                    secret=packet.secret,
                    address=connection.address,
                    abandoned=lambda: connection.is_closing,
                    before_work=lambda: self._check(token, packet, turn),
                )
            )
        async with turn:
            if connection.is_closing:
                raise ClientGone("the client has closed the connection")
            if identity is not None:
                # While they were verified, or waited for their turn, they may have been revoked.
                self._authentication.refuse_revoked(identity, connection.address)
            await self._refuse_behind(token)
            return await self._go_on(token, packet, connection, identity, heard=heard, at_admin_port=at_admin_port)

    async def _check(self, token: TokenClaims, packet: Resume, turn: Turn) -> None:
        """Refuse what would be refused whatever credentials are shown, before something slow is done to verify them.

        Raises:
            HandshakeRefused: no session can be had with this token, or not now.
        """
        session = self._sessions.get(token.session)
        if session is not None and not session.dropped:
            self._refuse_at_once(session, token, packet)
            return
        if not self._store.replicated:
            raise refusal(ErrorCode.NOT_REPLICATED)
        async with turn:
            await self._refuse_behind(token)
            await self._claimer.check(token, packet.attempt)

    async def _go_on(
        self,
        token: TokenClaims,
        packet: Resume,
        connection: Connection,
        identity: Identity | None,
        *,
        heard: float,
        at_admin_port: bool,
    ) -> Session:
        session = self._sessions.get(token.session)
        if session is not None:
            self._refuse_at_wrong_door(session.roles, at_admin_port=at_admin_port)
            async with session.resuming:
                if not session.dropped and await self._resume_held(
                    session, token, packet, connection, identity, heard=heard
                ):
                    return session
        if not self._store.replicated:
            raise refusal(ErrorCode.NOT_REPLICATED)
        return await self._resume_from_grid(
            token, packet, connection, identity, heard=heard, at_admin_port=at_admin_port
        )

    async def _refuse_behind(self, token: TokenClaims) -> None:
        """Refuse for now a session whose token is of a later generation of the grid than this node has adopted.

        Either this node has not heard yet that the master was replaced, and what it would show is older than what the
        client has seen; or the grid has gone back while no node was there that knew. In both cases it has to be adopted
        again (P2, P6). Of a session that nobody knows the token may be of another grid altogether.

        Raises:
            HandshakeRefused: as retryable.
        """
        grid_generation = token.grid_generation
        if grid_generation is None or grid_generation <= self._grid.generation:
            return
        if not self._store.replicated or not self._store.available:
            return
        try:
            if self._sessions.get(token.session) is None and await self._grid.sessions.find(token.session) is None:
                return
        except GridUnavailable:
            raise grid_unavailable() from None
        self._grid.heard_of(grid_generation)
        raise grid_unavailable()

    async def _resume_held(
        self,
        session: Session,
        token: TokenClaims,
        packet: Resume,
        connection: Connection,
        identity: Identity | None,
        *,
        heard: float,
    ) -> bool:
        """Resume a session that this node holds: rung 1, or rung 4 if the buffers do not reach.

        Returns:
            False if it was dropped meanwhile: the grid knows all about it.
        """
        self._refuse_at_once(session, token, packet)
        # A token newer than any from here: another node has served the session since, and what is here is out of date,
        # though nobody told this node, and though a grid that was rolled back may take this node for the owner.
        outdated = token.token_generation > session.token_generation
        won = await self._claimer.claim_held(session, token, packet.attempt, identity)
        if session.dropped:
            return False
        if won is None and outdated:
            raise grid_unavailable()
        if won is None:
            self._claim_alone(session, token, packet, identity)
            is_ours = True
        else:
            is_ours = not outdated and won.continues(session)
            session.take_over(won.claimed.record, stored_under=won.stored_under)
        # Another node may have served it since with other credentials, or it comes with fresh ones.
        if self._revocations.is_revoked(credential=session.credential):
            self._enforcement.end_held(session)
            raise refusal(ErrorCode.REVOKED)
        withdrawn = self._authorisation.enforce(session)
        if session.connection is not None:
            old = session.connection
            self._announce(ConnectionReplaced(session, SUPERSEDED.code))
            self._sessions.close_connection(old, SUPERSEDED)
            session.connection = None
            self._sessions.flusher.forget(session)
        machine = session.machine
        machine.detach()
        machine.resume()
        now = self._clock.monotonic()
        was_muted = session.moving
        if is_ours and machine.can_reattach(
            received=packet.received, oldest=packet.oldest, generation=token.token_generation
        ):
            conflated = machine.conflated
            resent = machine.reattach(received=packet.received, now=now)
            self._session_factory.welcome(
                session,
                connection,
                Outcome.REATTACHED,
                supports=packet.supports,
                resent=resent,
                conflated=conflated,
                withdrawn=withdrawn,
            )
            self._sessions.flusher.flush(session)
            away = self._away(packet, heard)
            self._resumed(session, None, self._me, away=away, resent=resent, conflated=conflated, lost=0)
            if was_muted:
                self._session_factory.activate(session)
            return True
        lost = machine.lost(packet.received, generation=token.token_generation) if is_ours else None
        reason = FailoverReason.GAP if is_ours else FailoverReason.OTHER_NODE
        machine.restart(now, generation=session.token_generation)
        # Until its selections are in force anew: the current value of a topic comes before what follows it.
        self._delivery.mute(session)
        # With the buffer went what the client may have been told of here.
        session.declared = min(session.declared, self._told(token))
        # The client asks again for all that it has no answer to, what is being worked on here included.
        session.lane.abandon()
        session.begin_anew()
        session.lane = self._requests.lane(session)
        self._session_factory.welcome(
            session,
            connection,
            Outcome.FAILED_OVER,
            supports=packet.supports,
            reason=reason,
            lost=lost,
            conflated=None,
            withdrawn=withdrawn,
        )
        self._sessions.flusher.flush(session)
        previous = won.claimed.previous if won else self._me
        self._resumed(session, reason, previous, away=self._away(packet, heard), lost=lost)
        # Not waited for: what the client says meanwhile must be heard, and it may lose this connection, too.
        self._session_factory.activate(session)
        return True

    def _refuse_at_once(self, session: Session, token: TokenClaims, packet: Resume) -> None:
        """Refuse what need not be asked of the grid."""
        if token.token_generation < session.confirmed:
            raise refusal(ErrorCode.TOKEN_SUPERSEDED)
        if packet.attempt <= session.attempt:
            raise refusal(ErrorCode.STALE_ATTEMPT)
        if self._revocations.refuses(session):
            # Else it would be held until its window ends: nobody else looks at it again.
            self._enforcement.end_held(session)
            raise refusal(ErrorCode.REVOKED)

    def _claim_alone(self, session: Session, token: TokenClaims, packet: Resume, identity: Identity | None) -> None:
        """Do here what a claim does, where it has to be done without the grid.

        Nobody else can claim the session without the grid either; it is written as soon as the grid is back.

        Raises:
            HandshakeRefused: the session's credentials have ended and there are no fresh ones, or not the principal's.
        """
        if identity is None:
            expires = session.credential_expires
            if expires is not None and expires <= self._clock.wall():
                raise refusal(ErrorCode.CREDENTIALS_EXPIRED)
        elif identity.principal != session.principal:
            raise refusal(ErrorCode.UNAUTHENTICATED)
        else:
            session.show(identity)
        session.go_on_alone(token.token_generation, packet.attempt)

    async def _resume_from_grid(
        self,
        token: TokenClaims,
        packet: Resume,
        connection: Connection,
        identity: Identity | None,
        *,
        heard: float,
        at_admin_port: bool,
    ) -> Session:
        """Resume a session that another node held: rung 4."""
        won = await self._claimer.claim_stored(token, packet.attempt, identity)
        result = won.claimed
        record = result.record
        if self._revocations.refuses(record):
            # Nobody else ends it any more: it is this node's now.
            self._enforcement.end_claimed(Ownership(record.id, self._me, record.epoch))
            raise refusal(ErrorCode.REVOKED)
        try:
            self._refuse_at_wrong_door(record.roles, at_admin_port=at_admin_port)
        except HandshakeRefused:
            self._claimer.disown(record.id)
            raise
        already = self._sessions.get(token.session)
        if already is not None:
            # Two connections asked at the same time; the later attempt has the session, whoever was served first.
            self._sessions.drop(already, SUPERSEDED)
        session = self._session_factory.make(result.record, won.stored_under)
        session.declared = self._told(token)
        withdrawn = self._authorisation.enforce(session)
        self._sessions.add(session)
        session.machine.open(self._clock.monotonic(), generation=session.token_generation)
        self._session_factory.welcome(
            session,
            connection,
            Outcome.FAILED_OVER,
            supports=packet.supports,
            reason=FailoverReason.OTHER_NODE,
            lost=None,
            conflated=None,
            withdrawn=withdrawn,
        )
        # If all is at hand, welcome and values leave in one write.
        if not self._delivery.restore(session):
            self._session_factory.activate(session)
        self._sessions.flusher.flush(session)
        self._resumed(session, FailoverReason.OTHER_NODE, result.previous, away=self._away(packet, heard))
        return session

    def _told(self, token: TokenClaims) -> GridGeneration:
        """Tell up to which generation of the grid a client has been told of lost writes, as its token says (P2).

        A token of the first release says nothing; then what was lost while this node has worked counts as not told.
        """
        grid_generation = self._grid.generation
        if token.grid_generation is not None:
            return token.grid_generation
        return GridGeneration(grid_generation - 1) if self._has_lost() else grid_generation

    def _refuse_at_wrong_door(self, roles: frozenset[str], *, at_admin_port: bool) -> None:
        """A console's token is worth nothing where clients come in, which more people reach, nor theirs at its door.

        There, neither the limits nor the line for those who come back would hold for them.
        """
        if at_admin_port != is_of_system(roles):
            raise refusal(ErrorCode.SESSION_UNKNOWN)

    def _away(self, packet: Resume, heard: float) -> int | None:
        """Tell how long a client was away, in milliseconds: as it says, and for as long as it has waited here."""
        return None if packet.away is None else packet.away + round((self._clock.monotonic() - heard) * 1000)

    def _resumed(
        self,
        session: Session,
        reason: FailoverReason | None,
        previous: NodeRef,
        *,
        away: int | None,
        resent: int | None = None,
        conflated: int | None = None,
        lost: int | None = None,
    ) -> None:
        """Announce a resume; the numbers are None where they cannot be known."""
        if reason is FailoverReason.GAP:
            self._metrics.add(catalogue.LOSSES_DECLARED, label="gap")
        if reason is FailoverReason.OTHER_NODE:
            self._reconnect_advice.returned()
        self._announce(
            SessionResumed(
                session=session,
                reason=reason.value if reason else None,
                previous=previous,
                away=away,
                resent=resent,
                conflated=conflated,
                lost=lost,
            )
        )
