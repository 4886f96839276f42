"""Who a client is: authentication and session tokens. See ``gateway.ports`` for the rules that hold for all."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from gateway.core.codes import ErrorCode
from gateway.core.errors import GatewayError
from gateway.core.types import SessionId, TokenGeneration


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """What a client says and shows of itself.

    Attributes:
        principal: who it says it is.
        secret: its proof, or None.
        address: where it comes from, as far as trusted proxies tell.
    """

    principal: str
    secret: str | None = field(default=None, repr=False)
    address: str = ""


class Authenticator(Protocol):
    """Decides who a client is."""

    async def authenticate(self, credentials: Credentials) -> str | None:
        """Return the principal the session will belong to, or None to refuse. Must not block the loop."""


@dataclass(frozen=True, slots=True)
class TokenClaims:
    """What a session token says.

    Attributes:
        session: whose token it is.
        generation: which of the session's tokens.
        expires: end of its life, in seconds since 1970 (UTC).
    """

    session: SessionId
    generation: TokenGeneration
    expires: float


class TokenRefused(GatewayError):
    """A token is not accepted.

    Attributes:
        reason: TOKEN_INVALID, TOKEN_EXPIRED or TOKEN_KEY_RETIRED.
    """

    def __init__(self, reason: ErrorCode) -> None:
        super().__init__(f"the token is refused: {reason.value}")
        self.reason = reason


class TokenSigner(Protocol):
    """Signs and verifies session tokens; pure, the time comes in."""

    def sign(self, session: SessionId, generation: TokenGeneration, *, now: float) -> str:
        """Make a token that lives from *now* (seconds since 1970) for the configured life."""

    def verify(self, token: str, *, now: float) -> TokenClaims:
        """Read a token.

        Raises:
            TokenRefused: with the reason; no other exception, whatever the text is.
        """
