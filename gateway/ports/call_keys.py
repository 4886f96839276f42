"""Idempotency keys of calls, as the grid remembers them. See ``gateway.ports`` for the rules that hold for all."""

from __future__ import annotations

from typing import Final, Protocol

from gateway.core.types import SessionId

CALL_KEY_SECONDS: Final = 3600.0
"""For which a key is remembered, and what was published under it: back ends repeat a call within seconds, or, after an
outage of their own, within minutes."""


class CallKeyStore(Protocol):
    """Remembers what was asked under a key, so that a key that is used for two different things is noticed."""

    async def bind(self, publisher: SessionId, fingerprint: bytes) -> bytes:
        """Bind a key to what is asked, unless it is bound already; it is forgotten after ``CALL_KEY_SECONDS``.

        Args:
            publisher: the name under which calls with this key publish.
            fingerprint: of what is asked, some bytes.

        Returns:
            The fingerprint that it is bound to: this one, or the first one.

        Raises:
            GridUnavailable: it may be bound.
        """
