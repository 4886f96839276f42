"""Slow work on credentials, and whose turn it is. See ``gateway.ports`` for the rules that hold for all."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from gateway.core.wire.errors import GatewayError
from gateway.ports.identity import Credentials

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
    often behind all others, bounded in number and in time. Works for the same credentials are one.
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
