"""Who may have a session: credentials at hello, with a resume, and refreshed on an open connection (protocol 5.9)."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Final

from gateway.app.admission.refusals import (
    RETRY_DELAY,
    HandshakeRefused,
    authentication_unavailable,
    refusal,
    verification_refused,
)
from gateway.app.context import Context
from gateway.app.security.enforcement import Enforcement
from gateway.app.security.revocations import Revocations
from gateway.app.security.verifications import Verifications
from gateway.app.session.session import Session
from gateway.catalogue import log_events as events
from gateway.catalogue import metrics as catalogue
from gateway.core.pacing.rates import TokenBucket
from gateway.core.policy.system_roles import is_of_system, without_system_roles
from gateway.core.wire.codes import FORBIDDEN, UNAUTHENTICATED, ErrorCode
from gateway.core.wire.errors import RequestRefused
from gateway.core.wire.packets import Authenticate, Reply
from gateway.ports import (
    AuthenticationUnavailable,
    Authenticator,
    Credentials,
    CredentialsRefused,
    EntryForbidden,
    Identity,
    VerificationRefused,
)

LONGEST_LOGGED: Final = 64
"""Characters of a refused principal that are logged."""

REFRESHES_AT_ONCE: Final = 5
"""Fresh credentials that a session may show in a row: clients show some once in minutes, and come again a few times,
ever more slowly, if that fails."""

REFRESHES_PER_SECOND: Final = 0.2
"""How fast it may go on. Each may cost the node a hash, or somebody outside a question; and no session can have two
under way, as its requests are executed one after the other."""


class Authentication:
    """Asks the authenticator, and tells clients no more of its answer than they need.

    Args:
        context: of the node.
        authenticator: decides who a client is.
        verifications: told who failed.
        revocations: what is accepted no more, whoever vouches for it.
        enforcement: ends sessions whose fresh credentials are.
    """

    def __init__(
        self,
        context: Context,
        authenticator: Authenticator,
        verifications: Verifications,
        revocations: Revocations,
        enforcement: Enforcement,
    ) -> None:
        self._clock = context.clock
        self._metrics = context.metrics
        self._log = context.log
        self._authenticator = authenticator
        self._verifications = verifications
        self._revocations = revocations
        self._enforcement = enforcement

    async def admit(self, credentials: Credentials, administrators: Authenticator | None = None) -> Identity:
        """Tell who shows these credentials with a hello or a resume.

        It may take seconds, so that the caller must not hold anything meanwhile that others need.

        Args:
            credentials: what was shown.
            administrators: knows who may come in at the admin port; None for the client port.

        Raises:
            HandshakeRefused: nobody who is admitted, or it cannot be told now.
        """
        try:
            identity = await self._ask(administrators or self._authenticator, credentials)
        except AuthenticationUnavailable:
            raise authentication_unavailable() from None
        except VerificationRefused as why:
            raise verification_refused(why) from None
        except EntryForbidden as why:
            raise HandshakeRefused(ErrorCode.FORBIDDEN, str(why), FORBIDDEN) from None
        if identity is None:
            # Why, is the operator's matter: whoever tries names and secrets shall learn nothing.
            raise HandshakeRefused(
                ErrorCode.UNAUTHENTICATED, "the principal and secret were not accepted", UNAUTHENTICATED
            )
        self.refuse_revoked(identity, credentials.address)
        return identity if administrators is not None else _from_outside(identity)

    def refuse_revoked(self, identity: Identity, address: str) -> None:
        """See to it that nobody comes in who is revoked.

        Raises:
            HandshakeRefused: the principal or the credentials are.
        """
        if self._revocations.is_revoked(principal=identity.principal, credential=identity.credential):
            self._log.emit(events.REVOKED_REFUSED, principal=identity.principal, address=address)
            raise refusal(ErrorCode.REVOKED)

    def refuse_former(self, identity: Identity, address: str) -> None:
        """See to it that nobody goes on who was admitted a while ago and is revoked now, or not there any more.

        Raises:
            HandshakeRefused: so it is.
        """
        self.refuse_revoked(identity, address)
        if not self._enforcement.knows(identity.principal):
            raise refusal(ErrorCode.REVOKED)

    async def recognise(self, session: Session, request: Authenticate) -> Identity | Reply:
        """Tell who shows fresh credentials on the connection of a session.

        Returns:
            Who it is, the session's principal; or the reply that asks the client to come again with its request.

        Raises:
            RequestRefused: they are not accepted, or somebody else's. Those from before stay in force.
        """
        if is_of_system(session.roles):
            raise RequestRefused("a console shows its credentials when it connects", code=ErrorCode.FORBIDDEN)
        address = "" if session.connection is None else session.connection.address
        connection = session.connection
        shown = Credentials(
            principal=request.principal,
            secret=request.secret,
            address=address,
            abandoned=lambda: session.dropped or session.connection is not connection,
        )
        if wait := self._refresh(session):
            self._metrics.add(catalogue.VERIFICATIONS_REFUSED, label="too_often")
            return _cannot_tell(request, "this session shows credentials too often", wait)
        try:
            identity = await self._ask(self._authenticator, shown)
        except AuthenticationUnavailable:
            return _cannot_tell(request, "the credentials cannot be verified now", RETRY_DELAY)
        except VerificationRefused as why:
            return _cannot_tell(request, str(why), why.retry_after)
        except EntryForbidden as why:
            raise RequestRefused(str(why), code=ErrorCode.FORBIDDEN) from None
        if identity is None:
            raise RequestRefused(
                "the credentials were not accepted; those from before stay in force", code=ErrorCode.UNAUTHENTICATED
            )
        if identity.principal != session.principal:
            raise RequestRefused(
                "the credentials are those of another principal than the session's", code=ErrorCode.UNAUTHENTICATED
            )
        if self._revocations.is_revoked(principal=identity.principal, credential=identity.credential):
            self._log.emit(events.REVOKED_REFUSED, principal=identity.principal, address=address)
            raise RequestRefused("the credentials are revoked", code=ErrorCode.REVOKED)
        return _from_outside(identity)

    def enforce(self, session: Session) -> None:
        """Close a session if its fresh credentials were revoked while they were being written."""
        if self._revocations.is_revoked(principal=session.principal, credential=session.credential):
            self._enforcement.end_held(session)

    def _refresh(self, session: Session) -> float:
        """Count that a session shows credentials; returns the seconds to wait if it does so too often."""
        if session.refreshes is None:
            session.refreshes = TokenBucket(REFRESHES_PER_SECOND, REFRESHES_AT_ONCE)
        return session.refreshes.take(self._clock.monotonic())

    async def _ask(self, authenticator: Authenticator, credentials: Credentials) -> Identity | None:
        started = self._clock.monotonic()
        refused = "no authenticator accepts them"
        try:
            identity = await authenticator.authenticate(credentials)
        except CredentialsRefused as error:
            identity, refused = None, str(error)
        except AuthenticationUnavailable as error:
            self._log.emit(events.AUTHENTICATION_UNAVAILABLE, error=str(error))
            self._told("unavailable", started)
            raise
        except EntryForbidden as error:
            self._refused(credentials, str(error), started)
            raise
        if identity is None:
            # By the whole chain, as one authenticator's stranger is the next one's user.
            if authenticator is self._authenticator:
                self._verifications.failed(credentials)
            self._refused(credentials, refused, started)
            await self._delay_refusal(authenticator, started)
        else:
            self._told("accepted", started)
        return identity

    def _refused(self, credentials: Credentials, reason: str, started: float) -> None:
        self._told("refused", started)
        self._log.emit(
            events.AUTHENTICATION_REFUSED,
            principal=credentials.principal[:LONGEST_LOGGED],
            address=credentials.address,
            reason=reason,
        )

    async def _delay_refusal(self, authenticator: Authenticator, started: float) -> None:
        """Wait with a refusal, where time could tell whether a principal exists."""
        if authenticator is self._authenticator:
            wait = self._verifications.until_refusal(self._clock.monotonic() - started)
            if wait > 0:
                await asyncio.sleep(wait)

    def _told(self, outcome: str, started: float) -> None:
        self._metrics.add(catalogue.AUTHENTICATIONS, label=outcome)
        self._metrics.observe(catalogue.AUTHENTICATION_SECONDS, self._clock.monotonic() - started)


def _cannot_tell(request: Authenticate, why: str, retry_after: float) -> Reply:
    """Ask a client to come again with its request (protocol 5.9.3)."""
    return Reply(
        request=request.request,
        error=ErrorCode.AUTHENTICATION_UNAVAILABLE,
        message=f"{why}; the credentials from before stay in force",
        retry_after=retry_after,
    )


def _from_outside(identity: Identity) -> Identity:
    """Take out the roles that the gateway gives itself, which no authenticator of clients may give."""
    return replace(identity, roles=without_system_roles(identity.roles))
