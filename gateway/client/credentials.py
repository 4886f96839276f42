"""What a client shows of itself: one secret for good, or a fresh one whenever it is needed (protocol 5.9)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from gateway.client.reconnect import Ending
from gateway.client.transport import AttemptFailed
from gateway.core.packets import NoticeCode

CredentialsSource: TypeAlias = Callable[[], Awaitable[str]]
"""Returns a fresh secret, such as an access token."""

FETCH_TIMEOUT: Final = 10.0
"""Seconds that the application may take to come by a fresh secret: a round trip to a slow identity provider."""

EXPIRING: Final = NoticeCode.CREDENTIALS_EXPIRING.value
"""Code of the notice that asks for fresh credentials."""

log = logging.getLogger("gateway.client")


class Credentials:
    """The credentials of one session.

    Args:
        principal: who shows them; empty if the secret tells.
        secret: for good; None if there is none, or *source* makes them.
        source: makes fresh ones; None if there are none.

    Attributes:
        principal: as given.
        renewable: whether there can be fresh ones.
        stale: those that the server holds have ended, or will soon.
    """

    def __init__(self, principal: str, secret: str | None, source: CredentialsSource | None) -> None:
        self.principal = principal
        self.renewable = source is not None
        self.stale = False
        self._secret = secret
        self._source = source

    async def for_hello(self, seconds: float) -> str | None:
        """Return what a new session is opened with; *seconds* bound the wait.

        Raises:
            AttemptFailed: a fresh one could not be had.
        """
        return self._secret if self._source is None else await self.fresh(seconds)

    async def for_resume(self, seconds: float) -> str | None:
        """Return what a resume has to carry: nothing, unless the session's credentials end.

        Raises:
            AttemptFailed: it could not be had.
        """
        return await self.fresh(seconds) if self.stale and self.renewable else None

    async def fresh(self, seconds: float) -> str:
        """Have the application make a fresh one.

        Raises:
            AttemptFailed: it failed, or took too long.
        """
        if self._source is None:
            raise AttemptFailed(Ending(message="there are no fresh credentials"))
        try:
            async with asyncio.timeout(seconds):
                return await self._source()
        except TimeoutError:
            raise AttemptFailed(Ending(message=f"no fresh credentials within {seconds:g} s")) from None
        except Exception as error:
            # What the application's error says is the application's matter, and may be secret.
            log.debug("fresh credentials could not be had", exc_info=True)
            raise AttemptFailed(Ending(message=f"fresh credentials failed with {type(error).__name__}")) from error
