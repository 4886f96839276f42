"""Hello and resume: how a connection gets its session (protocol 4.1 to 4.3, the recovery ladder)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from gateway.app.context import Context
from gateway.app.persistence import Persistence
from gateway.app.requests import Requests, check_properties
from gateway.app.session import CLIENT_TYPE_PROPERTY, Session
from gateway.app.sessions import Sessions, close_code_of
from gateway.catalogue import log_events as events
from gateway.catalogue import metrics as catalogue
from gateway.core.codes import (
    GRID_UNAVAILABLE,
    PROTOCOL_ERROR,
    REFUSED,
    STALE_ATTEMPT,
    SUPERSEDED,
    TRY_LATER,
    UNAUTHENTICATED,
    CloseCode,
    ErrorCode,
    FailoverReason,
    Outcome,
)
from gateway.core.errors import GatewayError, RequestRefused
from gateway.core.packets import Error, Hello, Resume, Welcome
from gateway.core.session import SessionMachine
from gateway.core.transitions import Role
from gateway.core.types import Epoch, NodeRef, PacketId, SessionId, TokenGeneration
from gateway.ports import (
    Authenticator,
    Claimed,
    ClaimRefused,
    ClaimResult,
    Credentials,
    Fenced,
    GridUnavailable,
    LeaseUnverified,
    Link,
    Ownership,
    SessionGone,
    SessionRecord,
    TokenClaims,
    TokenRefused,
    TokenSigner,
)

MAX_CLIENT_TYPE: Final = 64
"""Longest ``client`` of a hello, in characters; the rest is cut off."""

COME_AGAIN: Final = 1.0
"""Seconds after which a client should try again when the node cannot serve it for reasons that pass."""

VERIFY_PATIENCE: Final = 2.0
"""Seconds a resume waits until the node has verified its lease: a hundred times what that takes, and less than a client
waits for a welcome."""

VERIFY_POLL: Final = 0.02
"""Seconds between two looks whether it has: some round trips to the grid."""


class HandshakeRefused(GatewayError):
    """The connection gets no session.

    Attributes:
        error: the packet that tells the client why.
        close: the close code that tells it what to do next.
    """

    def __init__(self, code: ErrorCode, message: str, close: CloseCode, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.error = Error(code, message, retry_after)
        self.close = close


_REFUSALS: Final[dict[ErrorCode, tuple[str, CloseCode]]] = {
    ErrorCode.TOKEN_INVALID: ("the token is not one of this cluster's", REFUSED),
    ErrorCode.TOKEN_EXPIRED: ("the token's life is over; open a new session", REFUSED),
    ErrorCode.TOKEN_KEY_RETIRED: ("the token was signed with a key that is no longer accepted", REFUSED),
    ErrorCode.TOKEN_SUPERSEDED: ("a newer token of the session has been used already", REFUSED),
    ErrorCode.STALE_ATTEMPT: ("a later attempt to resume the session has been served already", STALE_ATTEMPT),
    ErrorCode.SESSION_UNKNOWN: ("there is no such session; open a new one", REFUSED),
    ErrorCode.SESSION_EXPIRED: ("the session's window is over; open a new one", REFUSED),
    ErrorCode.SESSION_CLOSED: ("the session was closed; open a new one", REFUSED),
    ErrorCode.NOT_REPLICATED: ("sessions are not replicated and this node does not hold this one", REFUSED),
}


_MAY_CHANGE: Final = frozenset({ErrorCode.SESSION_UNKNOWN, ErrorCode.SESSION_EXPIRED})
"""Refusals that mean nothing yet in a grid that has just lost writes: the session's node may restore it any moment."""


