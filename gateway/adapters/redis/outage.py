"""Why the grid is unreachable and since when, told so that a log stays readable (P10)."""

from __future__ import annotations

import asyncio
from typing import Final

from gateway.adapters.redis.dialer import why
from gateway.catalogue import log_events
from gateway.core.types import GridGeneration
from gateway.ports import EventLog

STILL_AWAY_AFTER: Final = 3.0
"""Seconds after which it is told why the grid cannot be reached yet: a replica takes over in less if all goes well."""

STILL_AWAY_INTERVAL: Final = 10.0
"""Seconds until it is told again."""

_REFUSAL_LOG_INTERVAL: Final = 1.0
"""Seconds between log events about refused writes: under ``maxmemory`` every publish is refused."""


class OutageLog:
    """Tells of outages: when one begins, now and then while it lasts, and when it is over.

    Args:
        log: where it is told.

    Attributes:
        why: what keeps the grid away now, or did so last; for people.
    """

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self.why = "it was not tried yet"
        self._since: float | None = None
        self._tell_again = 0.0
        self._refusal_told = float("-inf")

    def goes_on(self, error: Exception) -> None:
        """The grid is unreachable, because of *error*; tells of it if that is new or was told long ago."""
        self.why = why(error)
        now = asyncio.get_running_loop().time()
        if self._since is None:
            self._since = now
            self._tell_again = now + STILL_AWAY_AFTER
            self._log.emit(log_events.GRID_UNREACHABLE, error=self.why)
        elif now >= self._tell_again:
            # What ended the connection is seldom what keeps the next one from being made.
            self._tell_again = now + STILL_AWAY_INTERVAL
            seconds = round(now - self._since, 3)
            self._log.emit(log_events.GRID_STILL_UNREACHABLE, error=self.why, unreachable_seconds=seconds)

    def ended(self, generation: GridGeneration, *, lost_writes: bool) -> bool:
        """The grid is adopted.

        Args:
            generation: of the grid.
            lost_writes: whether it may have lost writes meanwhile.

        Returns:
            Whether it was unreachable.
        """
        if self._since is None:
            return False
        seconds = round(asyncio.get_running_loop().time() - self._since, 3)
        self._since = None
        self._log.emit(
            log_events.GRID_BACK, generation=generation, lost_writes=lost_writes, unreachable_seconds=seconds
        )
        return True

    def write_refused(self, reason: str) -> None:
        """Redis has refused a write, though it can be reached."""
        now = asyncio.get_running_loop().time()
        if now - self._refusal_told >= _REFUSAL_LOG_INTERVAL:
            self._refusal_told = now
            self._log.emit(log_events.GRID_WRITE_REFUSED, error=reason)
