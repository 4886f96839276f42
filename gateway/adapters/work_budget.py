"""How much work one connection may cause, in seconds of CPU that are estimated by constants (P20, ADR 0047)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from gateway.core.pacing.rates import TokenBucket


@dataclass(frozen=True, slots=True)
class WorkLimits:
    """How much work a connection may cause.

    Attributes:
        rate: seconds of CPU a second; above, it is read more slowly.
        burst: seconds of CPU at once, after it was quiet.
        idle_rate: seconds of CPU a second that it may cause without saying anything that means something.
        idle_burst: seconds of CPU that it may cause beyond that; then it is closed.
    """

    rate: float
    burst: float
    idle_rate: float
    idle_burst: float


UNAUTHENTICATED_WORK: Final = WorkLimits(rate=0.01, burst=0.01, idle_rate=0.001, idle_burst=0.01)
"""Of a connection whose peer is nobody yet: a hundredth of a core; in silence 10 ms, then a thousandth of a core."""

KNOWN_WORK: Final = WorkLimits(rate=0.02, burst=0.05, idle_rate=0.001, idle_burst=0.1)
"""Of one whose peer has shown who it is, by a session or a token: twice that, and in silence 0.1 s before the same."""


class WorkBudget:
    """What one connection has left.

    Args:
        limits: see there.

    Attributes:
        is_exhausted: whether it has caused more than is borne without a message.
    """

    __slots__ = ("_bucket", "_idle", "is_exhausted")

    def __init__(self, limits: WorkLimits) -> None:
        self._bucket = TokenBucket(limits.rate, limits.burst)
        self._idle = TokenBucket(limits.idle_rate, limits.idle_burst)
        self.is_exhausted = False

    def charge(self, now: float, work: float) -> float:
        """Charge work that was done.

        Args:
            now: seconds, of a clock that does not go back.
            work: seconds of CPU.

        Returns:
            Seconds for which nothing more should be read; 0 if the connection keeps to its rate.
        """
        self.is_exhausted = self._idle.charge(now, work) > 0
        return self._bucket.charge(now, work)

    def note_message(self) -> None:
        """Something has come that means something."""
        self._idle.fill()
        self.is_exhausted = False
