"""What several sessions keep together takes its memory once: counting that, and not counting it again for nothing.

To sum up what each keeps is cheap, and counts shared runs once for each session. Only if that sum is above a bound are
sessions looked through run by run, and what was found then holds as long as the sum has not grown by what is left.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from gateway.core.stream.runs import Run

LOOK_THROUGH: Final = 30.0
"""Seconds after which sessions whose sum is above a bound are looked through again in any case: what they share may
have gone, and what came in its place may not be shared."""


@dataclass(frozen=True, slots=True)
class LookedThrough:
    """What was found when sessions were looked through.

    Attributes:
        at: monotonic seconds.
        counted: with shared bodies counted each time.
        taken: with each counted once.
    """

    at: float
    counted: int
    taken: int

    def may_exceed(self, counted: int, most: int, now: float) -> bool:
        """Tell whether sessions can have come to take more than a bound since.

        Args:
            counted: what they keep now, with shared bodies counted each time.
            most: bytes that they may take.
            now: monotonic seconds.
        """
        return now - self.at >= LOOK_THROUGH or self.taken + max(0, counted - self.counted) > most


class DistinctRuns:
    """Counts runs once, in however many sessions they are.

    Attributes:
        looked_at: runs that were looked at, of all sessions.
    """

    def __init__(self) -> None:
        self._seen: set[int] = set()
        self.looked_at = 0

    def add(self, runs: Iterable[Run]) -> int:
        """Add those of a session, which have to be kept meanwhile; returns the bytes of those that are new."""
        size = 0
        for run in runs:
            self.looked_at += 1
            if id(run) not in self._seen:
                self._seen.add(id(run))
                size += run.size
        return size
