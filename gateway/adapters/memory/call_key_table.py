"""Idempotency keys of calls, as the in-memory grid holds them."""

from __future__ import annotations

from gateway.core.types import SessionId
from gateway.ports import CALL_KEY_MARGIN, CALL_KEY_SECONDS


class CallKeys:
    """What was asked under each key, and when it may be forgotten."""

    def __init__(self) -> None:
        self._bound: dict[SessionId, tuple[bytes, float]] = {}

    def bind(self, publisher: SessionId, fingerprint: bytes, now: float) -> bytes:
        """See ``CallKeyStore.bind``."""
        # In the order in which they end, because all of them last as long.
        while self._bound and next(iter(self._bound.values()))[1] <= now:
            del self._bound[next(iter(self._bound))]
        bound, _ = self._bound.pop(publisher, (fingerprint, now))
        self._bound[publisher] = bound, now + CALL_KEY_SECONDS + CALL_KEY_MARGIN
        return bound
