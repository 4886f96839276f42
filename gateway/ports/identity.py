"""Who a client is: authentication, slow work on credentials, and session tokens.

See ``gateway.ports`` for the rules that hold for all.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import field
from typing import Protocol, TypeVar

from gateway.core.immutable import immutable
from gateway.core.types import GridGeneration, SessionId, TokenGeneration
from gateway.core.wire.codes import ErrorCode
from gateway.core.wire.errors import GatewayError


def _never() -> bool:
    return False


@immutable(kw_only=True)
class Credentials:
    """What a client says and shows of itself.

    Attributes:
        principal: who it says it is; empty if its proof shall tell.
        secret: its proof, or None.
        address: where it comes from, as far as trusted proxies tell.
        abandoned: tells whether nobody wants the verdict any more, as who shows them has hung up.
        before_work: to be awaited before slow work is done for them (``VerificationPool``): raises if the verdict would
            be of no use, whatever it is. None if it is of use in any case.
    """

    principal: str = ""
    secret: str | None = field(default=None, repr=False)
    address: str = ""
    abandoned: Callable[[], bool] = field(default=_never, repr=False, compare=False)
    before_work: Callable[[], Awaitable[None]] | None = field(default=None, repr=False, compare=False)


@immutable(kw_only=True)
class Identity:
    """Who a client has proved to be.

    Attributes:
        principal: who the session will belong to.
        roles: what it may be taken for; a policy says what they permit.
        properties: what is vouched for of the principal, by name; clients see them as ``$principal.<name>`` and cannot
            change them.
        expires: when the credentials end, in seconds since 1970 (UTC), or None if they do not; a leeway for clocks is
            in it.
        credential: id of the credentials (such as the ``jti`` of a JWT), by which they can be revoked; None if they
            have none. Not secret.
    """

    principal: str
    roles: frozenset[str] = frozenset()
    properties: Mapping[str, str] = field(default_factory=dict)
    expires: float | None = None
    credential: str | None = None


class CredentialsRefused(GatewayError):
    """An authenticator refuses credentials.

    The message says why, for the operator's log. It never repeats a secret, and no client is told.

    Attributes:
        final: True if the credentials are this authenticator's matter, so that nobody else is to be asked; False if
            another one may accept them.
    """

    def __init__(self, message: str, *, final: bool = True) -> None:
        super().__init__(message)
        self.final = final


class EntryForbidden(GatewayError):
    """The credentials are good, and whoever they belong to may not come in here.

    The message says what is missing, and the client is told: it has proved who it is.
    """


class AuthenticationUnavailable(GatewayError):
    """Whether the credentials are good cannot be told now, because something outside does not answer.

    The message says what, for the operator's log, and never repeats a secret.
    """


class Authenticator(Protocol):
    """Decides who a client is. Fails closed: nobody is admitted because something does not work.

    Whoever asks holds nothing meanwhile that others need. What is slow (a hash that is slow on purpose, a question to
    somebody outside) is done through a ``VerificationPool``, and what is remembered is told without one.
    """

    async def authenticate(self, credentials: Credentials) -> Identity | None:
        """Tell who shows these credentials. Must not block the loop, and must end within some seconds.

        Returns:
            Who it is; None if these are no credentials of the kind that this authenticator takes.

        Raises:
            CredentialsRefused: they are refused; whether another authenticator may be asked, the error says.
            EntryForbidden: it is known who it is, and who it is may not come in.
            AuthenticationUnavailable: it cannot be told now; asking again later makes sense.
            VerificationRefused: too many are verified at the moment; asking again later makes sense.
            Exception: whatever ``Credentials.before_work`` raises.
        """


class Directory(Protocol):
    """Knows every principal that can be admitted, and what is vouched for of each at this moment. Does not wait."""

    def find(self, principal: str) -> Identity | None:
        """Tell what is vouched for of a principal; None if it is not known, or not any more."""


@immutable
class TokenClaims:
    """What a session token says.

    Attributes:
        session: whose token it is.
        token_generation: which of the session's tokens.
        expires: end of its life, in seconds since 1970 (UTC).
        grid_generation: of the grid, up to which its holder has been told of lost writes; None if the token does not
            say, as those of the first release.
        seen_generation: newest generation of the grid of which its holder may have seen anything (P6), at least
            *grid_generation*; None likewise.
    """

    session: SessionId
    token_generation: TokenGeneration
    expires: float
    grid_generation: GridGeneration | None = None
    seen_generation: GridGeneration | None = None

    def seen_after(self, adopted: GridGeneration) -> GridGeneration | None:
        """Return the generation that its holder may have seen, if it is later than the one that a node has adopted.

        Such a node is behind: what it would show may be older than what the holder has seen (P6, ADR 0063).

        Args:
            adopted: the generation of the grid that the node has adopted.

        Returns:
            The generation; None if it is not later, or if the token does not say.
        """
        seen = self.seen_generation
        return seen if seen is not None and seen > adopted else None


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

    def sign(
        self,
        session: SessionId,
        token_generation: TokenGeneration,
        *,
        now: float,
        grid_generation: GridGeneration | None = None,
        seen_generation: GridGeneration | None = None,
    ) -> str:
        """Make a token that lives from *now* (seconds since 1970) for the configured life; see ``TokenClaims``."""

    def verify(self, token: str, *, now: float) -> TokenClaims:
        """Read a token.

        Raises:
            TokenRefused: with the reason; no other exception, whatever the text is.
        """


T = TypeVar("T")


class VerificationRefused(GatewayError):
    """Credentials were not looked at, because too many others are; the message says so for the client.

    Attributes:
        retry_after: seconds after which it makes sense to come again.
    """

    def __init__(self, message: str, retry_after: float) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class VerificationPool(Protocol):
    """Places for slow work on credentials, which everybody gets a fair share of (P20).

    So many works run at a time. The others wait: fair between addresses and then between principals, those who failed
    often behind all others and no faster than by their rates, bounded in number and in time. Works for the same
    credentials are one.
    """

    @property
    def places(self) -> int:
        """Works that run at the same time."""

    async def run(self, credentials: Credentials, key: bytes, work: Callable[[], Awaitable[T]]) -> T:
        """Do slow work for credentials when it is their turn, or wait for the same work that somebody began before.

        Args:
            credentials: what is shown; ``before_work`` is awaited first, and nothing is done for whoever has hung up.
            key: equal for the same credentials and for no others, such as a digest of them.
            work: tells what is to be told of the credentials; goes on though its caller is cancelled.

        Returns:
            What *work* returned.

        Raises:
            VerificationRefused: there are too many, or it took too long until it was their turn.
            Exception: whatever *work* or ``before_work`` raises.
        """

    async def pretend(self, credentials: Credentials, key: bytes, work: Callable[[], Awaitable[object]]) -> None:
        """Let nobody notice that there is no need to do slow work, because the verdict is no whatever it says.

        Waits as ``run`` does, and ends as that would; but the work is done only if nothing else waits for a place.
        Otherwise it is waited for as long as work takes. So it may cost nothing, and keeps nobody waiting.

        Args:
            credentials: as for ``run``.
            key: as for ``run``.
            work: what would be done.

        Raises:
            VerificationRefused: as for ``run``.
            Exception: whatever *work* or ``before_work`` raises.
        """
