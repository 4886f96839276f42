"""Shows fresh credentials on the open connection, when those of the session are about to end (protocol 5.9.3)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from random import Random
from typing import Final, TypeAlias

from gateway.client.credentials import FETCH_TIMEOUT, Credentials
from gateway.client.transport import AttemptFailed
from gateway.core.client.errors import SessionEnded
from gateway.core.client.request_table import UNNUMBERED, ClientAsk
from gateway.core.wire.errors import RequestRefused
from gateway.core.wire.packets import Authenticate, Reply

REFRESH_INITIAL: Final = 1.0
"""Seconds until a refresh that failed is tried again; doubles with each failure."""

REFRESH_MAXIMUM: Final = 10.0
"""Seconds up to which that doubles: short against the minute between the notice and the end."""

log = logging.getLogger("gateway.client")

Request: TypeAlias = Callable[[ClientAsk, float | None], Awaitable[Reply]]
"""Asks something of the session's server, and waits for the answer as long as it takes."""


class Refreshing:
    """Refreshes the credentials of one session; one task does, over any number of connections.

    Args:
        credentials: of the session.
        request: asks the server.
        random: spreads the attempts of many clients.
        name: of the session, for messages.
    """

    def __init__(self, credentials: Credentials, request: Request, random: Random, name: str) -> None:
        self._credentials = credentials
        self._request = request
        self._random = random
        self._name = name
        self._notices = 0
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """The credentials end soon: see to it that they do not."""
        self._credentials.stale = True
        self._notices += 1
        if self._task is None or self._task.done():
            name = f"gateway-client-refresh-{self._name}"
            self._task = asyncio.get_running_loop().create_task(self._run(), name=name)

    def stop(self) -> None:
        """The session is over."""
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        pause = REFRESH_INITIAL
        # A resume may have shown fresh ones meanwhile.
        while self._credentials.stale:
            before = self._notices
            try:
                secret = await self._credentials.fresh(FETCH_TIMEOUT)
                await self._request(Authenticate(UNNUMBERED, secret, self._credentials.principal), None)
            except SessionEnded:
                return
            except (AttemptFailed, RequestRefused) as error:
                why = error.ending.message if isinstance(error, AttemptFailed) else error
                log.warning("session %s: its credentials could not be refreshed: %s", self._name, why)
            else:
                # A notice that came meanwhile may already speak of those that were shown just now.
                if self._notices == before:
                    self._credentials.stale = False
                continue
            await asyncio.sleep(pause * (1 + self._random.random()))
            pause = min(REFRESH_MAXIMUM, 2 * pause)
