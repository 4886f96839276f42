"""Refused handshakes: what the client is told, and with which code the connection is closed (protocol 4.2)."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from gateway.core.types import NodeId
from gateway.core.wire.codes import (
    AUTHENTICATION_UNAVAILABLE,
    GRID_UNAVAILABLE,
    NOT_MASTER,
    REFUSED,
    REVOKED,
    STALE_ATTEMPT,
    TRY_LATER,
    UNAUTHENTICATED,
    CloseCode,
    ErrorCode,
)
from gateway.core.wire.errors import GatewayError
from gateway.core.wire.packets import Error
from gateway.ports import VerificationRefused

RETRY_DELAY: Final = 1.0
"""Seconds after which a client should try again when the node cannot serve it for reasons that pass."""


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


class ClientGone(GatewayError):
    """The client has closed the connection: nobody has to be told anything, and nothing is to be done for it."""


_REFUSALS: Final[dict[ErrorCode, tuple[str, CloseCode]]] = {
    ErrorCode.TOKEN_INVALID: ("the token is not one of this cluster's", REFUSED),
    ErrorCode.TOKEN_EXPIRED: ("the token's life is over; open a new session", REFUSED),
    ErrorCode.TOKEN_KEY_RETIRED: ("the token was signed with a key that is no longer accepted", REFUSED),
    ErrorCode.TOKEN_SUPERSEDED: ("a newer token of the session has been used already", REFUSED),
    ErrorCode.STALE_ATTEMPT: ("a later attempt to resume the session has been served already", STALE_ATTEMPT),
    ErrorCode.SESSION_UNKNOWN: ("there is no such session; open a new one", REFUSED),
    ErrorCode.SESSION_EXPIRED: ("the session's window is over; open a new one", REFUSED),
    ErrorCode.SESSION_CLOSED: ("the session was closed; open a new one", REFUSED),
    ErrorCode.CREDENTIALS_EXPIRED: ("the session's credentials ended; show fresh ones with the resume", REFUSED),
    ErrorCode.UNAUTHENTICATED: ("the credentials are those of another principal than the session's", UNAUTHENTICATED),
    ErrorCode.REVOKED: ("the session, its principal or the credential it was opened with was revoked", REVOKED),
    ErrorCode.NOT_REPLICATED: ("sessions are not replicated and this node does not hold this one", REFUSED),
}


def refusal(reason: ErrorCode) -> HandshakeRefused:
    """Say why rung 5 was reached."""
    message, close = _REFUSALS[reason]
    return HandshakeRefused(reason, message, close)


def grid_unavailable() -> HandshakeRefused:
    """Say that the grid is needed and unreachable."""
    return HandshakeRefused(
        ErrorCode.GRID_UNAVAILABLE, "the grid is unreachable; try again", GRID_UNAVAILABLE, RETRY_DELAY
    )


def authentication_unavailable() -> HandshakeRefused:
    """Say that somebody who has to be asked does not answer."""
    return HandshakeRefused(
        ErrorCode.AUTHENTICATION_UNAVAILABLE,
        "the credentials cannot be verified now; try again",
        AUTHENTICATION_UNAVAILABLE,
        RETRY_DELAY,
    )


def verification_refused(why: VerificationRefused) -> HandshakeRefused:
    """Say that too many show credentials at the moment."""
    return HandshakeRefused(ErrorCode.TRY_LATER, str(why), TRY_LATER, why.retry_after)


def grid_not_adopted() -> HandshakeRefused:
    """Say that the session may live in a generation of the grid that this node has not adopted yet."""
    return HandshakeRefused(
        ErrorCode.TRY_LATER,
        "the session comes from a later state of the grid than this node knows yet; try again",
        TRY_LATER,
        RETRY_DELAY,
    )


def overtaken() -> HandshakeRefused:
    """Say that the session was taken away from this node, or ended, while it was about to go on."""
    return HandshakeRefused(
        ErrorCode.TRY_LATER,
        "the session was claimed by another node, or ended, while it was resumed here; try again",
        TRY_LATER,
        RETRY_DELAY,
    )


def not_master(master: NodeId, urls: tuple[str, ...]) -> HandshakeRefused:
    """Say that the client is to connect to the master.

    Args:
        master: its name.
        urls: where clients reach it.
    """
    refused = HandshakeRefused(ErrorCode.NOT_MASTER, f"the master is {master}", NOT_MASTER)
    refused.error = replace(refused.error, node=master, urls=urls or None)
    return refused


def window_in_doubt() -> HandshakeRefused:
    """Say that nobody can tell yet whether the window of a session is over."""
    return HandshakeRefused(
        ErrorCode.TRY_LATER,
        "the session's window may be over, and its node has yet to confirm it or to be taken over; try again",
        TRY_LATER,
        RETRY_DELAY,
    )


def grid_recovering() -> HandshakeRefused:
    """Say that the grid cannot tell yet whether there is such a session."""
    return HandshakeRefused(
        ErrorCode.TRY_LATER,
        "the grid has just become reachable again and the session may not be restored yet; try again",
        TRY_LATER,
        RETRY_DELAY,
    )
