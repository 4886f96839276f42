"""Idempotency keys of calls, as the grid remembers them. See ``gateway.ports`` for the rules that hold for all."""

from __future__ import annotations

from typing import Final, Protocol

from gateway.core.types import SessionId

CALL_KEY_SECONDS: Final = 3600.0
"""For which a key is remembered after its last use, and what was published under it: back ends repeat a call within
seconds, or, after an outage of their own, within minutes."""

CALL_KEY_MARGIN: Final = 300.0
"""Seconds more for which the body of a key is remembered: beyond what is remembered of its execution, which may come
minutes later. Otherwise another body would be told what the first one did."""


class CallKeyStore(Protocol):
    """Remembers what was asked under a key, so that a key that is used for two different things is noticed."""

    async def bind(self, publisher: SessionId, fingerprint: bytes) -> bytes:
        """Bind a key to what is asked, unless it is bound already.

        It is forgotten ``CALL_KEY_SECONDS`` and ``CALL_KEY_MARGIN`` after the last call of this kind.

        Args:
            publisher: the name under which calls with this key publish.
            fingerprint: of what is asked, some bytes.

        Returns:
            The fingerprint that it is bound to: this one, or the first one.

        Raises:
            GridUnavailable: it may be bound.
        """
