"""Where fresh credentials come from: a function of the application, which may fail, hang or refuse to be cancelled."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeAlias

CredentialsSource: TypeAlias = Callable[[], Awaitable[str]]
"""Returns a fresh secret, such as an access token."""

log = logging.getLogger("gateway.client")


class NoCredentials(Exception):
    """Fresh credentials could not be had; the message says why, and holds no secret."""


async def fetch(source: CredentialsSource | None, seconds: float) -> str:
    """Have the application make a fresh secret.

    Args:
        source: its function; None if it has none.
        seconds: how long it may take.

    Raises:
        NoCredentials: it failed, or took too long.
    """
    if source is None:
        raise NoCredentials("there are no fresh credentials")
    # In a task of its own: whatever the application does there, this side waits no longer than it said, and a
    # cancellation that comes out of it is not one of this side.
    making = asyncio.get_running_loop().create_task(_call(source), name="gateway-client-credentials")
    try:
        await asyncio.wait([making], timeout=seconds)
    finally:
        making.cancel()
        making.add_done_callback(_forget)
    if not making.done():
        raise NoCredentials(f"no fresh credentials within {seconds:g} s")
    if making.cancelled():
        raise NoCredentials("fresh credentials failed with CancelledError")
    if (error := making.exception()) is not None:
        # What the application's error says is the application's matter, and may be secret.
        log.debug("fresh credentials could not be had", exc_info=error)
        raise NoCredentials(f"fresh credentials failed with {type(error).__name__}") from error
    secret = making.result()
    if not isinstance(secret, str):
        raise NoCredentials(f"fresh credentials are a string, and not {type(secret).__name__}")
    return secret


async def _call(source: CredentialsSource) -> object:
    return await source()


def _forget(making: asyncio.Task[object]) -> None:
    """Read the error of what nobody waits for any more, lest asyncio complains about it."""
    if not making.cancelled():
        making.exception()
