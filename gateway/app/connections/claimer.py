"""Claims sessions: how a node gets the right to serve one that comes back (protocol 10, P3)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, NamedTuple, TypeVar

from gateway.app.admission.refusals import (
    HandshakeRefused,
    grid_not_adopted,
    grid_recovering,
    grid_unavailable,
    refusal,
    window_in_doubt,
)
from gateway.app.connections.session_factory import SessionFactory
from gateway.app.context import Context
from gateway.app.journal.session_events import ConnectionReplaced
from gateway.app.registry.fenced_store import FencedStore
from gateway.app.registry.sessions import Sessions
from gateway.app.runtime.batched import Batched
from gateway.app.security.authorisation import Authorisation
from gateway.app.security.enforcement import Enforcement
from gateway.app.security.revocations import Revocations
from gateway.app.session.session import Session, StoredUnder
from gateway.catalogue import metrics as catalogue
from gateway.core.policy.system_roles import is_of_system
from gateway.core.types import Attempt, GridGeneration, NodeRef, SessionId
from gateway.core.wire.codes import SUPERSEDED, ErrorCode
from gateway.core.wire.packets import Resume
from gateway.ports import (
    Claimed,
    ClaimRefused,
    Connection,
    GridUnavailable,
    Identity,
    LeaseUnverified,
    Operation,
    Ownership,
    Reclaimed,
    SessionChanges,
    TokenClaims,
)

T = TypeVar("T")

TELL_DELAY: Final = 0.05
"""Seconds in which claims from the same node gather before it is told of them: a half-open connection there ends that
much later."""

VERIFY_PATIENCE: Final = 2.0
"""Seconds a resume waits until the node has verified its lease: a hundred times what that takes, and less than a client
waits for a welcome."""

VERIFY_POLL: Final = 0.02
"""Seconds between two looks whether it has: some round trips to the grid."""

_MAY_CHANGE: Final = frozenset({ErrorCode.SESSION_UNKNOWN, ErrorCode.SESSION_EXPIRED})
"""Refusals that mean nothing yet in a grid that has just lost writes, as the session's node may restore it any moment,
or that comes before the one in which the session lives."""


class ResumeAttempt(NamedTuple):
    """A client that asks for its session, when it has shown all that it has to show.

    As a frozen dataclass, this and its like would take two to four times as long to make: 1 % of a resume (ADR 0059).

    Attributes:
        token: what its token says.
        packet: what it says itself.
        connection: where it says it.
        identity: whose fresh credentials it has shown with it; None if it showed none.
        heard: when it said it, in seconds of the monotonic clock; it may have waited for its turn since.
        at_admin_port: whether it came to the admin port, the only one that serves consoles.
        leave: gives up its place among those who ask the grid, which is not needed once the session is claimed.
    """

    token: TokenClaims
    packet: Resume
    connection: Connection
    identity: Identity | None
    heard: float
    at_admin_port: bool
    leave: Callable[[], None]


class ClaimedSession(NamedTuple):
    """A session that nobody but this node may serve from now on, and all that the choice of the rung depends on.

    Attributes:
        attempt: for which it was claimed.
        session: as the grid holds it now. If it was held here, its machine waits to go on (RESUMING or GAP); else it is
            new, and nobody else knows of it yet.
        previous: the node that owned it before.
        before: the node that owned it before that one; the same if there was no other.
        was_held: whether it was held here already, with its buffers.
        is_uninterrupted: whether, moreover, nobody else has served it since this node did.
        withdrawn: selectors that it may not select any more; to be declared.
    """

    attempt: ResumeAttempt
    session: Session
    previous: NodeRef
    before: NodeRef
    was_held: bool
    is_uninterrupted: bool
    withdrawn: tuple[str, ...]


def check_port(roles: frozenset[str], *, at_admin_port: bool) -> None:
    """See to it that consoles are served at the admin port, and nobody else is.

    A console's token is worth nothing at the client port, which more people reach. Nor are theirs at the admin port:
    neither the limits nor the line for those who come back would hold for them.

    Args:
        roles: of the session.
        at_admin_port: where its client has come.

    Raises:
        HandshakeRefused: at the wrong one, as if there were no such session.
    """
    if at_admin_port != is_of_system(roles):
        raise refusal(ErrorCode.SESSION_UNKNOWN)


class SessionClaimer:
    """Claims sessions, and ends what has to end with it.

    Args:
        context: of the node.
        store: claims sessions held here.
        sessions: the sessions held here.
        session_factory: makes those that were not.
        authorisation: what they may do.
        revocations: whose are refused.
        enforcement: ends these.
        is_recovering: whether the grid has just lost writes, so that a session may be unknown to it and yet exist.
        is_in_doubt: tells of a session whose window is over, as the grid knows it, whether that may be out of date.
    """

    def __init__(
        self,
        context: Context,
        *,
        store: FencedStore,
        sessions: Sessions,
        session_factory: SessionFactory,
        authorisation: Authorisation,
        revocations: Revocations,
        enforcement: Enforcement,
        is_recovering: Callable[[], bool],
        is_in_doubt: Callable[[SessionId], Awaitable[bool]],
    ) -> None:
        self._me = context.me
        self._parameters = context.parameters
        self._clock = context.clock
        self._grid = context.grid
        self._background = context.background
        self._metrics = context.metrics
        self._tracer = context.tracer
        self._announce = context.announce
        self._store = store
        self._sessions = sessions
        self._session_factory = session_factory
        self._authorisation = authorisation
        self._revocations = revocations
        self._enforcement = enforcement
        self._is_recovering = is_recovering
        self._is_in_doubt = is_in_doubt
        self._ahead: tuple[GridGeneration, float] | None = None
        """The generation of the grid that was adopted when somebody first had seen a later one, and when that was."""
        self._claimed: Batched[Ownership, None] = Batched(
            context.background, "tell-claimed", delay=TELL_DELAY, work=self._notify_former_owners
        )

    # --- Sessions held here -------------------------------------------------------------------------------------------

    async def claim_held(self, session: Session, attempt: ResumeAttempt) -> ClaimedSession | None:
        """Claim a session that this node holds, with the grid or, while that is unreachable, without it.

        Args:
            session: which one; the caller holds its ``resuming`` until the session is recovered.
            attempt: for whom.

        Returns:
            The session, without its former connection; None if it was dropped meanwhile: the grid knows all about it.

        Raises:
            HandshakeRefused: another node may serve the session, or nobody any more.
        """
        token = attempt.token
        self.check_held(session, token, attempt.packet)
        # A token newer than any from here: another node has served the session since, and what is here is out of date,
        # though nobody told this node, and though a grid that was rolled back may take this node for the owner.
        is_outdated = token.token_generation > session.token_generation
        is_asked = self._store.replicated and self._store.available
        won = await self._claim_held(session, attempt) if is_asked else None
        if session.dropped:
            return None
        if won is not None:
            claimed, stored_under = won
            before = claimed.before
            if isinstance(claimed, Reclaimed):
                previous, is_uninterrupted = session.owner, not is_outdated
                session.go_on(claimed, token.token_generation, attempt.packet.attempt, stored_under=stored_under)
            else:
                previous, record = claimed.previous, claimed.record
                is_uninterrupted = not is_outdated and previous == session.owner and record.epoch == session.epoch + 1
                session.take_over(record, stored_under=stored_under)
        else:
            try:
                self._claim_alone(session, attempt, is_outdated=is_outdated)
            except HandshakeRefused:
                if is_asked:
                    self._disown_copy(session)
                raise
            previous, before, is_uninterrupted = self._me, self._me, True
        # Another node may have served it since with other credentials, or it comes with fresh ones.
        if self._revocations.is_revoked(credential=session.credential):
            self._enforcement.end_held(session)
            raise refusal(ErrorCode.REVOKED)
        withdrawn = self._authorisation.enforce(session)
        self._supersede(session)
        was_held = True  # named, as all are given by position: by keyword it takes twice as long (ADR 0059)
        return ClaimedSession(attempt, session, previous, before, was_held, is_uninterrupted, withdrawn)

    def check_held(self, session: Session, token: TokenClaims, packet: Resume) -> None:
        """Refuse what need not be asked of the grid.

        Raises:
            HandshakeRefused: with the reason.
        """
        if token.token_generation < session.confirmed:
            raise refusal(ErrorCode.TOKEN_SUPERSEDED)
        if packet.attempt <= session.attempt:
            raise refusal(ErrorCode.STALE_ATTEMPT)
        if self._revocations.refuses(session):
            # Else it would be held until its window ends: nobody else looks at it again.
            self._enforcement.end_held(session)
            raise refusal(ErrorCode.REVOKED)

    async def _claim_held(
        self, session: Session, attempt: ResumeAttempt
    ) -> tuple[Claimed | Reclaimed, StoredUnder] | None:
        """Ask the grid for a session held here; None if there was no answer, and it has to be done without the grid."""
        started = self._clock.monotonic()
        try:
            result, stored_under = await self._once_verified(
                lambda: self._store.claim_held(
                    session,
                    attempt.token.token_generation,
                    attempt.packet.attempt,
                    now=self._clock.wall(),
                    identity=attempt.identity,
                )
            )
        except LeaseUnverified:
            raise grid_unavailable() from None
        except GridUnavailable:
            return None
        self._metrics.observe(catalogue.CLAIM_SECONDS, self._clock.monotonic() - started)
        if isinstance(result, ClaimRefused):
            raise await self._refused(result.reason, attempt.token)
        if isinstance(result, Claimed):
            self._notify_former_owner_of(result)
        return result, stored_under

    def _claim_alone(self, session: Session, attempt: ResumeAttempt, *, is_outdated: bool) -> None:
        """Do here what a claim does, where it has to be done without the grid.

        Nobody else can claim the session without the grid either; it is written as soon as the grid is back.

        Args:
            session: which.
            attempt: for whom.
            is_outdated: whether another node has served it since, so that nothing can be done with what is here.

        Raises:
            HandshakeRefused: it is out of date; or its credentials have ended and there are no fresh ones, or not the
                principal's.
        """
        if is_outdated:
            raise grid_unavailable()
        identity = attempt.identity
        if identity is None:
            expires = session.credential_expires
            if expires is not None and expires <= self._clock.wall():
                raise refusal(ErrorCode.CREDENTIALS_EXPIRED)
        elif identity.principal != session.principal:
            raise refusal(ErrorCode.UNAUTHENTICATED)
        else:
            session.show(identity)
        session.go_on_alone(attempt.token.token_generation, attempt.packet.attempt)

    def _supersede(self, session: Session) -> None:
        """Take a session off the connection that it may have still, and have its machine wait for another one."""
        if session.connection is not None:
            old = session.connection
            self._announce(ConnectionReplaced(session, SUPERSEDED.code))
            self._sessions.close_connection(old, SUPERSEDED)
            session.connection = None
            self._sessions.flusher.forget(session)
        session.machine.detach()
        session.machine.resume()

    # --- Sessions that are in the grid alone --------------------------------------------------------------------------

    async def claim_stored(self, attempt: ResumeAttempt) -> ClaimedSession:
        """Claim a session that this node does not hold.

        Raises:
            HandshakeRefused: the session cannot be had, or the grid cannot tell now.
        """
        if not self._store.replicated:
            raise refusal(ErrorCode.NOT_REPLICATED)
        claimed, stored_under = await self._claim_stored(attempt)
        record = claimed.record
        if self._revocations.refuses(record):
            # Nobody else ends it any more: it is this node's now.
            self._enforcement.end_claimed(Ownership(record.id, self._me, record.epoch))
            raise refusal(ErrorCode.REVOKED)
        try:
            check_port(record.roles, at_admin_port=attempt.at_admin_port)
        except HandshakeRefused:
            self.disown(record.id)
            raise
        already = self._sessions.get(record.id)
        if already is not None:
            # Two connections asked at the same time; the later attempt has the session, whoever was served first.
            self._sessions.drop(already, SUPERSEDED)
        session = self._session_factory.make(record, stored_under)
        return ClaimedSession(
            attempt=attempt,
            session=session,
            previous=claimed.previous,
            before=claimed.before,
            was_held=False,
            is_uninterrupted=False,
            withdrawn=self._authorisation.enforce(session),
        )

    async def check_stored(self, token: TokenClaims, attempt: Attempt) -> None:
        """Look whether a session that this node does not hold could be claimed, before something slow is done for that.

        Raises:
            HandshakeRefused: it could not, or the grid cannot tell now.
        """
        if not self._store.available:
            raise grid_unavailable()
        try:
            reason = await self._grid.sessions.why_not_claimable(
                token.session, by=self._me, token_generation=token.token_generation, attempt=attempt
            )
        except GridUnavailable:
            raise grid_unavailable() from None
        if reason is not None:
            raise await self._refused(reason, token)

    async def _claim_stored(self, attempt: ResumeAttempt) -> tuple[Claimed, StoredUnder]:
        if not self._store.available:
            raise grid_unavailable()
        token = attempt.token
        started = self._clock.monotonic()
        try:
            result, stored_under = await self._once_verified(
                lambda: self._store.claim(
                    token.session,
                    token.token_generation,
                    attempt.packet.attempt,
                    now=self._clock.wall(),
                    identity=attempt.identity,
                )
            )
        except GridUnavailable:
            self.disown(token.session)
            raise grid_unavailable() from None
        self._metrics.observe(catalogue.CLAIM_SECONDS, self._clock.monotonic() - started)
        if isinstance(result, ClaimRefused):
            raise await self._refused(result.reason, token)
        self._notify_former_owner_of(result)
        return result, stored_under

    async def _refused(self, reason: ErrorCode, token: TokenClaims) -> HandshakeRefused:
        if reason in _MAY_CHANGE and self._is_recovering():
            return grid_recovering()
        if reason in _MAY_CHANGE and self._may_be_behind(token):
            return grid_not_adopted()
        try:
            if reason is ErrorCode.SESSION_EXPIRED and await self._is_in_doubt(token.session):
                return window_in_doubt()
        except GridUnavailable:
            return grid_unavailable()
        return refusal(reason)

    def _may_be_behind(self, token: TokenClaims) -> bool:
        """Tell whether this node may have yet to adopt the generation of the grid in which a session lives (P7).

        If it has not done so within the grace, the token is of a grid that is gone, or of another one.
        """
        adopted = self._grid.generation
        if token.seen_after(adopted) is None:
            return False
        now = self._clock.monotonic()
        if self._ahead is None or self._ahead[0] != adopted:
            self._ahead = (adopted, now)
        return now - self._ahead[1] < self._parameters.restore_grace

    # --- Both ---------------------------------------------------------------------------------------------------------

    async def _once_verified(self, claim: Callable[[], Awaitable[T]]) -> tuple[T, StoredUnder]:
        """Claim as soon as the node may.

        A node that was suspended wakes up among resumes that may be long out of date. Which ones are, the grid will
        tell in a moment; to serve them as if it were unreachable would be to let an old attempt win (P3).
        """
        patience = self._clock.monotonic() + VERIFY_PATIENCE
        with self._tracer.span(Operation.CLAIM):
            while True:
                stored_under = self._store.writes_under
                try:
                    return await claim(), stored_under
                except LeaseUnverified:
                    if self._clock.monotonic() >= patience:
                        raise
                await asyncio.sleep(VERIFY_POLL)

    def _notify_former_owner_of(self, claimed: Claimed) -> None:
        """Have the node that had a session told that it is claimed.

        Whether that node lives is asked of the grid when it is told, not of what is known here: that is as old as the
        last renewal of the lease, and a node that has just started, or come back, would be taken for none.
        """
        if claimed.previous != self._me:
            self._claimed.put(Ownership(claimed.record.id, claimed.previous, claimed.record.epoch), None)

    async def _notify_former_owners(self, claimed: dict[Ownership, None]) -> None:
        by_owner: dict[NodeRef, list[Ownership]] = {}
        for ownership in claimed:
            by_owner.setdefault(ownership.owner, []).append(ownership)
        for former, ownerships in by_owner.items():
            # It may have been told without an answer; to hear it twice does no harm.
            await self._store.until_known(partial(self._grid.nodes.tell_claimed, former, *ownerships))

    def disown(self, session: SessionId) -> None:
        """See to it that a session does not stay here whose creation or claim had no answer.

        Should the grid say, once it can be asked, that the session is here, its window is started (P7). Otherwise it
        would count as connected to this node for ever, and nobody would miss it.
        """
        self._background.once(self._disown(session), "disown")

    def _disown_copy(self, session: Session) -> None:
        """See to it that a session does not stay here that is refused after a claim which may have been executed.

        If it was, what is held here is older than what the grid says is here: nobody would write that its client has
        not come. So the copy is dropped, once the grid has refused it, and the session is disowned. If the grid has
        lost the claim, and perhaps all that it knew of the session, the copy stays: there may be no other.
        """
        self._background.once(self._drop_and_disown(session), "disown")

    async def _drop_and_disown(self, session: Session) -> None:
        await self._store.until_available()
        write = partial(self._store.change, session, SessionChanges())
        await self._store.until_taken(lambda: not session.dropped, write)
        await self._disown(session.id)

    async def _disown(self, session: SessionId) -> None:
        await self._store.until_available()
        is_held = partial(self._is_held, session)
        await self._store.until_known(partial(self._store.release, session, is_held=is_held))

    def _is_held(self, session: SessionId) -> bool:
        return self._sessions.get(session) is not None
