"""Resume: how a client that shows a token goes on with its session (protocol 4.2)."""

from __future__ import annotations

from gateway.app.admission.handshake_limiter import HandshakeLimiter, HandshakePlace
from gateway.app.admission.refusals import ClientGone, HandshakeRefused, grid_unavailable, refusal
from gateway.app.connections.claimer import ResumeAttempt, SessionClaimer, check_port
from gateway.app.connections.ladder import RecoveryLadder
from gateway.app.context import Context
from gateway.app.journal.session_events import ResumeRefused
from gateway.app.registry.fenced_store import FencedStore
from gateway.app.registry.sessions import Sessions
from gateway.app.security.authentication import Authentication
from gateway.app.security.revocations import Revocations
from gateway.app.session.session import Session
from gateway.catalogue import metrics as catalogue
from gateway.core.types import GridGeneration, SessionId
from gateway.core.wire.codes import ErrorCode, Outcome
from gateway.core.wire.packets import Resume
from gateway.ports import Connection, Credentials, GridUnavailable, Identity, TokenClaims, TokenRefused, TokenSigner


class ResumeHandler:
    """Resumes sessions: finds out who asks, has the session claimed, and leaves the rest to the ladder.

    Args:
        context: of the node.
        store: knows whether sessions are replicated.
        sessions: the sessions held here.
        authentication: says who clients are, by their credentials.
        signer: reads the tokens they come back with.
        revocations: who is refused, whatever they show.
        claimer: gets the right to serve sessions.
        ladder: recovers those that were claimed.
        handshake_limiter: says when the grid may be asked.
    """

    def __init__(
        self,
        context: Context,
        *,
        store: FencedStore,
        sessions: Sessions,
        authentication: Authentication,
        signer: TokenSigner,
        revocations: Revocations,
        claimer: SessionClaimer,
        ladder: RecoveryLadder,
        handshake_limiter: HandshakeLimiter,
    ) -> None:
        self._clock = context.clock
        self._grid = context.grid
        self._metrics = context.metrics
        self._announce = context.announce
        self._store = store
        self._sessions = sessions
        self._authentication = authentication
        self._signer = signer
        self._revocations = revocations
        self._claimer = claimer
        self._ladder = ladder
        self._handshake_limiter = handshake_limiter

    async def resume(self, packet: Resume, connection: Connection, *, at_admin_port: bool, heard: float) -> Session:
        """Go on with a session, on the best rung there is (protocol 4.2, sections 5.4 and 5.5).

        Args:
            packet: what the client says.
            connection: where it said it.
            at_admin_port: whether it came to the admin port, the only one that serves consoles.
            heard: when it was said, by the monotonic clock; it may have waited for its turn.

        Raises:
            HandshakeRefused: rung 5, with the reason; or the node cannot tell now.
            ClientGone: the client has closed the connection before anything was done for it.
        """
        began = self._clock.monotonic()
        # Those who come to the admin port do not queue: they are few, and want to look at the storm.
        place = HandshakePlace(None if at_admin_port else self._handshake_limiter, returning=True)
        token: TokenClaims | None = None
        try:
            token = self._read_token(packet)
            if not self._revocations.loaded:
                raise grid_unavailable()
            if self._revocations.is_revoked(session=token.session):
                raise refusal(ErrorCode.REVOKED)
            identity: Identity | None = None
            # Those of a console do not end, and are no authenticator's matter.
            if packet.secret is not None and not at_admin_port:
                identity = await self._authenticate(token, packet, packet.secret, connection, place)
            attempt = ResumeAttempt(token, packet, connection, identity, heard, at_admin_port, place.leave)
            async with place:
                self._check_again(attempt)
                if (seen := token.seen_after(self._grid.generation)) is not None:
                    await self._refuse_behind(token.session, seen)
                session = await self._recover(attempt, place)
        except HandshakeRefused as refused:
            self._metrics.observe(catalogue.RESUME_SECONDS, self._spent(began, place), label=Outcome.REFUSED.value)
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
        self._metrics.observe(catalogue.RESUME_SECONDS, self._spent(began, place), label=session.outcome.value)
        return session

    def _spent(self, began: float, place: HandshakePlace) -> float:
        return self._clock.monotonic() - began - place.waited

    def _read_token(self, packet: Resume) -> TokenClaims:
        try:
            return self._signer.verify(packet.token, now=self._clock.wall())
        except TokenRefused as error:
            raise refusal(error.reason) from None

    async def _recover(self, attempt: ResumeAttempt, place: HandshakePlace) -> Session:
        """Claim the session, and have it recovered on the rung that the ladder chooses."""
        session = self._sessions.get(attempt.token.session)
        if session is not None:
            check_port(session.roles, at_admin_port=attempt.at_admin_port)
            is_first = session.resuming.enter_at_once()
            if not is_first:
                await self._wait_for_turn(session, attempt, place)
            try:
                if not is_first:
                    await place.take()
                    self._check_again(attempt)
                # It may have been dropped by whoever held the lock, and again while the grid is asked.
                claimed = None if session.dropped else await self._claimer.claim_held(session, attempt)
                if claimed is not None:
                    return await self._ladder.recover(claimed)
            finally:
                session.resuming.leave()
                self._sessions.resumed_or_not(session)
        claimed = await self._claimer.claim_stored(attempt)
        # Nobody else knows of it yet, so this does not wait; but who resumes it next has to.
        async with claimed.session.resuming:
            return await self._ladder.recover(claimed)

    async def _wait_for_turn(self, session: Session, attempt: ResumeAttempt, place: HandshakePlace) -> None:
        """Wait until whoever decides on a session has done so, by its ``resuming``.

        That may take seconds if its client wants it to, and clients of one session could take all places with them. So
        the place is given up, and only the newest attempt of a session waits: no other could be served after it.

        Raises:
            HandshakeRefused: the attempt is older than one that waits or was served, or the session cannot be had.
        """
        place.leave()
        self._claimer.check_held(session, attempt.token, attempt.packet)
        if not await session.resuming.enter(attempt.packet.attempt):
            raise refusal(ErrorCode.STALE_ATTEMPT)

    def _check_again(self, attempt: ResumeAttempt) -> None:
        """Look at what may have changed while its credentials were verified, or it waited for its turn.

        Raises:
            HandshakeRefused: its credentials have been revoked.
            ClientGone: nobody waits for an answer. Who has come back since must not be put off for who has gone.
        """
        if attempt.connection.is_closing:
            raise ClientGone("the client has closed the connection")
        if attempt.identity is not None:
            self._authentication.refuse_revoked(attempt.identity, attempt.connection.address)

    # --- Before the session is claimed --------------------------------------------------------------------------------

    async def _authenticate(
        self, token: TokenClaims, packet: Resume, secret: str, connection: Connection, place: HandshakePlace
    ) -> Identity:
        """Tell whose fresh credentials are shown with the token.

        Raises:
            HandshakeRefused: they are not accepted, or no session can be had with the token whoever shows it.
        """
        return await self._authentication.admit(
            Credentials(
                principal=packet.principal or "",
                secret=secret,
                address=connection.address,
                abandoned=lambda: connection.is_closing,
                before_work=lambda: self._check(token, packet, place),
            )
        )

    async def _check(self, token: TokenClaims, packet: Resume, place: HandshakePlace) -> None:
        """Refuse what would be refused whatever credentials are shown, before something slow is done to verify them.

        Raises:
            HandshakeRefused: no session can be had with this token, or not now.
        """
        session = self._sessions.get(token.session)
        if session is not None and not session.dropped:
            self._claimer.check_held(session, token, packet)
            return
        if not self._store.replicated:
            raise refusal(ErrorCode.NOT_REPLICATED)
        async with place:
            if (seen := token.seen_after(self._grid.generation)) is not None:
                await self._refuse_behind(token.session, seen)
            await self._claimer.check_stored(token, packet.attempt)

    async def _refuse_behind(self, session: SessionId, seen: GridGeneration) -> None:
        """Refuse for now who may have seen a later generation of the grid than this node has adopted.

        Either this node has not heard yet that the master was replaced, and what it would show is older than what the
        client has seen; or the grid has gone back while no node was there that knew. In both cases it has to be adopted
        again (P2, P6). Of a session that nobody knows the token may be of another grid altogether; see
        ``SessionClaimer``.

        Args:
            session: of the client.
            seen: the later generation.

        Raises:
            HandshakeRefused: as retryable.
        """
        if not self._store.replicated or not self._store.available:
            return
        try:
            if self._sessions.get(session) is None and await self._grid.sessions.find(session) is None:
                return
        except GridUnavailable:
            raise grid_unavailable() from None
        self._grid.heard_of(seen)
        raise grid_unavailable()
