"""An absolute schedule: what is late is not moved, and what was missed is made up for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Pacing:
    """Due times at a steady rate.

    Whoever is held up finds several due at once and does them all, each with its own due time. So a stall shows in the
    latency of everything that was due meanwhile, instead of making the load go away (coordinated omission).

    Attributes:
        start: the first due time, in seconds.
        interval: seconds from one to the next.
        count: how many have been handed out.
    """

    start: float
    interval: float
    count: int = 0

    def __post_init__(self) -> None:
        if self.interval <= 0:
            raise ValueError(f"the interval must be above 0 s, not {self.interval:g}")

    @property
    def next_due(self) -> float:
        """When the next one is due; computed from the start, so that no error adds up."""
        return self.start + self.count * self.interval

    def due(self, now: float) -> list[float]:
        """Hand out the due times up to *now*."""
        times: list[float] = []
        while self.next_due <= now:
            times.append(self.next_due)
            self.count += 1
        return times
