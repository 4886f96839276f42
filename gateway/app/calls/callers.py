"""Who calls: by the credentials of the request, judged and charged as a client with a session is."""

from __future__ import annotations

import binascii
from http import HTTPStatus
from math import ceil
from typing import Final

from gateway.app.admission.limits import OwnBuckets
from gateway.app.admission.refusals import HandshakeRefused
from gateway.app.context import Context
from gateway.app.security.authentication import Authentication
from gateway.app.security.authorisation import Authorisation
from gateway.app.security.revocations import Revocations
from gateway.app.session.meter import Meter
from gateway.catalogue import call_metrics as catalogue
from gateway.core.pacing.accounts import Account
from gateway.core.policy.permissions import Permissions
from gateway.core.topics.remembered import PLACE_BYTES, Remembered
from gateway.core.wire.codes import ErrorCode
from gateway.ports import Call, CallRefused, Credentials, Identity

CALL_PACKETS: Final = 4
"""Packets that a call counts as, besides one for each topic: to read a request and to tell who it is takes the node
about as long as some packets of a session."""

REMEMBERED_BYTES: Final = 4 * 1024**2
"""Bytes of what principals that call have of their own: some 10,000 of them."""

OWN_BYTES: Final = 300
"""Bytes of what one has, besides its name."""

CHALLENGE: Final = {"WWW-Authenticate": 'Bearer realm="gateway", Basic realm="gateway", charset="UTF-8"'}
"""How to show credentials (RFC 9110 section 11.6.1)."""

_STATUS: Final = {
    ErrorCode.UNAUTHENTICATED: HTTPStatus.UNAUTHORIZED,
    ErrorCode.REVOKED: HTTPStatus.FORBIDDEN,
    ErrorCode.RATE_LIMITED: HTTPStatus.TOO_MANY_REQUESTS,
    ErrorCode.TOO_MANY_SESSIONS: HTTPStatus.TOO_MANY_REQUESTS,
}
"""Of refusals that are not the node's trouble; all others are 503."""


class Caller:
    """Who calls; a ``Subject``.

    Args:
        identity: whom its credentials have proved it to be.
        address: where the call comes from.
        permissions: what it may do, as it was last looked at.
        meter: what its call is charged to.
        account: what its principal uses of this node.
    """

    __slots__ = ("_account", "address", "identity", "meter", "permissions", "rests_until")

    def __init__(
        self,
        identity: Identity,
        address: str,
        permissions: Permissions,
        meter: Meter | None,
        account: Account | None,
    ) -> None:
        self.identity = identity
        self.address = address
        self._account = account
        self.permissions = permissions
        self.meter = meter
        self.rests_until = 0.0

    @property
    def principal(self) -> str:
        """See ``Subject``."""
        return self.identity.principal

    @property
    def account(self) -> Account | None:
        """See ``Subject``."""
        return self._account


