"""What the shell reads so that the core need not: time and randomness, replaceable in tests."""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass

from gateway.core.types import SessionId

SESSION_ID_BYTES = 16
"""128 random bits: ids are not secret, but nobody shall meet another's by guessing (RFC 4122 uses 122)."""


def _new_session_id() -> SessionId:
    return SessionId(secrets.token_urlsafe(SESSION_ID_BYTES))


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """Sources of time and chance.

    Attributes:
        monotonic: seconds that never go back; for deadlines.
        wall: seconds since 1970, UTC; for tokens, which other nodes read.
        cpu: seconds of processor time that this process has taken.
        random: a number in [0, 1), for jitter.
        session_id: a new session id.
    """

    monotonic: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time
    cpu: Callable[[], float] = time.process_time
    random: Callable[[], float] = random.random
    session_id: Callable[[], SessionId] = _new_session_id

    def about(self, seconds: float) -> float:
        """Draw a pause of so many seconds on average, from half of them to half more.

        For what a node does again and again: those that were started together must not do it together for ever.
        """
        return seconds * (0.5 + self.random())
