"""Tells connected clients anew how to come back, when many more would come than when they were told."""

from __future__ import annotations

import asyncio
from typing import Final

from gateway.app.context import Context
from gateway.app.registry.sessions import Sessions
from gateway.core.pacing.reconnect_spread import is_outgrown

ADVISE_INTERVAL: Final = 5.0
"""Seconds between two looks, on average, whether what clients were advised about coming back is outgrown: nodes fill in
minutes."""

ADVISED_AT_ONCE: Final = 10
"""Clients that are told together: the work of a fraction of a millisecond, and as much again for what they answer."""

ADVISED_PER_SECOND: Final = 1000
"""Clients that are told in a second: a tenth of a core, until all know."""


class ReconnectAdviser:
    """Keeps what clients were advised in step with how many there are.

    Args:
        context: of the node.
        sessions: whom to advise.
    """

    def __init__(self, context: Context, sessions: Sessions) -> None:
        self._clock = context.clock
        self._backoff = context.parameters.backoff
        self._reconnect_advice = context.reconnect_advice
        self._sessions = sessions

    async def run(self) -> None:
        """Look now and then, for ever, whether what clients were told is outgrown."""
        while True:
            await asyncio.sleep(self._clock.about(ADVISE_INTERVAL))
            advice = self._reconnect_advice.advice()
            if not is_outgrown(self._backoff, advice):
                continue
            told = 0
            for session in self._sessions:
                if (
                    session.advised_backoff is None
                    or not session.connected
                    or not is_outgrown(session.advised_backoff, advice)
                ):
                    continue
                session.advised_backoff = advice
                session.machine.ping(backoff=advice)
                self._sessions.flusher.mark(session)
                told += 1
                if told % ADVISED_AT_ONCE == 0:
                    await asyncio.sleep(ADVISED_AT_ONCE / ADVISED_PER_SECOND)