class Callers:
    """Tells who calls.

    Args:
        context: of the node.
        authentication: says who they are, by their credentials.
        authorisation: what they may do.
        revocations: who is refused, whatever they show.
    """

    def __init__(
        self,
        context: Context,
        authentication: Authentication,
        authorisation: Authorisation,
        revocations: Revocations,
    ) -> None:
        self._limits = context.limits
        self._clock = context.clock
        self._metrics = context.metrics
        self._authentication = authentication
        self._authorisation = authorisation
        self._revocations = revocations
        # As if all calls of a principal came over one connection: a new connection for each call has no limit anew.
        self._own: Remembered[str, OwnBuckets] = Remembered(
            REMEMBERED_BYTES, lambda principal, _: len(principal) + OWN_BYTES + PLACE_BYTES
        )

    async def recognise(self, call: Call) -> Caller:
        """Tell who calls.

        Raises:
            CallRefused: nobody who is admitted, or nobody can tell now; or the principal calls too often.
        """
        if not self._revocations.loaded:
            raise unavailable("the grid is unreachable, and who may call is not known; try again")
        principal, secret = credentials_of(call.headers.get("authorization", ""))
        shown = Credentials(principal=principal, secret=secret, address=call.address, abandoned=call.abandoned)
        try:
            identity = await self._authentication.admit(shown)
        except HandshakeRefused as refused:
            raise turned_away(refused) from None
        own = self._own.get(identity.principal)
        if own is None:
            own = self._own.put(identity.principal, self._limits.buckets())
        meter, account = self._limits.call_meter(identity.principal, call.address, own)
        caller = Caller(identity, call.address, self._permissions_of(identity), meter, account)
        self.charge(caller, CALL_PACKETS)
        return caller

    def review(self, caller: Caller) -> None:
        """Judge a caller again, who has waited: what counts is who it is and what it may do at this moment.

        Raises:
            CallRefused: it is revoked or not there any more, or its credentials have ended.
        """
        identity = caller.identity
        try:
            self._authentication.refuse_former(identity, caller.address)
        except HandshakeRefused as refused:
            raise turned_away(refused) from None
        if identity.expires is not None and identity.expires <= self._clock.wall():
            raise CallRefused(
                HTTPStatus.UNAUTHORIZED,
                ErrorCode.CREDENTIALS_EXPIRED,
                "the credentials ended while the call was under way; call again with fresh ones",
                headers=CHALLENGE,
            )
        caller.permissions = self._permissions_of(identity)

    def _permissions_of(self, identity: Identity) -> Permissions:
        return self._authorisation.permissions_for(identity.principal, identity.roles, identity.properties)

    def charge(self, caller: Caller, packets: int, *, read: int = 0, published: int = 0) -> None:
        """Charge a caller, unless it owes something from before.

        Args:
            caller: who.
            packets: as so many it counts.
            read: bytes that were read.
            published: bytes of values in them.

        Raises:
            CallRefused: it calls faster than it may; nothing was charged.
        """
        meter = caller.meter
        if meter is None:
            return
        now = self._clock.monotonic()
        if wait := meter.owed(now):
            limit = meter.exceeded(now)
            self._limits.exceeded(limit, caller.principal)
            self._metrics.add(catalogue.CALLS, label="limited")
            raise CallRefused(
                HTTPStatus.TOO_MANY_REQUESTS,
                ErrorCode.RATE_LIMITED,
                f"{limit}: you call faster than you may; try again in {ceil(wait)} s",
                retry_after=wait,
            )
        meter.charge_call(now, packets, read, published)


def unavailable(message: str, code: ErrorCode = ErrorCode.GRID_UNAVAILABLE) -> CallRefused:
    """Say that something passes, and that it makes sense to try again."""
    return CallRefused(HTTPStatus.SERVICE_UNAVAILABLE, code, message, retry_after=1.0)


def credentials_of(header: str) -> tuple[str, str | None]:
    """Read an Authorization header: ``Bearer <token>``, or ``Basic`` with principal and secret.

    Returns:
        The principal, empty if the proof shall tell; and the proof, None if there is none.

    Raises:
        CallRefused: it is neither.
    """
    scheme, _, value = header.strip().partition(" ")
    value = value.strip()
    if not header:
        return "", None
    if scheme.lower() == "bearer" and value:
        return "", value
    if scheme.lower() == "basic":
        try:
            principal, colon, secret = binascii.a2b_base64(value, strict_mode=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError, ValueError):
            principal = colon = secret = ""
        if colon:
            return principal, secret or None
    raise CallRefused(
        HTTPStatus.UNAUTHORIZED,
        ErrorCode.UNAUTHENTICATED,
        "Authorization must be 'Bearer TOKEN', or 'Basic' with PRINCIPAL:SECRET in base64",
        headers=CHALLENGE,
    )


def turned_away(refused: HandshakeRefused) -> CallRefused:
    """Say by HTTP why somebody is not let in."""
    error = refused.error
    status = _STATUS.get(error.code, HTTPStatus.SERVICE_UNAVAILABLE)
    return CallRefused(
        status,
        error.code,
        str(refused),
        retry_after=error.retry_after,
        headers=CHALLENGE if status is HTTPStatus.UNAUTHORIZED else None,
    )
