"""What a client shows of itself: one secret for good, or a fresh one whenever it is needed (protocol 5.9)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from gateway.client.transport import AttemptFailed
from gateway.core.client.endings import Ending
from gateway.core.wire.packets import NoticeCode

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
        # In a task of its own: whatever the application does there, this side waits no longer than it said, and a
        # cancellation that comes out of it is not one of this side.
        making = asyncio.get_running_loop().create_task(_call(self._source), name="gateway-client-credentials")
        try:
            await asyncio.wait([making], timeout=seconds)
        finally:
            making.cancel()
            making.add_done_callback(_forget)
        if not making.done():
            raise AttemptFailed(Ending(message=f"no fresh credentials within {seconds:g} s"))
        if making.cancelled():
            raise AttemptFailed(Ending(message="fresh credentials failed with CancelledError"))
        if (error := making.exception()) is not None:
            # What the application's error says is the application's matter, and may be secret.
            log.debug("fresh credentials could not be had", exc_info=error)
            raise AttemptFailed(Ending(message=f"fresh credentials failed with {type(error).__name__}")) from error
        secret = making.result()
        if not isinstance(secret, str):
            kind = type(secret).__name__
            raise AttemptFailed(Ending(message=f"fresh credentials are a string, and not {kind}"))
        return secret


async def _call(source: CredentialsSource) -> object:
    return await source()


def _forget(making: asyncio.Task[object]) -> None:
    """Read the error of what nobody waits for any more, lest asyncio complains about it."""
    if not making.cancelled():
        making.exception()