def refusal(reason: ErrorCode) -> HandshakeRefused:
    """Say why rung 5 was reached."""
    message, close = _REFUSALS[reason]
    return HandshakeRefused(reason, message, close)


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Who clients are.

    Attributes:
        authenticator: decides it at hello.
        signer: signs and reads the tokens they resume with.
    """

    authenticator: Authenticator
    signer: TokenSigner


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterView:
    """What the handshake has to know of the surroundings.

    Attributes:
        is_alive: whether a node's lease held when this one last looked.
        is_recovering: whether the grid has just lost writes, so that a session may be unknown to it and yet exist.
    """

    is_alive: Callable[[NodeRef], bool]
    is_recovering: Callable[[], bool]


class Handshake:
    """Opens and resumes sessions.

    Args:
        context: of the node.
        persistence: for writes of sessions held here.
        sessions: the sessions held here.
        requests: makes lanes.
        identity: who clients are, and the tokens they come back with.
        cluster: what is known of the other nodes and of the grid.
    """

    def __init__(
        self,
        context: Context,
        *,
        persistence: Persistence,
        sessions: Sessions,
        requests: Requests,
        identity: Identity,
        cluster: ClusterView,
    ) -> None:
        self._me = context.me
        self._policy = context.policy
        self._clock = context.clock
        self._grid = context.grid
        self._background = context.background
        self._metrics = context.metrics
        self._log = context.log
        self._persistence = persistence
        self._sessions = sessions
        self._delivery = sessions.delivery
        self._requests = requests
        self._authenticator = identity.authenticator
        self._signer = identity.signer
        self._cluster = cluster

    # --- Hello --------------------------------------------------------------------------------------------------------

    async def hello(self, packet: Hello, link: Link) -> Session:
        """Open a new session (protocol 4.1).

        Raises:
            HandshakeRefused: with the error to send and the close code.
        """
        if self._persistence.replicated and not self._persistence.available:
            raise _grid_unavailable()
        try:
            check_properties(dict(packet.properties))
        except RequestRefused as error:
            raise HandshakeRefused(error.code, str(error), PROTOCOL_ERROR) from None
        credentials = Credentials(principal=packet.principal, secret=packet.secret, address=link.address)
        principal = await self._authenticator.authenticate(credentials)
        if principal is None:
            self._log.emit(events.AUTHENTICATION_REFUSED, principal=packet.principal[:64], address=link.address)
            raise HandshakeRefused(
                ErrorCode.UNAUTHENTICATED, "the principal and secret were not accepted", UNAUTHENTICATED
            )
        window = self._policy.window if packet.window is None else min(packet.window, self._policy.max_window)
        record = SessionRecord(
            id=self._clock.session_id(),
            principal=principal,
            properties={**packet.properties, CLIENT_TYPE_PROPERTY: packet.client[:MAX_CLIENT_TYPE]},
            window=window,
            owner=self._me,
        )
        session = self._make(record)
        try:
            await self._persistence.create(session)
        except (GridUnavailable, Fenced):
            self._background.once(self._disown(session.id), "disown")
            raise _grid_unavailable() from None
        self._sessions.add(session)
        session.machine.open(self._clock.monotonic(), generation=session.generation)
        self._welcome(session, link, Outcome.CREATED)
        self._metrics.add(catalogue.SESSIONS_OPENED)
        self._log.emit(events.SESSION_OPENED, session=session.id, principal=principal)
        return session

    # --- Resume -------------------------------------------------------------------------------------------------------

    async def resume(self, packet: Resume, link: Link) -> Session:
        """Go on with a session, on the best rung there is (protocol 4.2, sections 5.4 and 5.5).

        Raises:
            HandshakeRefused: rung 5, with the reason; or the node cannot tell now.
        """
        try:
            return await self._resume(packet, link)
        except HandshakeRefused as refused:
            self._metrics.add(catalogue.RESUMES, label=refused.error.code.value)
            self._log.emit(events.RESUME_REFUSED, reason=refused.error.code.value, address=link.address)
            raise

    async def _resume(self, packet: Resume, link: Link) -> Session:
        try:
            claims = self._signer.verify(packet.token, now=self._clock.wall())
        except TokenRefused as error:
            raise refusal(error.reason) from None
        session = self._sessions.get(claims.session)
        if session is not None:
            async with session.resuming:
                if not session.dropped and await self._resume_held(session, claims, packet, link):
                    return session
        if not self._persistence.replicated:
            raise refusal(ErrorCode.NOT_REPLICATED)
        return await self._resume_from_grid(claims, packet, link)

    async def _resume_held(self, session: Session, claims: TokenClaims, packet: Resume, link: Link) -> bool:
        """Resume a session that this node holds: rung 1, or rung 4 if the buffers do not reach.

        Returns:
            False if it was dropped meanwhile: the grid knows all about it.
        """
        if claims.generation < session.confirmed:
            raise refusal(ErrorCode.TOKEN_SUPERSEDED)
        if packet.attempt <= session.attempt:
            raise refusal(ErrorCode.STALE_ATTEMPT)
        # A token newer than any from here: another node has served the session since, and what is here is out of date,
        # though nobody told this node, and though a grid that was rolled back may take this node for the owner.
        outdated = claims.generation > session.generation
        claimed = await self._claim_held(session, claims, packet)
        if session.dropped:
            return False
        if claimed is None and outdated:
            raise _grid_unavailable()
        if claimed is None:
            # Nobody else can claim it without the grid either; written as soon as the grid is back. The epoch grows as
            # it would have in the grid: there the claim may have been executed and only its answer be lost.
            session.epoch = Epoch(session.epoch + 1)
            session.attempt = packet.attempt
            session.confirmed = claims.generation
            session.generation = TokenGeneration(max(session.generation, claims.generation) + 1)
            session.unsaved = True
            is_ours = True
        else:
            is_ours = not outdated and claimed.previous == self._me and claimed.record.epoch == session.epoch + 1
            session.take_over(claimed.record, saved=self._grid.generation)
        if session.link is not None:
            old = session.link
            self._sessions.close_link(old, SUPERSEDED)
            session.link = None
            self._sessions.flusher.forget(session)
        machine = session.machine
        machine.detach()
        machine.resume()
        now = self._clock.monotonic()
        was_muted = session.moving
        if is_ours and machine.can_reattach(
            received=packet.received, oldest=packet.oldest, generation=claims.generation
        ):
            conflated = machine.conflated
            resent = machine.reattach(received=packet.received, now=now)
            self._welcome(session, link, Outcome.REATTACHED, resent=resent, conflated=conflated)
            self._resumed(session, Outcome.REATTACHED, None, self._me)
            if was_muted:
                self._background.once(self._activate(session), f"activate-{session.id}")
            return True
        lost = machine.lost(packet.received, generation=claims.generation) if is_ours else None
        reason = FailoverReason.GAP if is_ours else FailoverReason.OTHER_NODE
        machine.restart(now, generation=session.generation)
        # The client asks again for all that it has no answer to, what is being worked on here included.
        session.lane.abandon()
        session.lane = self._requests.lane(session)
        session.forget_answers()
        self._welcome(session, link, Outcome.FAILED_OVER, reason=reason, lost=lost, conflated=None)
        self._resumed(session, Outcome.FAILED_OVER, reason, claimed.previous if claimed else self._me)
        # Not waited for: what the client says meanwhile must be heard, and it may lose this connection, too.
        self._background.once(self._activate(session), f"activate-{session.id}")
        return True

    async def _claim_held(self, session: Session, claims: TokenClaims, packet: Resume) -> Claimed | None:
        """Claim a session held here; None if that has to be done without the grid."""
        if not self._persistence.replicated or not self._persistence.available:
            return None
        started = self._clock.monotonic()
        try:
            result = await self._once_verified(
                lambda: self._persistence.claim(session, claims.generation, packet.attempt)
            )
        except LeaseUnverified:
            raise _grid_unavailable() from None
        except GridUnavailable:
            return None
        self._metrics.observe(catalogue.CLAIM_SECONDS, self._clock.monotonic() - started)
        if isinstance(result, ClaimRefused):
            if result.reason in {ErrorCode.SESSION_UNKNOWN, ErrorCode.SESSION_EXPIRED, ErrorCode.SESSION_CLOSED}:
                self._sessions.drop(session, close_code_of(result.reason))
            raise refusal(result.reason)
        return result

    async def _once_verified(self, claim: Callable[[], Awaitable[ClaimResult]]) -> ClaimResult:
        """Claim as soon as the node may.

        A node that was suspended wakes up among resumes that may be long out of date. Which ones are, the grid will
        tell in a moment; to serve them as if it were away would be to let an old attempt win (P3).
        """
        patience = self._clock.monotonic() + VERIFY_PATIENCE
        while True:
            try:
                return await claim()
            except LeaseUnverified:
                if self._clock.monotonic() >= patience:
                    raise
            await asyncio.sleep(VERIFY_POLL)

    async def _resume_from_grid(self, claims: TokenClaims, packet: Resume, link: Link) -> Session:
        """Resume a session that another node held: rung 4."""
        if not self._persistence.available:
            raise _grid_unavailable()
        started = self._clock.monotonic()
        try:
            result = await self._once_verified(
                lambda: self._grid.sessions.claim(
                    claims.session, by=self._me, generation=claims.generation, attempt=packet.attempt
                )
            )
        except GridUnavailable:
            self._background.once(self._disown(claims.session), "disown")
            raise _grid_unavailable() from None
        self._metrics.observe(catalogue.CLAIM_SECONDS, self._clock.monotonic() - started)
        if isinstance(result, ClaimRefused):
            if result.reason in _MAY_CHANGE and self._cluster.is_recovering():
                raise HandshakeRefused(
                    ErrorCode.TRY_LATER,
                    "the grid has just come back and the session may not be restored yet; try again",
                    TRY_LATER,
                    COME_AGAIN,
                )
            raise refusal(result.reason)
        already = self._sessions.get(claims.session)
        if already is not None:
            # Two connections asked at the same time; the later attempt has the session, whoever was served first.
            self._sessions.drop(already, SUPERSEDED)
        session = self._make(result.record)
        self._sessions.add(session)
        session.machine.open(self._clock.monotonic(), generation=session.generation)
        self._welcome(session, link, Outcome.FAILED_OVER, reason=FailoverReason.OTHER_NODE, lost=None, conflated=None)
        self._resumed(session, Outcome.FAILED_OVER, FailoverReason.OTHER_NODE, result.previous)
        if result.previous != self._me and self._cluster.is_alive(result.previous):
            former = Ownership(session.id, result.previous, session.epoch)
            self._background.once(self._tell_former_owner(result.previous, former), "tell-claimed")
        self._background.once(self._activate(session), f"activate-{session.id}")
        return session

    async def _tell_former_owner(self, former: NodeRef, right: Ownership) -> None:
        try:
            await self._grid.nodes.tell_claimed(former, right)
        except GridUnavailable:
            return  # best effort: fencing does not depend on it

    async def _disown(self, session: SessionId) -> None:
        """A create or claim had no answer: should the grid now say that the session is here, start its window (P7).

        Otherwise it would count as connected to this node for ever, and nobody would miss it.
        """
        while True:
            await self._persistence.until_available()
            try:
                record = await self._grid.sessions.find(session)
                if record is not None and record.owner == self._me and self._sessions.get(session) is None:
                    await self._grid.sessions.disconnect(Ownership(session, self._me, record.epoch))
            except (Fenced, SessionGone):
                return
            except GridUnavailable:
                continue
            return

    async def _activate(self, session: Session) -> None:
        """Put the restored selections in force and push the full values (P6)."""
        async with session.selecting:
            prepared = None
            while prepared != (selections := session.selections):
                # Another resume may bring another list meanwhile.
                await self._delivery.prepare(session, selections)
                prepared = selections
            self._delivery.select(session, selections)
            await self._delivery.send_snapshot(session)

    # --- Common -------------------------------------------------------------------------------------------------------

    def _make(self, record: SessionRecord) -> Session:
        session = Session(record, SessionMachine(Role.SERVER, self._policy.session), saved=self._grid.generation)
        session.lane = self._requests.lane(session)
        return session

    def _welcome(
        self,
        session: Session,
        link: Link,
        outcome: Outcome,
        *,
        reason: FailoverReason | None = None,
        resent: int = 0,
        lost: int | None = 0,
        conflated: int | None = 0,
    ) -> None:
        """Attach the session to the connection and greet the client."""
        session.fixed = {
            "$session": session.id,
            "$principal": session.principal,
            "$address": link.address,
            "$node": self._me.node,
            # Diffusion: the start time is not replicated; it is that of the connection to this node.
            "$connected": datetime.fromtimestamp(self._clock.wall(), UTC).isoformat(timespec="milliseconds"),
        }
        session.proved = outcome is Outcome.CREATED
        self._sessions.attach(session, link)
        machine = session.machine
        machine.send_link(
            Welcome(
                session=session.id,
                principal=session.principal,
                node=self._me.node,
                token=self._signer.sign(session.id, session.generation, now=self._clock.wall()),
                outcome=outcome,
                reason=reason,
                received=machine.received if outcome is Outcome.REATTACHED else PacketId(0),
                resent=resent,
                lost=lost,
                conflated=conflated,
                window=session.window,
                ping_interval=self._policy.session.ping_interval,
                ping_timeout=self._policy.session.ping_timeout,
                replicated=self._persistence.replicated,
                limits=self._policy.limits,
                backoff=self._policy.backoff,
                properties=session.all_properties(),
                selections=session.selections.to_wire(),
            )
        )
        self._sessions.flusher.flush(session)

    def _resumed(self, session: Session, outcome: Outcome, reason: FailoverReason | None, previous: NodeRef) -> None:
        self._metrics.add(catalogue.RESUMES, label=outcome.value)
        self._log.emit(
            events.SESSION_RESUMED,
            session=session.id,
            outcome=outcome.value,
            reason=reason.value if reason else None,
            previous=str(previous),
        )


def _grid_unavailable() -> HandshakeRefused:
    return HandshakeRefused(ErrorCode.GRID_UNAVAILABLE, "the grid is away; try again", GRID_UNAVAILABLE, COME_AGAIN)
